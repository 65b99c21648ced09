"""What is spared on the way of a request, and what is not: events, copies, garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from quotaclient import QuotaExceeded
from quotaclient._departure import AsyncDeparture, Departure
from quotaclient.testing import Answer, Http2Upstream, ScriptedUpstream
from tests.shells.colours import Colour, Threads, results

DEPARTURE = [
    "http11.send_request_headers.started",
    "http11.send_request_headers.complete",
]


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    """An upstream that is content with everything."""
    with ScriptedUpstream(lambda received: Answer(body=b"content")) as upstream:
        yield upstream


@pytest.fixture
def heard(colour: Colour, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The events that our own trace is called for."""
    names: list[str] = []
    kind: Any = Departure if isinstance(colour, Threads) else AsyncDeparture
    trace = kind.trace

    def noted(self: Any, name: str, info: Any) -> Any:
        names.append(name)
        return trace(self, name, info)

    monkeypatch.setattr(kind, "trace", noted)
    return names


def httpx_own(colour: Colour, before: Callable[[httpx.Request], None]) -> Any:
    """A transport of httpx's own class that does something to each request first."""

    class Own(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            before(request)
            return super().handle_request(request)

    class AsyncOwn(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            before(request)
            return await super().handle_async_request(request)

    return Own(verify=False) if isinstance(colour, Threads) else AsyncOwn(verify=False)


def test_after_its_headers_a_request_on_http11_is_traced_no_more(
    colour: Colour, key: str, upstream: ScriptedUpstream, heard: list[str]
) -> None:
    """On a connection that is there, httpcore calls us at the departure, and for nothing else."""
    client = colour.client(upstream.url, limit="5/min", key=key)
    client.get("/")
    heard.clear()
    assert client.get("/").text == "content"
    assert heard == DEPARTURE
    assert client.quota.used() == 2


def test_every_departure_is_looked_at(
    colour: Colour, key: str, upstream: ScriptedUpstream, heard: list[str]
) -> None:
    """A request object that is sent twice is traced, and pays, each time."""
    client = colour.client(upstream.url, limit="5/min", key=key)
    request = client.inner.build_request("GET", "/")
    for _ in range(2):
        colour.call(client.inner.send, request)
    assert heard.count(DEPARTURE[0]) == 2
    assert client.quota.used() == 2


def test_on_http2_every_event_is_heard(colour: Colour, key: str, heard: list[str]) -> None:
    """There httpcore may let the same request depart again, so our trace stays to the end."""
    with Http2Upstream(lambda received: Answer()) as upstream:
        client = colour.client(upstream.url, limit="5/min", key=key, http1=False, http2=True)
        client.get("/")
        assert heard[-1] == "http2.response_closed.complete"
        client.close()


def test_a_trace_put_around_ours_gets_every_event(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """A transport inside that traces, ours included, hears what it would hear without us."""
    ours: list[str] = []
    plain: list[str] = []

    def around(request: httpx.Request, seen: list[str]) -> None:
        inner, mine = request.extensions.get("trace"), colour.trace(seen)

        def trace(name: str, info: Any) -> None:
            mine(name, info)
            if inner is not None:
                inner(name, info)

        async def trace_async(name: str, info: Any) -> None:
            await mine(name, info)
            if inner is not None:
                await inner(name, info)

        request.extensions["trace"] = trace if isinstance(colour, Threads) else trace_async

    inner = httpx_own(colour, lambda request: around(request, ours))
    client = colour.client(upstream.url, limit="5/min", key=key, transport=inner)
    client.get("/")
    bare = httpx_own(colour, lambda request: around(request, plain))
    colour.plain_client(transport=bare).get(upstream.url)
    assert ours == plain
    assert client.quota.used() == 1


def test_a_transport_of_httpx_own_class_that_sends_again_pays_for_it(key: str) -> None:
    """httpx's transport, taught to send the same request again, takes a permit each time."""

    class Resending(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            super().handle_request(request).close()
            return super().handle_request(request)

    with ScriptedUpstream(lambda received: Answer()) as upstream, Threads() as threads:
        client = threads.client(upstream.url, limit="5/min", key=key, transport=Resending())
        for _ in range(2):
            client.get("/")
        assert client.quota.used() == len(upstream.received) == 4


def test_nothing_of_a_request_waits_for_the_garbage_collector(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """The inner transport's copy of a request, and with it a body, is gone when that has left."""
    copies: list[weakref.ref[httpx.Request]] = []
    inner = httpx_own(colour, lambda request: copies.append(weakref.ref(request)))
    client = colour.client(upstream.url, limit="5/min", key=key, transport=inner)
    gc.collect()
    gc.disable()
    try:
        client.request("POST", "/", content=b"x" * 1000)
        assert [copy() for copy in copies] == [None]
    finally:
        gc.enable()


def test_base_urls_set_anew(colour: Colour, key: str, upstream: ScriptedUpstream) -> None:
    """A client draws for its base_url of the moment, and for nothing elsewhere."""
    with ScriptedUpstream(lambda received: Answer()) as other:
        client = colour.client(upstream.url, limit="1/min", key=key, max_wait=0)
        client.get(f"{other.url}/")
        assert client.quota.used() == 0
        client.inner.base_url = other.url
        client.get(f"{upstream.url}/")
        assert client.quota.used() == 0
        client.get("/")
        assert client.quota.used() == 1
        client.inner.base_url = upstream.url
        with pytest.raises(QuotaExceeded):
            client.get("/")


def test_requests_without_options_are_as_the_client_says(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """Options of one request are no other's: cost, wait and key are back at the next."""
    client = colour.client(upstream.url, limit="4/min", key=key, max_wait=0)
    client.get("/", extensions={"quota": {"cost": 2, "max_wait": None, "key": f"{key}-other"}})
    assert client.quota.used() == 0
    outcomes = results([client.start("/") for _ in range(5)])
    assert [type(outcome) for outcome in outcomes].count(QuotaExceeded) == 1
    assert client.quota.used() == 4
