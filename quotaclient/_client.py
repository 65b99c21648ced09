"""The public classes, over httpx. Everything they do is in `_quota.py` and `_transport.py`."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Unpack

import httpx
import tenacity

from quotaclient._bodies import AsyncPeeked, Peeked
from quotaclient._core.options import OnOutage, checked_key_or_function
from quotaclient._core.profiles import Profile
from quotaclient._quota import BaseAsyncQuota, BaseQuota
from quotaclient._retry import checked_retry
from quotaclient._settings import Limits, Parameters, Routes, Settings
from quotaclient._stores.redis import RedisParameter
from quotaclient._transport import AsyncTransport, SyncTransport, origin_of
from quotaclient.errors import QuotaExceeded, StoreUnavailable

Key = str | Callable[[httpx.Request], str] | None
Retry = int | tenacity.BaseRetrying


class Quota(BaseQuota):
    """A limit to be kept without HTTP, by threads; the parameters are those of `QuotaClient`.

    `key` names the quota; each call may name another. `with` closes, it acquires nothing.
    """

    _exceeded: ClassVar = QuotaExceeded
    _unavailable: ClassVar = StoreUnavailable


class AsyncQuota(BaseAsyncQuota):
    """A limit to be kept without HTTP, on asyncio and trio; the twin of `Quota`."""

    _exceeded: ClassVar = QuotaExceeded
    _unavailable: ClassVar = StoreUnavailable


class _Peeked(Peeked, httpx.SyncByteStream):
    """As httpx wants it."""


class _AsyncPeeked(AsyncPeeked, httpx.AsyncByteStream):
    """As httpx wants it."""


class QuotaTransport(SyncTransport[httpx.Request, httpx.Response], httpx.BaseTransport):
    """An httpx transport that draws on a quota, for those who compose transports.

    `transport` is what it sends through (by default `httpx.HTTPTransport()`); it is closed with
    this one. The other parameters are those of `QuotaClient`; without `key`, each request draws
    on the quota of its origin.
    """

    _byte_stream = httpx.ByteStream
    _peeked = _Peeked
    _tracing = httpx.HTTPTransport

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        limit: Limits,
        routes: Routes = None,
        key: Key = None,
        retry: Retry = 2,
        profile: str | Profile | None = None,
        **parameters: Unpack[Parameters],
    ) -> None:
        policy = checked_retry(retry)
        checked_key_or_function(key)
        self.quota = Quota._of(
            Settings(key if isinstance(key, str) else None, limit, routes, profile, **parameters)
        )
        inner = transport if transport is not None else httpx.HTTPTransport()
        self._set_up(inner, self.quota, policy, key, _anywhere)

    def close(self) -> None:
        """Close the transport inside, and the quota."""
        try:
            super().close()
        finally:
            self.quota.close()

    def __exit__(self, *exc_info: Any) -> None:
        try:
            super().__exit__(*exc_info)
        finally:
            self.quota.close()


class AsyncQuotaTransport(AsyncTransport[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    """The twin of `QuotaTransport` for `httpx.AsyncClient`."""

    _byte_stream = httpx.ByteStream
    _peeked = _AsyncPeeked
    _tracing = httpx.AsyncHTTPTransport

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        limit: Limits,
        routes: Routes = None,
        key: Key = None,
        retry: Retry = 2,
        profile: str | Profile | None = None,
        **parameters: Unpack[Parameters],
    ) -> None:
        policy = checked_retry(retry)
        checked_key_or_function(key)
        self.quota = AsyncQuota._of(
            Settings(key if isinstance(key, str) else None, limit, routes, profile, **parameters)
        )
        inner = transport if transport is not None else httpx.AsyncHTTPTransport()
        self._set_up(inner, self.quota, policy, key, _anywhere)

    async def aclose(self) -> None:
        """Close the transport inside, and the quota."""
        try:
            await super().aclose()
        finally:
            await self.quota.aclose()

    async def __aexit__(self, *exc_info: Any) -> None:
        try:
            await super().__aexit__(*exc_info)
        finally:
            await self.quota.aclose()


class _Door(SyncTransport[httpx.Request, httpx.Response], httpx.BaseTransport):
    """One of a client's transports, drawing on the client's quota."""

    _byte_stream = httpx.ByteStream
    _peeked = _Peeked
    _tracing = httpx.HTTPTransport

    def __init__(self, inner: httpx.BaseTransport, *shared: Any) -> None:
        self._set_up(inner, *shared)


class _AsyncDoor(AsyncTransport[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    """One of a client's transports, drawing on the client's quota."""

    _byte_stream = httpx.ByteStream
    _peeked = _AsyncPeeked
    _tracing = httpx.AsyncHTTPTransport

    def __init__(self, inner: httpx.AsyncBaseTransport, *shared: Any) -> None:
        self._set_up(inner, *shared)


class QuotaClient(httpx.Client):
    """An `httpx.Client` whose requests go out when the whole fleet may send them.

    All its doors, `transport=`, `mounts=`, `proxy=` and proxies of the environment, draw on one
    quota. `.quota` is that `Quota`; each response tells of its permit in
    `response.extensions["quota"]`, a `Decision`. Each request may bring
    `extensions={"quota": {"cost": 5, "max_wait": 2.0, "priority": 1, "key": "tenant-7",
    "retry": 0}}`.

    Parameters
    ----------
    base_url
        As in httpx. Requests to another origin do not draw on the quota.
    limit
        "100/min", "10/s; 1000/h", `100 / minute`, a `Limit` or several. Raises InvalidLimit.
    routes
        {"GET /search/*": "30/min"}: limits that come on top for the requests that match. The
        method may be left out, the path is compared as it is sent, with that of base_url and
        without the query, and * is any text. Of several that match all count.
    key
        What names the quota: clients with the same key share it. A text, or a function from the
        request to a text (a tenant). By default the origin of base_url, or of each request.
    redis
        A URL, or a redis / redis.asyncio client to take the settings from. None: the windows
        are in this process, shared by all its clients.
    replicas
        How many processes share the limit. While Redis is away each keeps to the limit divided
        by it, rounded down. None: none of them may send then.
    on_outage
        While Redis is away: "share" (keep to that share) or "reject" (raise StoreUnavailable).
    max_wait
        Seconds that a request may wait in all; 0 never waits, None is unbounded. What cannot be
        in time raises QuotaExceeded at once.
    retry
        Resends after a throttled answer (2 = three sends), or a tenacity Retrying whose stop and
        wait are used.
    guard
        Seconds, from 0 to half the shortest period: how late a permitted request may arrive. The
        window is wider by it; 0 keeps the limit at admission only. None: 1 % of the shortest
        period, within 0.05-0.5 s and a tenth of it; a bucket that fills in less counts as that.
    profile
        How the upstream speaks of its quota: the name of one of our profiles, or a `Profile`. None:
        that of each request's host.
    prefix
        What all keys in Redis begin with.
    **httpx_client_arguments
        As in httpx.

    Raises ValueError, showing the value and a correct example, for what cannot be.
    """

    def __init__(
        self,
        base_url: httpx.URL | str = "",
        *,
        limit: Limits,
        routes: Routes = None,
        key: Key = None,
        redis: RedisParameter = None,
        replicas: int | None = None,
        on_outage: OnOutage = "share",
        max_wait: float | None = 60.0,
        retry: Retry = 2,
        guard: float | None = None,
        profile: str | Profile | None = None,
        prefix: str = "quota",
        **httpx_client_arguments: Any,
    ) -> None:
        policy = checked_retry(retry)
        checked_key_or_function(key)
        origin = _origin(httpx.URL(base_url))
        self.quota = Quota._of(
            Settings(
                key if isinstance(key, str) else origin,
                limit,
                routes,
                profile,
                redis=redis,
                replicas=replicas,
                on_outage=on_outage,
                max_wait=max_wait,
                guard=guard,
                prefix=prefix,
            )
        )
        super().__init__(base_url=base_url, **httpx_client_arguments)
        # httpx builds its transports, for mounts= and proxies would go past a transport= of ours.
        shared = (self.quota, policy, key, _Home(self).origin)
        self._transport: httpx.BaseTransport = _Door(self._transport, *shared)
        self._mounts = {
            pattern: inner if inner is None else _Door(inner, *shared)
            for pattern, inner in self._mounts.items()
        }

    def close(self) -> None:
        """Close transports and quota."""
        try:
            super().close()
        finally:
            self.quota.close()

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        try:
            super().__exit__(exc_type, exc_value, traceback)
        finally:
            self.quota.close()


class AsyncQuotaClient(httpx.AsyncClient):
    """The twin of `QuotaClient`, an `httpx.AsyncClient`, on asyncio and trio."""

    def __init__(
        self,
        base_url: httpx.URL | str = "",
        *,
        limit: Limits,
        routes: Routes = None,
        key: Key = None,
        redis: RedisParameter = None,
        replicas: int | None = None,
        on_outage: OnOutage = "share",
        max_wait: float | None = 60.0,
        retry: Retry = 2,
        guard: float | None = None,
        profile: str | Profile | None = None,
        prefix: str = "quota",
        **httpx_client_arguments: Any,
    ) -> None:
        policy = checked_retry(retry)
        checked_key_or_function(key)
        origin = _origin(httpx.URL(base_url))
        self.quota = AsyncQuota._of(
            Settings(
                key if isinstance(key, str) else origin,
                limit,
                routes,
                profile,
                redis=redis,
                replicas=replicas,
                on_outage=on_outage,
                max_wait=max_wait,
                guard=guard,
                prefix=prefix,
            )
        )
        super().__init__(base_url=base_url, **httpx_client_arguments)
        # httpx builds its transports, for mounts= and proxies would go past a transport= of ours.
        shared = (self.quota, policy, key, _Home(self).origin)
        self._transport: httpx.AsyncBaseTransport = _AsyncDoor(self._transport, *shared)
        self._mounts = {
            pattern: inner if inner is None else _AsyncDoor(inner, *shared)
            for pattern, inner in self._mounts.items()
        }

    async def aclose(self) -> None:
        """Close transports and quota."""
        try:
            await super().aclose()
        finally:
            await self.quota.aclose()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        try:
            await super().__aexit__(exc_type, exc_value, traceback)
        finally:
            await self.quota.aclose()


class _Home:
    """The origin of a client's base_url, which the user may set anew."""

    def __init__(self, client: httpx.Client | httpx.AsyncClient) -> None:
        self._client = client
        self._known = (client.base_url, _origin(client.base_url))

    def origin(self) -> str | None:
        base_url = self._client.base_url
        if base_url is not self._known[0]:
            self._known = (base_url, _origin(base_url))
        return self._known[1]


def _origin(base_url: httpx.URL) -> str | None:
    return origin_of(base_url) if base_url.host else None


def _anywhere() -> None:
    """A transport has no base_url: it draws for requests to every origin."""
