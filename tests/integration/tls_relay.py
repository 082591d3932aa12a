"""Puts TLS in front of a server that speaks plain text, as a shard with TLS."""

import asyncio
import ssl

from loop_server import LoopServer


class TlsRelay(LoopServer):
    """Listens on a free loopback port; what comes with TLS goes to 127.0.0.1:`port` without.
    `client_ca`: clients need a certificate of this authority."""

    def __init__(self, port, certificate, client_ca=None, at=0):
        self._target, self.served = port, 0
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
        context.load_cert_chain(certificate)
        if client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
        super().__init__(self._serve, context, at)

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
