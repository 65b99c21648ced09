"""A lean HTTP server in a process of its own, so that a request costs little but its client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: text/plain\r\n\r\nok"


class _Keepalive(asyncio.Protocol):
    """Answers every head; bodies it does not know. Short heads come in one piece on loopback."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(_ANSWER * data.count(b"\r\n\r\n"))


async def _serve(ready: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(_Keepalive, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _run(ready: Connection) -> None:
    asyncio.run(_serve(ready))


@contextmanager
def lean_server() -> Iterator[str]:
    """Serve GET requests while the with-block runs; its origin."""
    context = get_context("spawn")
    port, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{port.recv()}"
    finally:
        process.terminate()
        process.join()
