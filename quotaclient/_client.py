"""The public classes, over httpx. What they do is in `_clients.py` and what that stands on."""

from __future__ import annotations

from typing import Any, ClassVar

import httpx

from quotaclient._bodies import AsyncPeeked, Peeked
from quotaclient._clients import AsyncClient, OwnAsyncTransport, OwnTransport, SyncClient
from quotaclient._quota import BaseAsyncQuota, BaseQuota
from quotaclient._transport import AsyncTransport, SyncTransport
from quotaclient.errors import QuotaExceeded, StoreUnavailable


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


class QuotaTransport(
    OwnTransport[httpx.Request, httpx.Response, httpx.BaseTransport], httpx.BaseTransport
):
    """A transport for httpx that draws on a quota, for those who compose transports.

    `transport` is what it sends through (by default `httpx.HTTPTransport()`); it is closed with
    this one. The other parameters are those of `QuotaClient`; without `key`, each request draws
    on the quota of its origin.
    """

    quota: Quota
    _quota_class = Quota
    _byte_stream = httpx.ByteStream
    _peeked = _Peeked
    _tracing = httpx.HTTPTransport


class AsyncQuotaTransport(
    OwnAsyncTransport[httpx.Request, httpx.Response, httpx.AsyncBaseTransport],
    httpx.AsyncBaseTransport,
):
    """The twin of `QuotaTransport` for `httpx.AsyncClient`."""

    quota: AsyncQuota
    _quota_class = AsyncQuota
    _byte_stream = httpx.ByteStream
    _peeked = _AsyncPeeked
    _tracing = httpx.AsyncHTTPTransport


class QuotaClient(SyncClient[httpx.URL, httpx.Request], httpx.Client):
    """An `httpx.Client` whose requests go out when the whole fleet may send them.

    All its doors, `transport=`, `mounts=`, `proxy=` and proxies of the environment, draw on one
    quota. `.quota` is that `Quota`; each response tells of its permit in
    `response.extensions["quota"]`, a `Decision`. Each request may bring
    `extensions={"quota": {"cost": 5, "max_wait": 2.0, "priority": 1, "key": "tenant-7",
    "retry": 0}}`. The parameters are described at `__init__`.
    """

    quota: Quota
    _url = httpx.URL
    _quota_class = Quota
    _door = _Door


class AsyncQuotaClient(AsyncClient[httpx.URL, httpx.Request], httpx.AsyncClient):
    """The twin of `QuotaClient`, an `httpx.AsyncClient`, on asyncio and trio."""

    quota: AsyncQuota
    _url = httpx.URL
    _quota_class = AsyncQuota
    _door = _AsyncDoor
