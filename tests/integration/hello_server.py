"""A server that answers a hello as a mongod does, and nothing else."""

import contextlib
import struct

from loop_server import LoopServer
from wire import OP_MSG, body_section


@contextlib.contextmanager
def a_mongod():
    """Its port."""
    async def serve(reader, writer):
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                length, request_id, _, _ = struct.unpack("<iiii", await reader.readexactly(16))
                await reader.readexactly(length - 16)
                hello = {"isWritablePrimary": True, "ismaster": True, "maxWireVersion": 21, "ok": 1.0}
                body = struct.pack("<I", 0) + body_section(hello)
                writer.write(struct.pack("<iiii", 16 + len(body), 1, request_id, OP_MSG) + body)
                await writer.drain()
        writer.close()

    with LoopServer(serve) as server:
        yield server.port
