"""A server of one coroutine, on an asyncio loop in a thread of its own."""

import asyncio
import threading


class LoopServer:
    """Listens on the loopback port `port`, a free one unless `at` names one that was just freed; `serve(reader, writer)` is given each connection.
    close(), or the end of a `with`, ends all of them."""

    def __init__(self, serve, ssl=None, at=0):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = asyncio.start_server(serve, "127.0.0.1", at, ssl=ssl)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(20)
        self.port = self._server.sockets[0].getsockname()[1]

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
