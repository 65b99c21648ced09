"""What a type checker makes of the public API. Checked by mypy (`make check`), never run.

Each call stands here as a user writes it. Where a call is wrong, an ignore with its code says so:
mypy --strict objects to an ignore that nothing needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, assert_type

import httpx
import redis
import redis.asyncio
import tenacity

import quotaclient
from quotaclient import (
    AsyncQuota,
    AsyncQuotaClient,
    AsyncQuotaTransport,
    Decision,
    InvalidLimit,
    Limit,
    Quota,
    QuotaClient,
    QuotaError,
    QuotaExceeded,
    QuotaTransport,
    StoreUnavailable,
    Usage,
    day,
    hour,
    minute,
    second,
)
from quotaclient.testing import (
    Answer,
    Http2Upstream,
    Received,
    RedisServer,
    Report,
    ScriptedUpstream,
    StrictUpstream,
    find_redis_server,
)

Source = Literal["store", "local", "share"]


def limits() -> None:
    """Made from numbers, units and text."""
    assert_type(100 / minute, Limit)
    assert_type(200 / (10 * second), Limit)
    assert_type(1000 / (hour * 0.5), Limit)
    assert_type(Limit(100, 60), Limit)
    assert_type(Limit(90_000, minute, name="tokens", kind="sliding"), Limit)
    assert_type(Limit.parse("10/s; 1000/h"), tuple[Limit, ...])
    limit = 10_000 / day
    assert_type(limit.count, int)
    assert_type(limit.period, float)
    assert_type(limit.name, str)
    assert_type(limit.kind, Literal["sliding", "fixed", "bucket"])
    assert_type(limit.route, str)
    assert_type(limit.zone, str | None)
    assert_type(limit.burst, int | None)
    assert_type(limit.pace(5), tuple[Limit, Limit])
    assert_type(Limit(10, day, kind="fixed", zone="America/Los_Angeles"), Limit)
    assert_type(Limit(2, 1, kind="bucket", burst=40), Limit)
    assert_type({limit: 1}[limit], int)

    limit.count = 5  # type: ignore[misc]
    Limit("100", 60)  # type: ignore[arg-type]
    Limit(100, 60, "tokens")  # type: ignore[call-arg]
    Limit(100, 60, kind="leaky")  # type: ignore[arg-type]
    1.5 / minute  # type: ignore[operator]


def tenant(request: httpx.Request) -> str:
    """A key for each request."""
    return request.headers["x-tenant"]


def client() -> None:
    """It is an `httpx.Client`, and takes what that takes."""
    QuotaClient(limit="100/min")
    QuotaClient(httpx.URL("https://api.example.com"), limit=100 / minute)
    QuotaClient(limit=[10 / second, 1000 / hour])
    QuotaClient(limit=Limit.parse("10/s; 1000/h"), key=tenant, redis="redis://localhost:6379/0")
    QuotaClient(limit="1/s", key="mine", redis=redis.Redis(), replicas=12, on_outage="reject")
    QuotaClient(limit="1/s", redis=redis.asyncio.Redis(), max_wait=None, guard=0, prefix="mine")
    QuotaClient(limit="1/s", routes={"GET /search/*": "30/min", "/export": 10 / minute})
    QuotaClient(limit="1/s", routes={"/export": [10 / second, 100 / hour]}, key=tenant)
    QuotaClient(limit="1/s", retry=0)
    QuotaClient(limit="1/s", retry=tenacity.Retrying(stop=tenacity.stop_after_delay(30)))
    QuotaClient(limit="1/s", timeout=5.0, headers={"authorization": "…"}, http2=True)

    QuotaClient("https://api.example.com")  # type: ignore[call-arg]
    QuotaClient("https://api.example.com", "100/min")  # type: ignore[call-arg]
    QuotaClient(limit=100)  # type: ignore[arg-type]
    QuotaClient(limit="1/s", on_outage="ignore")  # type: ignore[arg-type]
    QuotaClient(limit="1/s", routes={"/export": 10})  # type: ignore[dict-item]
    QuotaClient(limit="1/s", routes=["/export"])  # type: ignore[arg-type]
    QuotaClient(limit="1/s", replicas="12")  # type: ignore[arg-type]
    QuotaClient(limit="1/s", key=lambda request: len(request.headers))  # type: ignore[arg-type, return-value]

    with QuotaClient("https://api.example.com", limit="100/min") as client:
        assert_type(client, QuotaClient)
        plain: httpx.Client = client
        assert_type(client.quota, Quota)
        response = plain.get("/", extensions={"quota": {"cost": 5, "max_wait": 2.0}})
        assert_type(response, httpx.Response)
        decision: Decision = response.extensions["quota"]
        assert_type(decision.remaining, int)


async def async_client() -> None:
    """It is an `httpx.AsyncClient`."""
    retry = tenacity.AsyncRetrying(stop=tenacity.stop_after_attempt(2))
    async with AsyncQuotaClient("https://api.example.com", limit="1/s", retry=retry) as client:
        assert_type(client, AsyncQuotaClient)
        plain: httpx.AsyncClient = client
        assert_type(client.quota, AsyncQuota)
        assert_type(await plain.post("/", json={}), httpx.Response)


def transports() -> None:
    """They go wherever httpx takes a transport."""
    inner = httpx.HTTPTransport(retries=1)
    routes = {"GET /search/*": "30/min"}
    transport = QuotaTransport(inner, limit="100/min", routes=routes, key=tenant, max_wait=5.0)
    assert_type(transport.quota, Quota)
    httpx.Client(transport=transport, mounts={"https://": QuotaTransport(limit="1/s")})
    other = AsyncQuotaTransport(httpx.AsyncHTTPTransport(), limit=[10 / second], routes=routes)
    assert_type(other.quota, AsyncQuota)
    httpx.AsyncClient(transport=other)

    QuotaTransport(httpx.AsyncHTTPTransport(), limit="1/s")  # type: ignore[arg-type]
    httpx.Client(transport=other)  # type: ignore[arg-type]


def quota() -> None:
    """Without HTTP, in threads."""
    Quota(None, "5/15min", guard=0)
    Quota("mail", "20/min", routes={"/export": "1/s"})  # type: ignore[call-arg]
    with Quota("mail", "20/min; 100/h", redis="redis://localhost:6379/0", replicas=3) as quota:
        assert_type(quota, Quota)
        assert_type(quota.limits, tuple[Limit, ...])
        assert_type(quota.degraded, int)
        assert_type(quota.acquire(), Decision)
        assert_type(quota.acquire(5, key="tenant-7", max_wait=None, priority=1), Decision)
        assert_type(quota.acquire({"requests": 1, "tokens": 1500}, max_wait=0), Decision)
        assert_type(quota.try_acquire(), Decision | None)
        assert_type(quota.peek(key="tenant-7"), Usage)
        quota.reset(key="tenant-7")

        print(quota.try_acquire().remaining)  # type: ignore[union-attr]
        quota.acquire(1.5)  # type: ignore[arg-type]
        quota.acquire(max_wait="1")  # type: ignore[arg-type]
        quota.try_acquire(max_wait=1)  # type: ignore[call-arg]


async def async_quota() -> None:
    """Without HTTP, on an event loop."""
    async with AsyncQuota("mail", "20/min") as quota:
        assert_type(quota, AsyncQuota)
        assert_type(await quota.acquire(5, key="tenant-7", max_wait=0, priority=1), Decision)
        assert_type(await quota.try_acquire(key="tenant-7"), Decision | None)
        assert_type(await quota.peek(), Usage)
        await quota.reset()
    await quota.aclose()


def outcomes(decision: Decision, usage: Usage) -> None:
    """What is told of a permit, and of a quota."""
    assert_type(decision.remaining, int)
    assert_type(decision.waited, float)
    assert_type(decision.source, Source)
    assert_type(decision.attempts, int)
    assert_type(decision.hold, float | None)
    assert_type(usage.remaining, int)
    assert_type(usage.used, dict[Limit, int])
    assert_type(usage.hold, float | None)
    assert_type(usage.source, Source)

    decision.remaining = 5  # type: ignore[misc]


def errors(call: Callable[[], httpx.Response]) -> None:
    """Caught as our own, as httpx's, or as what is wrong with a parameter."""
    try:
        call()
    except QuotaExceeded as error:
        assert_type(error.retry_after, float)
        assert_type(error.limit, Limit | None)
        assert_type(error.source, str)
        assert_type(error.request, httpx.Request)
    except (StoreUnavailable, QuotaError) as error:
        ours: httpx.TransportError = error
        print(ours)
    except InvalidLimit as error:
        wrong: ValueError = error
        print(wrong)


def servers() -> None:
    """For the tests of users."""

    def answer(received: Received) -> Answer:
        return Answer(429, (("retry-after", "1"),), received.body, delay=0.1)

    with StrictUpstream(100, 2.0, delay=0.05) as strict, RedisServer() as server:
        assert_type(strict.url, str)
        assert_type(strict.report(), Report)
        assert_type(strict.report().by_replica(), dict[str, Report])
        assert_type(server.url, str)
        server.kill()
        server.start()
    with ScriptedUpstream(answer) as scripted, Http2Upstream(answer) as http2:
        assert_type(scripted.received, tuple[Received, ...])
        assert_type(http2.url, str)
    if (executable := find_redis_server()) is not None:
        RedisServer(executable, options=["--maxmemory", "1mb"])

    ScriptedUpstream(lambda _: 429)  # type: ignore[arg-type, return-value]


def names() -> None:
    """Lazily resolved names have their types also through the package."""
    assert_type(quotaclient.Limit.parse("1/s"), tuple[Limit, ...])
    assert_type(quotaclient.QuotaClient(limit="1/s"), QuotaClient)
