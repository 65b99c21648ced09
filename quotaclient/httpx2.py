"""The same names as in `quotaclient`, over httpx2: for those whose client must be one of httpx2.

Windows are the same: clients of both libraries with the same key share them. Needs `httpx2`
(the extra of that name), and does not import httpx.
"""

from __future__ import annotations

from typing import Any, ClassVar

import httpx2

from quotaclient._bodies import AsyncPeeked, Peeked
from quotaclient._clients import AsyncClient, OwnAsyncTransport, OwnTransport, SyncClient
from quotaclient._core.feedback import Feedback
from quotaclient._core.limits import InvalidLimit, Limit, day, hour, minute, second
from quotaclient._core.profiles import Profile, Sign
from quotaclient._decision import Decision, Exceeded, Usage
from quotaclient._feedback import read_feedback
from quotaclient._quota import BaseAsyncQuota, BaseQuota
from quotaclient._transport import AsyncTransport, SyncTransport

__all__ = [
    "AsyncQuota",
    "AsyncQuotaClient",
    "AsyncQuotaTransport",
    "Decision",
    "Feedback",
    "InvalidLimit",
    "Limit",
    "Profile",
    "Quota",
    "QuotaClient",
    "QuotaError",
    "QuotaExceeded",
    "QuotaTransport",
    "Sign",
    "StoreUnavailable",
    "Usage",
    "day",
    "hour",
    "minute",
    "read_feedback",
    "second",
]


class QuotaError(httpx2.TransportError):
    """A request was not sent because of its quota. `.request` is it, when a client sent it."""


class QuotaExceeded(Exceeded, QuotaError):
    """No permit within `max_wait`: see `quotaclient.QuotaExceeded`."""


class StoreUnavailable(QuotaError):
    """Redis is away: `on_outage="reject"`, or the share of one replica cannot be told."""


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


class _Peeked(Peeked, httpx2.SyncByteStream):
    """As httpx2 wants it."""


class _AsyncPeeked(AsyncPeeked, httpx2.AsyncByteStream):
    """As httpx2 wants it."""


class _Door(SyncTransport[httpx2.Request, httpx2.Response], httpx2.BaseTransport):
    """One of a client's transports, drawing on the client's quota."""

    _byte_stream = httpx2.ByteStream
    _peeked = _Peeked
    _tracing = httpx2.HTTPTransport

    def __init__(self, inner: httpx2.BaseTransport, *shared: Any) -> None:
        self._set_up(inner, *shared)


class _AsyncDoor(AsyncTransport[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport):
    """One of a client's transports, drawing on the client's quota."""

    _byte_stream = httpx2.ByteStream
    _peeked = _AsyncPeeked
    _tracing = httpx2.AsyncHTTPTransport

    def __init__(self, inner: httpx2.AsyncBaseTransport, *shared: Any) -> None:
        self._set_up(inner, *shared)


class QuotaTransport(
    OwnTransport[httpx2.Request, httpx2.Response, httpx2.BaseTransport], httpx2.BaseTransport
):
    """A transport for httpx2 that draws on a quota, for those who compose transports.

    `transport` is what it sends through (by default `httpx2.HTTPTransport()`); it is closed with
    this one. The other parameters are those of `QuotaClient`; without `key`, each request draws
    on the quota of its origin.
    """

    quota: Quota
    _quota_class = Quota
    _byte_stream = httpx2.ByteStream
    _peeked = _Peeked
    _tracing = httpx2.HTTPTransport


class AsyncQuotaTransport(
    OwnAsyncTransport[httpx2.Request, httpx2.Response, httpx2.AsyncBaseTransport],
    httpx2.AsyncBaseTransport,
):
    """The twin of `QuotaTransport` for `httpx2.AsyncClient`."""

    quota: AsyncQuota
    _quota_class = AsyncQuota
    _byte_stream = httpx2.ByteStream
    _peeked = _AsyncPeeked
    _tracing = httpx2.AsyncHTTPTransport


class QuotaClient(SyncClient[httpx2.URL, httpx2.Request], httpx2.Client):
    """An `httpx2.Client` whose requests go out when the whole fleet may send them.

    All its doors, `transport=`, `mounts=`, `proxy=` and proxies of the environment, draw on one
    quota. `.quota` is that `Quota`; each response tells of its permit in
    `response.extensions["quota"]`, a `Decision`. Each request may bring
    `extensions={"quota": {"cost": 5, "max_wait": 2.0, "priority": 1, "key": "tenant-7",
    "retry": 0}}`. The parameters are described at `__init__`.
    """

    quota: Quota
    _url = httpx2.URL
    _quota_class = Quota
    _door = _Door


class AsyncQuotaClient(AsyncClient[httpx2.URL, httpx2.Request], httpx2.AsyncClient):
    """The twin of `QuotaClient`, an `httpx2.AsyncClient`, on asyncio and trio."""

    quota: AsyncQuota
    _url = httpx2.URL
    _quota_class = AsyncQuota
    _door = _AsyncDoor
