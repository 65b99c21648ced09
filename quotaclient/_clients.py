"""Clients and transports, made of a quota and an HTTP library that is named elsewhere.

`_client.py` puts these before the classes of httpx, `httpx2.py` before those of httpx2.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeVar, Unpack, cast

import tenacity

from quotaclient._core.options import OnOutage, checked_key_or_function
from quotaclient._core.profiles import Profile
from quotaclient._quota import BaseAsyncQuota, BaseQuota
from quotaclient._retry import checked_retry
from quotaclient._settings import Limits, Parameters, Routes, Settings
from quotaclient._stores.redis import RedisParameter
from quotaclient._transport import AsyncTransport, SyncTransport, origin_of

Retry = int | tenacity.BaseRetrying

Url = TypeVar("Url")
Request = TypeVar("Request")
Response = TypeVar("Response")
Inner = TypeVar("Inner")


class OwnTransport(SyncTransport[Request, Response], Generic[Request, Response, Inner]):
    """A transport with a quota of its own, to be put before the library's base of transports."""

    _quota_class: ClassVar[type[BaseQuota]]

    def __init__(
        self,
        transport: Inner | None = None,
        *,
        limit: Limits,
        routes: Routes = None,
        key: str | Callable[[Request], str] | None = None,
        retry: Retry = 2,
        profile: str | Profile | None = None,
        **parameters: Unpack[Parameters],
    ) -> None:
        policy = checked_retry(retry)
        checked_key_or_function(key)
        settings = Settings(
            key if isinstance(key, str) else None, limit, routes, profile, **parameters
        )
        self.quota: Any = self._quota_class._of(settings)
        inner = transport if transport is not None else self._tracing()
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


class OwnAsyncTransport(AsyncTransport[Request, Response], Generic[Request, Response, Inner]):
    """A transport with a quota of its own, to be put before the library's base of transports."""

    _quota_class: ClassVar[type[BaseAsyncQuota]]

    def __init__(
        self,
        transport: Inner | None = None,
        *,
        limit: Limits,
        routes: Routes = None,
        key: str | Callable[[Request], str] | None = None,
        retry: Retry = 2,
        profile: str | Profile | None = None,
        **parameters: Unpack[Parameters],
    ) -> None:
        policy = checked_retry(retry)
        checked_key_or_function(key)
        settings = Settings(
            key if isinstance(key, str) else None, limit, routes, profile, **parameters
        )
        self.quota: Any = self._quota_class._of(settings)
        inner = transport if transport is not None else self._tracing()
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


class SyncClient(Generic[Url, Request]):
    """A client of the sync colour, to be put before that of an HTTP library."""

    _url: ClassVar[type[Any]]  # the library's class of URLs
    _quota_class: ClassVar[type[BaseQuota]]
    _door: ClassVar[type[Any]]  # one of our transports, drawing on the client's quota

    def __init__(
        self,
        base_url: Url | str = "",
        *,
        limit: Limits,
        routes: Routes = None,
        key: str | Callable[[Request], str] | None = None,
        redis: RedisParameter = None,
        replicas: int | None = None,
        on_outage: OnOutage = "share",
        max_wait: float | None = 60.0,
        retry: Retry = 2,
        guard: float | None = None,
        profile: str | Profile | None = None,
        prefix: str = "quota",
        **client_arguments: Any,
    ) -> None:
        """Check the parameters, and let the HTTP library make its client of the others.

        Parameters
        ----------
        base_url
            As in the HTTP library. Requests to another origin do not draw on the quota.
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
            Resends after a throttled answer (2 = three sends), or a tenacity Retrying whose stop
            and wait are used.
        guard
            Seconds, from 0 to half the shortest period: how late a permitted request may arrive.
            The window is wider by it; 0 keeps the limit at admission only. None: 1 % of the
            shortest period, within 0.05-0.5 s and a tenth of it; a bucket that fills in less counts
            as that.
        profile
            How the upstream speaks of its quota: the name of one of our profiles, or a `Profile`.
            None: that of each request's host.
        prefix
            What all keys in Redis begin with.
        **client_arguments
            Those of the HTTP library's own client.

        Raises ValueError, showing the value and a correct example, for what cannot be.
        """
        policy = checked_retry(retry)
        checked_key_or_function(key)
        origin = _origin(self._url(base_url))
        self.quota: Any = self._quota_class._of(
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
        cast(Any, super()).__init__(base_url=base_url, **client_arguments)
        # The library builds its transports: mounts= and proxies would go past a transport= of ours.
        shared = (self.quota, policy, key, _Home(self).origin)
        self._transport: Any = self._door(self._transport, *shared)
        self._mounts: dict[Any, Any] = {
            pattern: inner if inner is None else self._door(inner, *shared)
            for pattern, inner in self._mounts.items()
        }

    def close(self) -> None:
        """Close transports and quota."""
        try:
            cast(Any, super()).close()
        finally:
            self.quota.close()

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        try:
            cast(Any, super()).__exit__(exc_type, exc_value, traceback)
        finally:
            self.quota.close()


class AsyncClient(Generic[Url, Request]):
    """A client of the async colour, to be put before that of an HTTP library."""

    _url: ClassVar[type[Any]]  # the library's class of URLs
    _quota_class: ClassVar[type[BaseAsyncQuota]]
    _door: ClassVar[type[Any]]  # one of our transports, drawing on the client's quota

    def __init__(
        self,
        base_url: Url | str = "",
        *,
        limit: Limits,
        routes: Routes = None,
        key: str | Callable[[Request], str] | None = None,
        redis: RedisParameter = None,
        replicas: int | None = None,
        on_outage: OnOutage = "share",
        max_wait: float | None = 60.0,
        retry: Retry = 2,
        guard: float | None = None,
        profile: str | Profile | None = None,
        prefix: str = "quota",
        **client_arguments: Any,
    ) -> None:
        """As `SyncClient` describes them."""
        policy = checked_retry(retry)
        checked_key_or_function(key)
        origin = _origin(self._url(base_url))
        self.quota: Any = self._quota_class._of(
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
        cast(Any, super()).__init__(base_url=base_url, **client_arguments)
        # The library builds its transports: mounts= and proxies would go past a transport= of ours.
        shared = (self.quota, policy, key, _Home(self).origin)
        self._transport: Any = self._door(self._transport, *shared)
        self._mounts: dict[Any, Any] = {
            pattern: inner if inner is None else self._door(inner, *shared)
            for pattern, inner in self._mounts.items()
        }

    async def aclose(self) -> None:
        """Close transports and quota."""
        try:
            await cast(Any, super()).aclose()
        finally:
            await self.quota.aclose()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        try:
            await cast(Any, super()).__aexit__(exc_type, exc_value, traceback)
        finally:
            await self.quota.aclose()


class _Home:
    """The origin of a client's base_url, which the user may set anew."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known = (client.base_url, _origin(client.base_url))

    def origin(self) -> str | None:
        base_url = self._client.base_url
        if base_url is not self._known[0]:
            self._known = (base_url, _origin(base_url))
        return self._known[1]


def _origin(base_url: Any) -> str | None:
    return origin_of(base_url) if base_url.host else None


def _anywhere() -> None:
    """A transport has no base_url: it draws for requests to every origin."""
