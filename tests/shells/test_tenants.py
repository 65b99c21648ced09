"""Thousands of tenants: what is remembered of one is gone when it counts no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from redis import Redis

from quotaclient._lanes import LANES_KEPT, Lanes
from quotaclient._stores.memory import SWEEP_FROM, MemoryStore
from quotaclient._stores.replica import Replica
from quotaclient.testing import RedisServer
from tests.shells.colours import Colour, Recording, SomeQuota, Threads, eventually

BRIEF = "2/0.02s"  # counts no more when some hundred others have come
ROUTES = {"/search/*": "1/0.01s", "GET /*": "2/0.01s"}
LOOK_EVERY = 250


def for_each(
    colour: Colour, tenants: int, verb: Callable[[str], Any], look: Callable[[], int]
) -> int:
    """Call one of the library's verbs for each tenant; the most that was seen meanwhile."""

    async def wait_for(calls: Iterator[Any]) -> None:
        for call in calls:
            await call

    most = 0
    for first in range(0, tenants, LOOK_EVERY):
        calls = (verb(f"tenant-{i}") for i in range(first, first + LOOK_EVERY))
        if isinstance(colour, Threads):
            list(calls)
        else:
            colour.call(wait_for, calls)
        most = max(most, look())
    return most


def lanes_of(quota: SomeQuota) -> int:
    """How many lanes a quota remembers."""
    inner = quota.inner
    every: list[Lanes[Any]] = (
        [inner._lanes]
        if isinstance(quota.colour, Threads)
        else [here.lanes for here in inner._by_loop.values()]
    )
    return sum(len(lanes._lanes) for lanes in every)


def test_a_quota_forgets_its_tenants(colour: Colour, key: str) -> None:
    """Of 20,000 tenants those are remembered that count, or did when it was last looked."""
    quota = colour.quota(None, BRIEF, prefix=key)
    store = MemoryStore(key)

    def remembered() -> int:
        assert lanes_of(quota) <= LANES_KEPT
        return len(store._accounts)

    def acquire(tenant: str) -> Any:
        return quota.inner.acquire(key=tenant)

    assert for_each(colour, 20_000, acquire, remembered) <= 2 * SWEEP_FROM


def test_a_client_forgets_its_tenants(colour: Colour, key: str) -> None:
    """So it is with a client whose function names the tenant, and with the lanes of its routes."""
    client = colour.client(
        "http://api.test", limit=BRIEF, routes=ROUTES, prefix=key, transport=Recording(),
        key=lambda request: request.headers["x-tenant"],
    )  # fmt: skip
    store = MemoryStore(key)

    def remembered() -> int:
        assert lanes_of(client.quota) <= LANES_KEPT
        return len(store._accounts)

    def search(tenant: str) -> Any:
        return client.inner.get("/search/x", headers={"x-tenant": tenant})

    assert for_each(colour, 5_000, search, remembered) <= 2 * SWEEP_FROM


def test_redis_and_replica_forget_tenants(colour: Colour, redis_server: RedisServer) -> None:
    """With Redis the replica's own record is as brief, and Redis is empty in the end."""
    client = colour.client(
        "http://api.test", limit=BRIEF, routes=ROUTES, redis=redis_server.url, replicas=2,
        key=lambda request: request.headers["x-tenant"], transport=Recording(),
    )  # fmt: skip
    server = client.quota.inner._settings.connections.server

    def remembered() -> int:
        assert lanes_of(client.quota) <= LANES_KEPT
        return len(Replica.of(server, "quota").accounts)

    def search(tenant: str) -> Any:
        return client.inner.get("/search/x", headers={"x-tenant": tenant})

    assert 0 < for_each(colour, 4_000, search, remembered) <= 2 * SWEEP_FROM
    with Redis.from_url(redis_server.url) as connection:
        assert connection.dbsize() > 0
        assert eventually(lambda: connection.dbsize() == 0, within=4)


def test_who_still_counts_is_not_forgotten(colour: Colour, key: str, redis: str | None) -> None:
    """However many tenants come after it, one whose limit is used up stays refused."""
    quota = colour.quota(None, "1/min", redis=redis, prefix=key)
    quota.acquire(key="first")

    def acquire(tenant: str) -> Any:
        return quota.inner.try_acquire(key=tenant)

    for_each(colour, 3 * LANES_KEPT, acquire, lambda: lanes_of(quota))
    assert quota.try_acquire(key="first") is None
    assert quota.try_acquire(key="tenant-0") is None


def test_tenants_that_wait_are_not_forgotten(colour: Colour, key: str) -> None:
    """A lane that somebody waits in outlives any number of idle ones."""
    quota = colour.quota(None, "1/0.5s", prefix=key)
    quota.acquire(key="first")
    waiting = quota.start(key="first")

    def acquire(tenant: str) -> Any:
        return quota.inner.acquire(key=tenant)

    for_each(colour, 2 * LANES_KEPT, acquire, lambda: 0)
    assert waiting.result(5).waited > 0.3
