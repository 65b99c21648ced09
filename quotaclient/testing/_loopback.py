"""Servers on loopback that leave nothing behind: no task, no connection, no thread.

LoopbackServer      asyncio; owns its connections, ends them when it is closed
BackgroundUpstream  one of them in a thread of its own, answering by a plain function
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Self

from ._http import Answer, Received

# asyncio's 100 is less than one cold burst of a fleet: the rest would be dropped and come back a
# second later, when TCP repeats its SYN. The kernel caps what we ask for (Linux:
# net.core.somaxconn, 4096 by default).
_BACKLOG = 4096

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class LoopbackServer:
    """`serve(reader, writer)` for each connection to a free port of 127.0.0.1.

    An async context manager. `serve` starts `handshake_delay` seconds after the connection was
    accepted. A peer that leaves (OSError, EOFError) ends its connection and nothing else.
    """

    def __init__(self, serve: Serve, *, handshake_delay: float = 0.0) -> None:
        self._serve = serve
        self._handshake_delay = handshake_delay
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._closing = False
        self.port = 0
        self.accepted = 0

    @property
    def connections(self) -> int:
        """Connections open now."""
        return len(self._open)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=_BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._server.close()
        open_now = list(self._open.items())
        for writer, task in open_now:
            # Not close(): it would wait for a peer that has stopped reading.
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*(task for _, task in open_now), return_exceptions=True)
        await self._server.wait_closed()

    # A plain function, so that the tasks are ours: asyncio hides those it makes for a coroutine
    # function.
    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing:
            writer.transport.abort()
            return
        self.accepted += 1
        task = asyncio.get_running_loop().create_task(self._run(reader, writer))
        self._open[writer] = task
        task.add_done_callback(lambda _: self._open.pop(writer))

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError):
                if self._handshake_delay:
                    await asyncio.sleep(self._handshake_delay)
                await self._serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


class BackgroundUpstream(ABC):
    """A server in a thread of its own whose behaviour is `answers`, from request to answer.

    `answers` is called on the server's thread, one request at a time: it must not block
    (`Answer.delay` waits). Should it raise, the client is told 500 and the error is raised again
    where the with-block ends.
    """

    def __init__(
        self, answers: Callable[[Received], Answer], *, handshake_delay: float = 0.0
    ) -> None:
        """`handshake_delay`: seconds between accepting a connection and reading from it."""
        self._answers = answers
        self._server = LoopbackServer(self._serve, handshake_delay=handshake_delay)
        self._received: list[Received] = []
        self._failure: Exception | None = None
        self._started = Future[None]()
        # A daemon, so that an upstream somebody forgot to close cannot keep the interpreter from
        # ending.
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None and exc is None:
            raise self._failure

    @property
    def url(self) -> str:
        """The origin, `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def received(self) -> tuple[Received, ...]:
        """Every request so far, in the order in which they were complete."""
        return tuple(self._received)

    @property
    def accepted(self) -> int:
        """Connections accepted since the start."""
        return self._server.accepted

    @property
    def connections(self) -> int:
        """Connections open now; a closed one counts until the server's thread has seen it."""
        return self._server.connections

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.url} received={len(self._received)}"
            f" accepted={self.accepted} connections={self.connections}>"
        )

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak the protocol on one connection until the client leaves."""

    def _answer(self, received: Received) -> Answer:
        self._received.append(received)
        try:
            return self._answers(received)
        except Exception as exc:
            self._failure = self._failure or exc
            return Answer(500, body=repr(exc).encode())

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as exc:
            if self._started.done():
                raise
            self._started.set_exception(exc)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._server:
            self._started.set_result(None)
            await self._stop.wait()
