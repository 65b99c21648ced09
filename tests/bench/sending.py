"""How requests of a bench leave: stamped at departure, and behind whatever gate is measured."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

# httpx closes connections that were idle for 5 s, and with threads it may do so just as another
# takes one up (seen with a plain httpx.Client too: ReadError, bad file descriptor). Requests that
# wait for a quota find theirs idle; here they are kept.
CONNECTIONS = httpx.Limits(keepalive_expiry=60)

Acquire = Callable[[], Awaitable[object]]
"""Returns when one unit may be spent."""


class Journey:
    """One request of a process: when it came and when it first departed, `time.monotonic()`."""

    __slots__ = ("departed", "entered")

    def __init__(self) -> None:
        self.entered = time.monotonic()
        self.departed: float | None = None

    @property
    def extensions(self) -> dict[str, Any]:
        """What a request takes along, so that its departure is written down here."""
        return {"journey": self}


def _stamp(request: httpx.Request, name: str, info: dict[str, Any]) -> None:
    if name.endswith("send_request_headers.started"):
        now = time.monotonic()
        info["request"].headers.append((b"x-departed", b"%.6f" % now))
        journey = request.extensions.get("journey")
        if journey is not None and journey.departed is None:
            journey.departed = now


class Stamping(httpx.AsyncHTTPTransport):
    """Stamps each request when its headers are about to be written, after its permit was shown."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        trace = request.extensions.get("trace")

        async def stamp(name: str, info: dict[str, Any]) -> None:
            if trace is not None:
                await trace(name, info)
            _stamp(request, name, info)

        request.extensions = {**request.extensions, "trace": stamp}
        return await super().handle_async_request(request)


class SyncStamping(httpx.HTTPTransport):
    """The same in threads."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        trace = request.extensions.get("trace")

        def stamp(name: str, info: dict[str, Any]) -> None:
            if trace is not None:
                trace(name, info)
            _stamp(request, name, info)

        request.extensions = {**request.extensions, "trace": stamp}
        return super().handle_request(request)


class Gated(httpx.AsyncBaseTransport):
    """Waits at a gate before each send: how a limiter that knows no httpx is put in front of it."""

    def __init__(self, inner: httpx.AsyncBaseTransport, acquire: Acquire) -> None:
        self._inner = inner
        self._acquire = acquire

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._acquire()
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()
