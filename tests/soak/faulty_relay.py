"""A relay between the proxy and a shard that fails when told to, on a thread of its own."""

import asyncio
import contextlib
import os
import random
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
from loop_server import LoopServer  # noqa: E402

PIECE = 1 << 16
# FerretDB's cursors end with the connection that opened them, MongoDB's do not; and one that ends so during a getMore
# over another connection answers as if the scan were over. So the shard's end of a connection outlives the proxy's.
LINGER_S = 60


class Messages:
    """Where the messages of a stream begin. A change in the middle of one may hit a payload, which no check finds."""

    def __init__(self):
        self._left, self._length = 0, b""

    def feed(self, piece):
        """Whether a message begins with the piece's first byte."""
        begins, at = self._left == 0 and not self._length, 0
        while at < len(piece):
            if self._left == 0:
                more = piece[at:at + 4 - len(self._length)]
                self._length += more
                at += len(more)
                if len(self._length) == 4:
                    self._left, self._length = struct.unpack("<i", self._length)[0] - 4, b""
                continue
            taken = min(self._left, len(piece) - at)
            self._left -= taken
            at += taken
        return begins


class FaultyRelay(LoopServer):
    """Passes bytes to and from 127.0.0.1:`port`. Any thread may call the methods that hurt; each hurts
    the connections that there are, `spoil` those whose shard answers next. The shard learns of it LINGER_S later."""

    def __init__(self, port, seed):
        self._target, self._random = port, random.Random(seed)
        self._near, self._spoil, self.spoiled = set(), None, 0
        super().__init__(self._serve)

    def reset_all(self):
        """Ends every connection by RST."""
        return self._on_loop(self._reset_all)

    def close_all(self):
        return self._on_loop(lambda: [writer.close() for writer in self._near])

    def spoil(self, how):
        """The next answer: "garbage" where its header was, or "half" of it and the connection's end."""
        self._on_loop(lambda: setattr(self, "_spoil", how))

    def _on_loop(self, call):
        done = asyncio.run_coroutine_threadsafe(self._call(call), self._loop)
        return done.result(20)

    @staticmethod
    async def _call(call):
        call()

    def _reset_all(self):
        for writer in list(self._near):
            if writer.is_closing():
                continue
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _serve(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        self._near.add(writer)
        ways = [asyncio.ensure_future(self._copy(reader, far_writer, False)),
                asyncio.ensure_future(self._copy(far_reader, writer, True))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            self._near.discard(writer)
            writer.close()
            await self._drain(far_reader)
        finally:
            self._near.discard(writer)
            writer.close()
            far_writer.close()

    @staticmethod
    async def _drain(reader):
        with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):  # the last: close() ends all
            async with asyncio.timeout(LINGER_S):
                while await reader.read(PIECE):
                    pass

    async def _copy(self, reader, writer, answers):
        messages = Messages()
        try:
            while piece := await reader.read(PIECE):
                begins = messages.feed(piece)
                if answers and self._spoil and begins:
                    how, self._spoil = self._spoil, None
                    self.spoiled += 1
                    if how == "half":
                        writer.write(piece[:len(piece) // 2])
                        break
                    piece = self._garbage(piece)
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass

    def _garbage(self, piece):
        """Wrong in a way that can be told from an answer: a length that cannot be, or noise where the header was."""
        if self._random.random() < 0.5:
            return struct.pack("<i", self._random.choice([-1, 0, 15, 1 << 30])) + piece[4:]
        return os.urandom(16) + piece[16:]
