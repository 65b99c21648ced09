"""The permit is presented at the point of departure (HTTP/1.1, HTTP/2, failures, cancellation)."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import httpx
import pytest

from quotaclient import AsyncQuotaClient, Decision, Limit, Usage
from quotaclient.testing import Answer, Http2Upstream, RedisServer, ScriptedUpstream
from tests.shells.colours import (
    Colour,
    Recording,
    SomeClient,
    Threads,
    eventually,
    results,
    stopwatch,
)

GUARD = 0.1  # a permit lasts half of it
LATE = 0.15
CONNECTED = "connection.connect_tcp.complete"
CONNECTING = "connection.connect_tcp.started"


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    """An upstream that is content with everything."""
    with ScriptedUpstream(lambda received: Answer()) as upstream:
        yield upstream


@pytest.fixture
def closed_port() -> str:
    """The origin of a port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


# HTTP/2


def test_twenty_late_requests_on_one_http2_connection(
    any_colour: Colour, key: str, redis: str | None
) -> None:
    """Every permit of 20 has expired at its first departure: all are answered, on one connection,
    and the window holds 20."""
    with Http2Upstream(lambda received: Answer(body=received.path.encode())) as upstream:
        client = any_colour.client(
            upstream.url, limit="30/min", key=key, redis=redis, guard=GUARD, max_wait=5,
            http1=False, http2=True, retry=0,
        )  # fmt: skip
        seen: list[str] = []
        trace = any_colour.trace(seen, {"http2.send_connection_init.started": LATE})
        futures = [client.start(f"/{number}", extensions={"trace": trace}) for number in range(20)]
        responses = results(futures)
        assert [(r.status_code, r.text) for r in responses] == [
            (200, f"/{number}") for number in range(20)
        ]
        assert upstream.accepted == 1
        assert len(upstream.received) == 20
        # Each came to the point of departure twice: late, and with another permit.
        assert seen.count("http2.send_request_headers.started") >= 35
        assert eventually(lambda: client.quota.used() == 20)
        assert results([client.quota.start(10, max_wait=0)])[0].remaining == 0
        assert client.quota.try_acquire() is None
        client.close()


def test_late_http2_requests_fit_a_limit_that_is_just_enough(
    colour: Colour, key: str, redis: str | None
) -> None:
    """With 20 a minute, 20 that were all late pass: each exchange gave back before it took."""
    with Http2Upstream(lambda received: Answer()) as upstream:
        client = colour.client(
            upstream.url, limit="20/min", key=key, redis=redis, guard=GUARD, max_wait=2,
            http1=False, http2=True,
        )  # fmt: skip
        trace = colour.trace([], {"http2.send_connection_init.started": LATE})
        responses = results(
            [client.start("/", extensions={"trace": trace}) for number in range(20)]
        )
        assert [getattr(response, "status_code", response) for response in responses] == [200] * 20
        assert upstream.accepted == 1
        client.close()


def test_http2_requests_late_again_and_again(colour: Colour, key: str) -> None:
    """Late at every departure but the fourth, a request on HTTP/2 is sent on the one connection."""
    with Http2Upstream(lambda received: Answer()) as upstream:
        client = colour.client(
            upstream.url, limit="30/min", key=key, guard=GUARD, http1=False, http2=True
        )
        client.get("/")
        left = [0.06, 0.06, 0.06]

        def trace(name: str, info: Any) -> None:
            if name == "http2.send_request_headers.started" and left:
                time.sleep(left.pop())

        async def trace_async(name: str, info: Any) -> None:
            if name == "http2.send_request_headers.started" and left:
                await anyio.sleep(left.pop())

        mine = trace if isinstance(colour, Threads) else trace_async
        assert client.get("/", extensions={"trace": mine}).status_code == 200
        assert not left
        assert upstream.accepted == 1
        assert eventually(lambda: client.quota.used() == 2)
        client.close()


def test_punctual_http2_requests_are_not_disturbed(colour: Colour, key: str) -> None:
    """50 at once on HTTP/2 that are in time depart once each, on one connection."""
    with Http2Upstream(lambda received: Answer()) as upstream:
        client = colour.client(
            upstream.url, limit="60/min", key=key, guard=5, http1=False, http2=True
        )
        seen: list[str] = []
        trace = colour.trace(seen)
        responses = results([client.start("/", extensions={"trace": trace}) for _ in range(50)])
        assert [response.status_code for response in responses] == [200] * 50
        assert upstream.accepted == 1
        assert seen.count("http2.send_request_headers.started") == 50
        assert client.quota.used() == 50
        client.close()


# HTTP/1.1


def test_an_expired_permit_is_exchanged_in_the_callback(
    colour: Colour, key: str, either: str | None, upstream: ScriptedUpstream
) -> None:
    """Late by its connection, a request on HTTP/1.1 departs on that very connection, booked once,
    at its departure."""
    client = colour.client(upstream.url, limit="3/0.4s", key=key, redis=either, guard=GUARD)
    seen: list[str] = []
    trace = colour.trace(seen, {CONNECTED: 0.2})
    response = client.get("/", extensions={"trace": trace})
    assert response.status_code == 200
    assert upstream.accepted == 1
    assert seen.count("http11.send_request_headers.started") == 1
    assert client.quota.used() == 1
    time.sleep(0.4)  # 0.6 s after the first permit, 0.4 s after the departure
    assert client.quota.used() == 1
    client.close()


def test_many_late_requests_on_http11(
    colour: Colour, key: str, either: str | None, upstream: ScriptedUpstream
) -> None:
    """20 cold connections that are all late depart on those connections, and use 20 of 20."""
    client = colour.client(
        upstream.url, limit="20/min", key=key, redis=either, guard=GUARD, max_wait=3
    )
    trace = colour.trace([], {CONNECTED: LATE})
    responses = results([client.start("/", extensions={"trace": trace}) for _ in range(20)])
    assert [getattr(response, "status_code", response) for response in responses] == [200] * 20
    assert upstream.accepted <= 20
    assert client.quota.try_acquire() is None
    client.close()


def test_an_exchange_with_a_long_wait_starts_over_at_most_twice(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """Where others hold the next places, a late request gives its connection up, twice at most."""
    limit, guard = "1/0.15s", 0.03
    client = colour.client(upstream.url, limit=limit, key=key, guard=guard, max_wait=20)
    rival = colour.quota(key, limit, guard=guard, max_wait=20)
    seen: list[str] = []
    trace = colour.trace(seen, {CONNECTED: 0.06})
    request = client.start("/", extensions={"trace": trace})
    demand = [rival.start() for _ in range(20)]  # the next place is always one of theirs
    assert request.result(10).status_code == 200
    rival.close()
    results(demand)
    assert seen.count(CONNECTED) == upstream.accepted == 3
    assert len(upstream.received) == 1


def test_waited_counts_what_an_exchange_waited(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """Decision.waited includes the waits at the point of departure, started over or not."""
    limit, guard = "1/0.3s", 0.03
    client = colour.client(upstream.url, limit=limit, key=key, guard=guard, max_wait=20)
    client.quota.acquire()
    trace = colour.trace([], {CONNECTED: 0.06})
    with stopwatch() as took:
        response = client.get("/", extensions={"trace": trace})
    decision: Decision = response.extensions["quota"]
    assert 0.2 < decision.waited <= took.seconds


def test_a_slow_trace_does_not_make_a_late_departure(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """The user's own callback at the point of departure runs before the permit is looked at."""
    client = colour.client(upstream.url, limit="5/0.4s", key=key, guard=GUARD)
    trace = colour.trace([], {"http11.send_request_headers.started": 0.25})
    client.get("/", extensions={"trace": trace})
    time.sleep(0.35)  # 0.6 s after the first permit, 0.35 s after the departure
    assert client.quota.used() == 1


@pytest.mark.parametrize("guard", [0, 1e-6, 1e-5, 2e-5, 5e-5, 1e-4, 1e-3])
def test_a_tiny_guard_ends_in_an_answer(
    colour: Colour, key: str, upstream: ScriptedUpstream, guard: float
) -> None:
    """A guard shorter than this machine needs is no trap: the requests go out, nobody spins."""
    client = colour.client(upstream.url, limit="50/min", key=key, guard=guard, max_wait=3)
    with stopwatch() as took:
        responses = results([client.start("/") for _ in range(5)], timeout=8)
    assert [getattr(response, "status_code", response) for response in responses] == [200] * 5
    assert took.seconds < 2


def test_a_late_permit_is_exchanged_before_a_transport_without_trace_events(
    colour: Colour, key: str
) -> None:
    """Such a transport is called with a permit that holds, once."""
    inner = Recording()
    client = colour.client("http://a.test", limit="9/min", key=key, guard=GUARD, transport=inner)
    responses = results([client.start("/") for _ in range(9)])
    assert [response.status_code for response in responses] == [200] * 9
    assert client.quota.used() == 9


# Failures before the headers are written


def gives_back(client: SomeClient, fail: Callable[[], object], before: int = 0) -> None:
    """Assert that a failure leaves the window as it was."""
    fail()
    assert eventually(lambda: client.quota.used() == before, within=0.3), client.quota.used()


def test_a_connect_error_gives_the_permit_back(
    any_colour: Colour, key: str, redis: str | None, closed_port: str
) -> None:
    """Nothing listens: the error is httpx's, and nothing is used."""
    client = any_colour.client(closed_port, limit="3/min", key=key, redis=redis, max_wait=0.5)

    def fail() -> None:
        with pytest.raises(httpx.ConnectError) as caught:
            client.get("/")
        assert caught.value.request.url.path == "/"

    for _ in range(5):
        gives_back(client, fail)
    client.close()


def test_many_connect_errors_at_once(
    colour: Colour, key: str, redis: str | None, closed_port: str
) -> None:
    """30 that fail at once through a limit of 3 all fail soon: each passes its permit on."""
    client = colour.client(closed_port, limit="3/2s", key=key, redis=redis, max_wait=None)
    with stopwatch() as took:
        outcomes = results([client.start("/") for _ in range(30)])
    assert {type(outcome) for outcome in outcomes} == {httpx.ConnectError}
    assert took.seconds < 1.5
    assert eventually(lambda: client.quota.used() == 0)


def test_a_permit_that_expired_before_its_failure_makes_room_for_who_waits(
    colour: Colour, key: str, redis: str | None, closed_port: str
) -> None:
    """A request that fails late leaves its unit to the next in line at once, not a period later."""
    client = colour.client(closed_port, limit="1/1.5s", key=key, redis=redis, guard=GUARD)
    trace = colour.trace([], {CONNECTING: LATE})
    first = client.start("/", extensions={"trace": trace})
    time.sleep(0.02)
    with stopwatch() as took:
        outcomes = results([first, client.start("/")])
    assert {type(outcome) for outcome in outcomes} == {httpx.ConnectError}
    assert took.seconds < 1


def test_a_connection_that_is_reset_after_the_headers_counts(colour: Colour, key: str) -> None:
    """What may have arrived is spent, whatever became of the answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = colour.client(
            f"http://127.0.0.1:{listener.getsockname()[1]}", limit="3/min", key=key
        )
        waiting = client.start("/")
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.close()
        assert isinstance(waiting.exception(5), httpx.RemoteProtocolError)
        assert client.quota.used() == 1
        client.close()


def test_a_full_pool_gives_the_permit_back(colour: Colour, key: str, either: str | None) -> None:
    """PoolTimeout means that nothing was sent, so nothing is used."""
    with ScriptedUpstream(lambda received: Answer(delay=0.25)) as upstream:
        client = colour.client(
            upstream.url, limit="5/min", key=key, redis=either,
            limits=httpx.Limits(max_connections=1), timeout=httpx.Timeout(5, pool=0.05),
        )  # fmt: skip
        slow = client.start("/")
        assert eventually(lambda: len(upstream.received) == 1)

        def fail() -> None:
            with pytest.raises(httpx.PoolTimeout):
                client.get("/")

        gives_back(client, fail, before=1)
        assert slow.result(5).status_code == 200
        client.close()


def test_an_unsupported_scheme_gives_the_permit_back(colour: Colour, key: str) -> None:
    """What httpx refuses before any connection is not used."""
    client = colour.client(limit="5/min", key=key)

    def fail() -> None:
        with pytest.raises(httpx.UnsupportedProtocol):
            client.get("ftp://a.test/")

    gives_back(client, fail)


# Cancellation: only an event loop has it


@pytest.fixture
def crossed(backend: str, shared_redis: RedisServer) -> str | None:
    """A store for each loop; the other pairs are those of quotas without HTTP."""
    return shared_redis.url if backend == "asyncio" else None


class Cancelled:
    """An AsyncQuotaClient on a loop, and what is left after something was cancelled."""

    def __init__(self, url: str, key: str, redis: str | None, limit: str = "2/min") -> None:
        self.client = AsyncQuotaClient(
            url, limit=limit, key=key, redis=redis, max_wait=50,
            limits=httpx.Limits(max_connections=1), timeout=httpx.Timeout(5, pool=5),
        )  # fmt: skip

    async def __aenter__(self) -> Cancelled:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()

    async def used_in_the_end(self, expected: int) -> int:
        """What is used once everything that was given back has travelled."""
        for _ in range(100):
            usage: Usage = await self.client.quota.peek()
            (used,) = usage.used.values()
            if used == expected:
                break
            await anyio.sleep(0.01)
        return used


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_cancelled_while_waiting_for_a_permit(
    backend: str, key: str, crossed: str | None, upstream: ScriptedUpstream
) -> None:
    """A request that is cancelled in line leaves nothing behind, and the next goes on."""

    async def main() -> None:
        async with Cancelled(upstream.url, key, crossed, limit="2/0.2s") as it:
            await it.client.quota.acquire(2)
            with anyio.move_on_after(0.05) as scope:
                await it.client.get("/")
            assert scope.cancelled_caught
            assert not upstream.received
            assert (await it.client.get("/")).status_code == 200
            assert await it.used_in_the_end(1) == 1

    anyio.run(main, backend=backend)
    gc.collect()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_cancelled_while_connecting(
    backend: str, key: str, crossed: str | None, upstream: ScriptedUpstream
) -> None:
    """A request that is cancelled before its headers gives its permit back, or on to the next."""

    async def slow(name: str, info: Any) -> None:
        if name == CONNECTING:
            await anyio.sleep(5)

    async def main() -> None:
        async with Cancelled(upstream.url, key, crossed) as it:
            for _ in range(4):
                with anyio.move_on_after(0.05) as scope:
                    await it.client.get("/", extensions={"trace": slow})
                assert scope.cancelled_caught
            assert await it.used_in_the_end(0) == 0
            assert (await it.client.get("/")).status_code == 200
            assert await it.used_in_the_end(1) == 1

    anyio.run(main, backend=backend)
    gc.collect()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_cancelled_while_waiting_for_a_connection(
    backend: str, key: str, crossed: str | None
) -> None:
    """A request that is cancelled in the pool's queue has not departed: it has used nothing."""

    async def main(url: str) -> None:
        async with Cancelled(url, key, crossed, limit="9/min") as it:
            async with anyio.create_task_group() as group:
                group.start_soon(it.client.get, "/")
                await anyio.sleep(0.05)
                for _ in range(4):
                    with anyio.move_on_after(0.02) as scope:
                        await it.client.get("/")
                    assert scope.cancelled_caught
            assert await it.used_in_the_end(1) == 1

    with ScriptedUpstream(lambda received: Answer(delay=0.2)) as upstream:
        anyio.run(main, upstream.url, backend=backend)
    gc.collect()


@pytest.mark.parametrize("steps", range(8))
def test_cancelled_in_the_moment_of_the_permit(
    key: str, redis: str | None, upstream: ScriptedUpstream, steps: int
) -> None:
    """Cancelled at any step between its call and its headers, a request has used nothing."""
    departed: list[str] = []

    async def trace(name: str, info: Any) -> None:
        if name == "http11.send_request_headers.started":
            departed.append(name)

    async def main() -> None:
        async with Cancelled(upstream.url, key, redis, limit="9/min") as it:
            await it.client.get("/")  # a connection, and a lane that is warm
            task = asyncio.create_task(it.client.get("/", extensions={"trace": trace}))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            expected = 1 + len(departed)
            assert await it.used_in_the_end(expected) == expected

    asyncio.run(main())
    gc.collect()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_cancelled_while_exchanging(backend: str, key: str, upstream: ScriptedUpstream) -> None:
    """Cancelled in the wait at the point of departure, a request leaves only the others' units."""

    async def slow(name: str, info: Any) -> None:
        if name == CONNECTED:
            await anyio.sleep(0.15)

    async def main() -> None:
        async with AsyncQuotaClient(
            upstream.url, limit="1/0.4s", key=key, guard=0.2, max_wait=50
        ) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(_cancelled_after, 0.18, client, slow)
                await anyio.sleep(0.01)
                group.start_soon(client.quota.acquire)  # it is next in line for the unit
            usage = await client.quota.peek()
            assert usage.used == {Limit(1, 0.4): 1}

    anyio.run(main, backend=backend)


async def _cancelled_after(seconds: float, client: AsyncQuotaClient, trace: Any) -> None:
    with anyio.move_on_after(seconds):
        await client.get("/", extensions={"trace": trace})
