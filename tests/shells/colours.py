"""One vocabulary for both colours: a test is written once, as threads would, and runs on each.

The async colour lives on an event loop in a thread of its own; its verbs block until it has done
what they say, and `start` does not.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, Self

import anyio
import anyio.from_thread
import httpx

from quotaclient import (
    AsyncQuota,
    AsyncQuotaClient,
    AsyncQuotaTransport,
    Decision,
    Quota,
    QuotaClient,
    QuotaTransport,
    Usage,
)

MOST_THREADS = 256


class Colour(ABC):
    """A colour at work: ends what it started when its with-block ends."""

    name: str

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def __repr__(self) -> str:
        return self.name

    @abstractmethod
    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run one of the library's functions of this colour to its end."""

    @abstractmethod
    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it beside others."""

    @abstractmethod
    def trace(
        self, seen: list[str], delays: Mapping[str, float] | None = None
    ) -> Callable[..., Any]:
        """A `trace` extension of this colour that notes events, and sleeps at some of them."""

    @abstractmethod
    def body(self, *parts: bytes | Exception) -> Any:
        """A generator of this colour, which can be read once; errors among its parts are raised."""

    def quota(self, key: str | None, limit: Any, **parameters: Any) -> SomeQuota:
        """A Quota of this colour, closed with the colour."""
        kind = Quota if isinstance(self, Threads) else AsyncQuota
        made = SomeQuota(self, kind(key, limit, **parameters))
        self._stack.callback(made.close)
        return made

    def client(self, base_url: str = "", **parameters: Any) -> SomeClient:
        """A QuotaClient of this colour, closed with the colour."""
        kind = QuotaClient if isinstance(self, Threads) else AsyncQuotaClient
        # Nearly all tests speak HTTP; reading the system's certificates is half of a quick one.
        return self._adopted(kind(base_url, **{"verify": False, **parameters}))

    def transport(self, inner: Any = None, **parameters: Any) -> Any:
        """A QuotaTransport of this colour."""
        kind = QuotaTransport if isinstance(self, Threads) else AsyncQuotaTransport
        return kind(inner, **parameters)

    def plain_client(self, **parameters: Any) -> SomeClient:
        """httpx's own client of this colour, for transports of ours."""
        kind = httpx.Client if isinstance(self, Threads) else httpx.AsyncClient
        return self._adopted(kind(**{"verify": False, **parameters}))

    def _adopted(self, inner: Any) -> SomeClient:
        made = SomeClient(self, inner)
        self._stack.callback(made.close)
        return made


class Threads(Colour):
    """The sync colour: calls beside others are made in threads."""

    name = "sync"

    def __init__(self) -> None:
        super().__init__()
        self._pool = self._stack.enter_context(ThreadPoolExecutor(MOST_THREADS))

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        return self._pool.submit(function, *args, **kwargs)

    def trace(
        self, seen: list[str], delays: Mapping[str, float] | None = None
    ) -> Callable[..., Any]:
        def trace(name: str, info: Mapping[str, Any]) -> None:
            seen.append(name)
            # Not sleep(0): that switches threads, between httpcore's taking of a stream's id and
            # its headers even, where HTTP/2 in threads breaks without us too.
            if delays and name in delays:
                time.sleep(delays[name])

        return trace

    def body(self, *parts: bytes | Exception) -> Iterator[bytes]:
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part


class Loop(Colour):
    """The async colour, on asyncio or trio."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.name = backend
        self._portal = self._stack.enter_context(anyio.from_thread.start_blocking_portal(backend))
        self._stack.callback(self._end_all)

    def _end_all(self) -> None:
        self._portal.call(self._portal.stop, True)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.start(function, *args, **kwargs).result()

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        return self._portal.start_task_soon(partial(function, *args, **kwargs))

    def trace(
        self, seen: list[str], delays: Mapping[str, float] | None = None
    ) -> Callable[..., Any]:
        async def trace(name: str, info: Mapping[str, Any]) -> None:
            seen.append(name)
            if delays and name in delays:
                await anyio.sleep(delays[name])

        return trace

    def body(self, *parts: bytes | Exception) -> AsyncIterator[bytes]:
        async def body() -> AsyncIterator[bytes]:
            for part in parts:
                if isinstance(part, Exception):
                    raise part
                yield part

        return body()


class SomeQuota:
    """A Quota of either colour."""

    def __init__(self, colour: Colour, inner: Any) -> None:
        self.colour = colour
        self.inner = inner

    def acquire(self, *args: Any, **kwargs: Any) -> Decision:
        decision: Decision = self.colour.call(self.inner.acquire, *args, **kwargs)
        return decision

    def try_acquire(self, *args: Any, **kwargs: Any) -> Decision | None:
        decision: Decision | None = self.colour.call(self.inner.try_acquire, *args, **kwargs)
        return decision

    def peek(self, **kwargs: Any) -> Usage:
        usage: Usage = self.colour.call(self.inner.peek, **kwargs)
        return usage

    def used(self, **kwargs: Any) -> int:
        """The units that the first limit has used."""
        return next(iter(self.peek(**kwargs).used.values()))

    def reset(self, **kwargs: Any) -> None:
        self.colour.call(self.inner.reset, **kwargs)

    def close(self) -> None:
        self.colour.call(self.inner.close if hasattr(self.inner, "close") else self.inner.aclose)

    def start(self, *args: Any, **kwargs: Any) -> Future[Decision]:
        """`acquire` beside others."""
        return self.colour.start(self.inner.acquire, *args, **kwargs)


class SomeClient:
    """A client of either colour."""

    def __init__(self, colour: Colour, inner: Any) -> None:
        self.colour = colour
        self.inner = inner

    @property
    def quota(self) -> SomeQuota:
        return SomeQuota(self.colour, self.inner.quota)

    def request(self, method: str, url: str, **kwargs: Any) -> httpx.Response:
        response: httpx.Response = self.colour.call(self.inner.request, method, url, **kwargs)
        return response

    def get(self, url: str, **kwargs: Any) -> httpx.Response:
        return self.request("GET", url, **kwargs)

    def start(self, url: str, method: str = "GET", **kwargs: Any) -> Future[httpx.Response]:
        """A request beside others."""
        return self.colour.start(self.inner.request, method, url, **kwargs)

    def stream(self, method: str, url: str, **kwargs: Any) -> tuple[httpx.Response, bytes]:
        """The response of `client.stream` and what its body was, read piece by piece."""
        context = self.inner.stream(method, url, **kwargs)
        function = _read_all if hasattr(context, "__enter__") else _aread_all
        result: tuple[httpx.Response, bytes] = self.colour.call(function, context)
        return result

    def raw(self, method: str, url: str) -> tuple[httpx.Response, bytes]:
        """The same with a body as it came."""
        context = self.inner.stream(method, url)
        function = _read_raw if hasattr(context, "__enter__") else _aread_raw
        result: tuple[httpx.Response, bytes] = self.colour.call(function, context)
        return result

    def open(self, method: str, url: str) -> httpx.Response:
        """A response whose body has not been read."""
        request = self.inner.build_request(method, url)
        response: httpx.Response = self.colour.call(self.inner.send, request, stream=True)
        return response

    def end(self, response: httpx.Response) -> None:
        """Close a response that `open` returned."""
        is_sync = isinstance(self.colour, Threads)
        self.colour.call(response.close if is_sync else response.aclose)

    def close(self) -> None:
        self.colour.call(self.inner.close if hasattr(self.inner, "close") else self.inner.aclose)

    def inside(self, work: Callable[[], None] = lambda: None) -> None:
        """Run `work` inside the client's own with-block."""
        if isinstance(self.colour, Threads):
            with self.inner:
                work()
        else:
            self.colour.call(_within, self.inner, work)


def _read_all(context: Any) -> tuple[httpx.Response, bytes]:
    with context as response:
        return response, b"".join(response.iter_bytes())


async def _aread_all(context: Any) -> tuple[httpx.Response, bytes]:
    async with context as response:
        return response, b"".join([part async for part in response.aiter_bytes()])


def _read_raw(context: Any) -> tuple[httpx.Response, bytes]:
    with context as response:
        return response, b"".join(response.iter_raw())


async def _aread_raw(context: Any) -> tuple[httpx.Response, bytes]:
    async with context as response:
        return response, b"".join([part async for part in response.aiter_raw()])


async def _within(client: Any, work: Callable[[], None]) -> None:
    async with client:
        await anyio.to_thread.run_sync(work)


def made(name: str) -> Colour:
    """The colour of this name: "sync", "asyncio" or "trio"."""
    return Threads() if name == "sync" else Loop(name)


def results(futures: Iterable[Future[Any]], timeout: float = 20) -> list[Any]:
    """What each came to, errors included."""
    until = time.monotonic() + timeout
    outcomes: list[Any] = []
    for future in futures:
        error = future.exception(max(0.0, until - time.monotonic()))
        outcomes.append(future.result() if error is None else error)
    return outcomes


def eventually(truth: Callable[[], bool], within: float = 2.0) -> bool:
    """Whether it comes true in time: what travels by a task of its own takes a moment."""
    until = time.monotonic() + within
    while not truth():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


class Took:
    seconds = 0.0


@contextmanager
def stopwatch() -> Iterator[Took]:
    """How long the block took."""
    took, since = Took(), time.monotonic()
    try:
        yield took
    finally:
        took.seconds = time.monotonic() - since


class Recording(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A transport of both colours without trace events that notes what is done with it."""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response] | None = None) -> None:
        self.calls: list[str] = []
        self.requests: list[httpx.Request] = []
        self._answer = answer or (lambda request: httpx.Response(200))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self._answer(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer: Any = self.handle_request(request)
        if isawaitable(answer):
            return await answer  # type: ignore[no-any-return]
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        self.calls.append("close")

    def __enter__(self) -> Self:
        self.calls.append("enter")
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.calls.append("exit")

    async def aclose(self) -> None:
        self.calls.append("close")

    async def __aenter__(self) -> Self:
        self.calls.append("enter")
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        self.calls.append("exit")
