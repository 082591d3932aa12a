"""Puts TLS in front of a server that speaks plain text, as a shard with TLS."""

import asyncio
import ssl
import threading


class TlsRelay:
    """Listens on a free loopback port; what comes with TLS goes to 127.0.0.1:`port` without.
    `client_ca`: clients need a certificate of this authority."""

    def __init__(self, port, certificate, client_ca=None):
        self._target, self._tasks, self.served = port, set(), 0
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
        self._context.load_cert_chain(certificate)
        if client_ca:
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        self.served += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))

    @staticmethod
    async def _copy(reader, writer):
        try:
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
        except (OSError, ssl.SSLError):
            pass
        finally:
            writer.close()

    def close(self):
        async def end():
            self._server.close()
            others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
