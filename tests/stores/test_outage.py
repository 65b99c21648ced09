"""Redis away and back, with a real one: the share, the prober, and what is told on return."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from inspect import isawaitable
from typing import Any

import pytest
import redis

from quotaclient import AsyncQuota, Quota
from quotaclient._core.ask import SECOND, Answer, Ask, GiveBack, Group
from quotaclient._core.health import LONGEST_BACKOFF
from quotaclient._core.limits import Limit
from quotaclient._stores.memory import clock
from quotaclient._stores.outage import AsyncOutageStore, OutageStore
from quotaclient._stores.redis import (
    COMMAND_TIMEOUT,
    AsyncRedisStore,
    Connections,
    RedisStore,
    StoreDown,
)
from quotaclient._stores.replica import Fallback, Replica
from quotaclient.testing import RedisServer

LIMIT = Limit(12, 2)
REPLICAS = 4  # so a share is 3


class Async:
    """An AsyncOutageStore with the face of a sync one, on a loop of its own."""

    def __init__(self, connections: Connections, fallback: Fallback) -> None:
        self.runner = asyncio.Runner()
        self.store = self.runner.run(self.made(connections, fallback))

    async def made(self, connections: Connections, fallback: Fallback) -> AsyncOutageStore:
        return AsyncOutageStore(AsyncRedisStore(connections, "outage"), fallback)

    def close(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any) -> Any:
            result = getattr(self.store, verb)(*args)
            return await result if isawaitable(result) else result

        return lambda *args: self.runner.run(call(*args))


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both colours in turn, each as a process that has just begun."""
    Replica._everywhere.clear()
    yield request.param
    Replica._everywhere.clear()


def a_store(
    colour: str, server: RedisServer, on_outage: Any = "share", replicas: int | None = REPLICAS
) -> Any:
    """Redis and the share, in a colour."""
    connections = Connections(server.url)
    fallback = Fallback(connections.server, "outage", replicas, on_outage)
    if colour == "async":
        return Async(connections, fallback)
    return OutageStore(RedisStore(connections, "outage"), fallback)


def an_ask(requests: int = 1, **more: Any) -> Ask:
    """An ask for LIMIT that does not wait."""
    groups = (Group(requests, (1,)),) if requests else ()
    given: dict[str, Any] = {
        "key": "key",
        "limits": (LIMIT,),
        "lane": "a",
        "guard": 0,
        "groups": groups,
    }
    return Ask(**given | {"max_wait": 0} | more)


def granted(answer: Answer) -> tuple[str, int]:
    """Who granted how many."""
    return answer.source, len(answer.permits)


def probe_until_back(store: Any) -> float:
    """Look until Redis answers again; how many seconds that took."""
    since = time.monotonic()
    while store.reserve(an_ask(0)).source != "store":
        assert time.monotonic() - since < 5
        time.sleep(0.02)
    return time.monotonic() - since


def test_a_dead_redis_leaves_the_share(colour: str, redis_server: RedisServer) -> None:
    """Without Redis a replica sends its share, of which its own last sends are a part."""
    store = a_store(colour, redis_server)
    assert granted(store.reserve(an_ask(2))) == ("store", 2)
    redis_server.kill()
    answer = store.reserve(an_ask(5))
    assert granted(answer) == ("share", 1)
    assert answer.refusal is not None
    assert 1.5 * SECOND < answer.refusal.at - clock() <= 2 * SECOND
    store.close()


def test_a_silent_redis_costs_one_deadline_once(colour: str, redis_server: RedisServer) -> None:
    """One request pays the command deadline; until the back-off is over nobody else does."""
    store = a_store(colour, redis_server)
    store.reserve(an_ask(0))
    redis_server.freeze()
    costs = []
    for _ in range(20):
        since = time.monotonic()
        assert store.reserve(an_ask(0)).source == "share"
        costs.append(time.monotonic() - since)
    assert COMMAND_TIMEOUT * 0.9 < costs[0] < COMMAND_TIMEOUT + 0.2
    assert max(costs[1:]) < 0.1
    store.close()


def test_reject_says_so_at_once(colour: str, redis_server: RedisServer) -> None:
    """With on_outage="reject", or no share to keep to, the answer is why; nothing is decided."""
    store = a_store(colour, redis_server, "reject")
    redis_server.kill()
    for _ in range(3):
        answer = store.reserve(an_ask())
        assert answer.outage is not None
        assert "is away" in answer.outage
        assert not answer.permits
    unknown = a_store(colour, redis_server, replicas=None)
    outage = unknown.reserve(an_ask()).outage
    assert outage is not None
    assert "pass replicas=" in outage
    store.close()
    unknown.close()


def test_what_was_sent_meanwhile_is_booked(
    colour: str, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """When an empty Redis is back the first call tells it all own sends that still count."""
    caplog.set_level(logging.WARNING, "quotaclient")
    store = a_store(colour, redis_server)
    limits = (Limit(12, 60),)
    assert granted(store.reserve(an_ask(1, limits=limits))) == ("store", 1)
    redis_server.kill()
    assert granted(store.reserve(an_ask(1, limits=limits))) == ("share", 1)
    redis_server.restart()
    time.sleep(0.55)
    answer = store.reserve(an_ask(1, limits=limits))
    assert granted(answer) == ("store", 1)
    assert answer.left == (9,)
    other = RedisStore(Connections(redis_server.url), "outage")
    assert other.reserve(an_ask(0, limits=limits)).left == (9,)
    edges = [record.message for record in caplog.records if record.name == "quotaclient"]
    assert len(edges) == 2
    assert "keeps to its share" in edges[0]
    assert "is back" in edges[1]
    other.close()
    store.close()


def test_a_redis_that_kept_its_record_is_told_the_rest(
    colour: str, redis_server: RedisServer
) -> None:
    """A frozen Redis that thaws knows what it granted, and is told what the share did."""
    store = a_store(colour, redis_server)
    limits = (Limit(12, 60),)
    store.reserve(an_ask(1, limits=limits))
    redis_server.freeze()
    assert granted(store.reserve(an_ask(1, limits=limits))) == ("share", 1)
    redis_server.thaw()
    time.sleep(0.6)
    answer = store.reserve(an_ask(0, limits=limits))
    assert answer.source == "store"
    # one by Redis, one by the share, and the one whose call was given up but was run on thawing
    assert answer.left == (9,)
    store.close()


def test_while_returning_both_must_agree(colour: str, redis_server: RedisServer) -> None:
    """For a period and the longest back-off after the return a replica keeps to its share too."""
    store = a_store(colour, redis_server)
    redis_server.kill()
    store.reserve(an_ask(0))
    redis_server.restart()
    probe_until_back(store)
    back = time.monotonic()
    assert granted(store.reserve(an_ask(8))) == ("store", 3)
    refused = store.reserve(an_ask(1))
    assert not refused.permits
    assert refused.refusal is not None
    (reserved,) = store.reserve(an_ask(1, max_wait=3 * SECOND)).permits
    assert reserved.ticket.source == "store"
    assert 1.5 * SECOND < reserved.at - clock() <= 2.1 * SECOND
    time.sleep(LIMIT.period + LONGEST_BACKOFF / SECOND - (time.monotonic() - back) + 0.05)
    assert granted(store.reserve(an_ask(11))) == ("store", 11)
    store.close()


def test_the_prober_pays_alone(redis_server: RedisServer, colour: str) -> None:
    """While one thread probes a silent Redis, the others have the share's answer at once."""
    store = a_store("sync", redis_server)
    redis_server.freeze()
    store.reserve(an_ask(0))
    time.sleep(0.55)
    costs: list[float] = []

    def look() -> None:
        since = time.monotonic()
        store.reserve(an_ask(0))
        costs.append(time.monotonic() - since)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(cost > COMMAND_TIMEOUT * 0.9 for cost in costs) == 1
    store.close()


def test_redis_is_asked_again_within_its_longest_backoff(
    colour: str, redis_server: RedisServer
) -> None:
    """After a long outage the fleet is back within 2 s."""
    store = a_store(colour, redis_server)
    redis_server.kill()
    for _ in range(12):
        store.reserve(an_ask(0))
        time.sleep(0.25)
    redis_server.restart()
    assert probe_until_back(store) <= LONGEST_BACKOFF / SECOND + 0.3
    store.close()


def test_holds_and_resets_without_redis(colour: str, redis_server: RedisServer) -> None:
    """A hold heard during an outage binds this replica, and a reset is done here at least."""
    store = a_store(colour, redis_server)
    redis_server.kill()
    assert granted(store.reserve(an_ask(3))) == ("share", 3)
    store.reset("key", (LIMIT,))
    assert granted(store.reserve(an_ask(3))) == ("share", 3)
    store.hold("key", 9 * SECOND)
    answer = store.reserve(an_ask(1))
    assert answer.refusal is not None
    assert answer.refusal.window is None
    store.close()


@pytest.mark.parametrize("verb", ["hold", "reset"])
def test_an_outage_that_a_hold_or_a_reset_meets(
    verb: str, colour: str, redis_server: RedisServer
) -> None:
    """Whoever meets the outage first opens the circuit, and raises nothing."""
    store = a_store(colour, redis_server)
    redis_server.kill()
    store.hold("key", SECOND) if verb == "hold" else store.reset("key", (LIMIT,))
    since = time.monotonic()
    assert store.reserve(an_ask(0)).source == "share"
    assert time.monotonic() - since < 0.1
    store.close()


def test_holds_and_resets_with_redis(colour: str, redis_server: RedisServer) -> None:
    """Holds and resets reach the others through Redis, and a known hold outlives it."""
    store = a_store(colour, redis_server)
    other = RedisStore(Connections(redis_server.url), "outage")
    store.reserve(an_ask(3))
    store.reset("key", (LIMIT,))
    assert other.reserve(an_ask(0)).left == (12,)
    other.hold("key", 9 * SECOND)
    assert store.reserve(an_ask(0)).hold > clock() + 8 * SECOND
    redis_server.kill()
    refusal = store.reserve(an_ask(1)).refusal
    assert refusal is not None
    assert refusal.window is None
    store.close()
    other.close()


def test_permits_given_back_during_an_outage_free_the_share(
    colour: str, redis_server: RedisServer
) -> None:
    """A permit of either store that is not used counts for the share no more."""
    store = a_store(colour, redis_server)
    by_store = store.reserve(an_ask(2)).permits
    redis_server.kill()
    by_share = store.reserve(an_ask(1)).permits
    returns = tuple(GiveBack(permit.ticket, permit.costs) for permit in (*by_store, *by_share))
    assert granted(store.reserve(an_ask(3, returns=returns))) == ("share", 3)
    store.close()


class Interrupt(BaseException):
    """What kills a prober in mid-call."""


def test_a_killed_prober_makes_room(redis_server: RedisServer, colour: str) -> None:
    """When the prober is interrupted the next ask probes, and a late fault is not swallowed."""
    store = a_store("sync", redis_server)
    redis_server.kill()
    store.reserve(an_ask(0))
    time.sleep(0.55)

    class Killed:
        def reserve(self, ask: Ask) -> Answer:
            raise Interrupt

    fallback = store._fallback
    with pytest.raises(Interrupt):
        OutageStore(Killed(), fallback).reserve(an_ask(0))  # type: ignore[arg-type]
    redis_server.restart()
    assert store.reserve(an_ask(0)).source == "store"
    store.close()


def test_a_fault_while_returning_falls_back_to_the_share(redis_server: RedisServer) -> None:
    """A store that fails between look and booking leaves no trace of the plan."""
    Replica._everywhere.clear()
    store = a_store("sync", redis_server)
    redis_server.kill()
    store.reserve(an_ask(1))
    redis_server.restart()
    probe_until_back(store)

    class Failing:
        def reserve(self, ask: Ask) -> Answer:
            raise StoreDown("now")

    failing = OutageStore(Failing(), store._fallback)  # type: ignore[arg-type]
    assert granted(failing.reserve(an_ask(5))) == ("share", 2)
    store.close()
    Replica._everywhere.clear()


def test_what_a_replica_heard_and_forgot_meanwhile_is_told(
    colour: str, redis_server: RedisServer
) -> None:
    """Holds and resets of an outage reach Redis, and so the others, when it is back."""
    store = a_store(colour, redis_server)
    other = RedisStore(Connections(redis_server.url), "outage")
    limits = (Limit(12, 60),)
    store.reserve(an_ask(3, limits=limits))
    redis_server.freeze()
    store.reset("key", limits)
    store.hold("key", 9 * SECOND)
    redis_server.thaw()
    time.sleep(0.6)
    store.reserve(an_ask(0, limits=limits))
    seen = other.reserve(an_ask(0, limits=limits))
    assert seen.left == (12,)
    assert 7 * SECOND < seen.hold - clock() <= 9 * SECOND
    store.close()
    other.close()


@pytest.mark.parametrize("lost", [True, False])
def test_a_share_of_nothing_binds_too(lost: bool, colour: str, redis_server: RedisServer) -> None:
    """With less than a unit each, nobody sends until an empty Redis can have heard of all."""
    store = a_store(colour, redis_server, replicas=24)
    store.reserve(an_ask(2))
    redis_server.kill() if lost else redis_server.freeze()
    outage = store.reserve(an_ask()).outage
    assert outage is not None
    assert "one of 24 replicas may send 0" in outage
    redis_server.restart() if lost else redis_server.thaw()
    time.sleep(0.55)
    answer = store.reserve(an_ask(1))
    if not lost:
        assert granted(answer) == ("store", 1)
    else:
        assert answer.refusal is not None
        wait = LIMIT.period * SECOND + LONGEST_BACKOFF
        assert wait - 0.5 * SECOND < answer.refusal.at - clock() <= wait
    store.close()


@pytest.mark.parametrize("many", [1, 25])
def test_closing_is_no_outage(many: int, redis_server: RedisServer) -> None:
    """A client that closes while it gives back is not taken for a Redis that went away."""
    Replica._everywhere.clear()

    async def main() -> None:
        given: dict[str, Any] = {"redis": redis_server.url, "on_outage": "reject"}
        other = AsyncQuota("other", "10/s", **given)
        quota = AsyncQuota("key", "10/s", **given)
        tasks = [asyncio.create_task(quota.acquire()) for _ in range(10 + many)]
        await asyncio.sleep(0.3)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await quota.aclose()
        await asyncio.sleep(0.01)
        assert (await other.acquire()).source == "store"
        await other.aclose()

    asyncio.run(main())
    Replica._everywhere.clear()


def test_clients_with_other_windows_settle_for_themselves(redis_server: RedisServer) -> None:
    """Two clients, one key, different limits: what each sent alone is told, whoever asks first."""
    Replica._everywhere.clear()
    one, two = (a_store("sync", redis_server) for _ in range(2))
    short, long = (Limit(40, 30),), (Limit(400, 60),)
    for store, limits in ((one, short), (two, long)):
        store.reserve(an_ask(1, limits=limits))
    redis_server.kill()
    for store, limits in ((one, short), (two, long)):
        assert granted(store.reserve(an_ask(4, limits=limits))) == ("share", 4)
    redis_server.restart()
    probe_until_back(one)
    assert one.reserve(an_ask(0, limits=short)).used == (5,)
    assert two.reserve(an_ask(0, limits=long)).used == (5,)
    one.close()
    two.close()


def test_what_is_owed_is_told_once(redis_server: RedisServer) -> None:
    """Two clients of one process that return together do not book the same sends twice."""
    Replica._everywhere.clear()
    stores = [a_store("sync", redis_server) for _ in range(2)]
    limits = (Limit(40, 60),)
    stores[0].reserve(an_ask(0, limits=limits))
    redis_server.kill()
    assert granted(stores[0].reserve(an_ask(6, limits=limits))) == ("share", 6)
    redis_server.restart()
    time.sleep(0.55)
    threads = [
        threading.Thread(target=lambda store=store: store.reserve(an_ask(0, limits=limits)))
        for store in stores * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].reserve(an_ask(0, limits=limits)).used == (6,)
    for store in stores:
        store.close()
    Replica._everywhere.clear()


def test_a_missed_reset_is_told_once(colour: str, redis_server: RedisServer) -> None:
    """A reset of one outage does not wipe the fleet's record after the next."""
    store = a_store(colour, redis_server)
    limits = (Limit(12, 60),)
    store.reserve(an_ask(0, limits=limits))
    redis_server.freeze()
    store.hold("other", 1)  # meets the outage
    store.reset("key", limits)
    redis_server.thaw()
    time.sleep(0.6)
    assert granted(store.reserve(an_ask(2, limits=limits))) == ("store", 2)
    redis_server.freeze()
    store.reserve(an_ask(0, limits=limits))
    redis_server.thaw()
    time.sleep(0.6)
    assert store.reserve(an_ask(0, limits=limits)).used == (2,)
    store.close()


def test_a_broken_record_is_no_outage(
    colour: str, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A key that somebody else wrote costs its own quota the shared window, and no other."""
    caplog.set_level(logging.WARNING, "quotaclient")
    store = a_store(colour, redis_server)
    with redis.Redis(port=redis_server.port) as client:
        client.lpush("outage:{broken}:requests:sliding:2000000", "theirs")
    for _ in range(3):
        assert store.reserve(an_ask(key="broken")).source == "share"
        assert store.reserve(an_ask(1)).source == "store"
    assert ["WRONGTYPE" in record.message for record in caplog.records] == [True]
    store.hold("broken", 1)
    store.close()


def test_a_talk_may_be_collected_anywhere(colour: str, redis_server: RedisServer) -> None:
    """A question that nobody will answer leaves no lock behind, and makes room for a prober."""
    store = a_store("sync", redis_server)
    redis_server.kill()
    store.reserve(an_ask(0))
    time.sleep(0.55)
    talk = store._fallback.talk(an_ask(0))
    next(talk)
    with store._fallback.replica.lock:
        talk.close()
    redis_server.restart()
    assert store.reserve(an_ask(0)).source == "store"
    store.close()


def test_a_busy_host_is_no_silent_redis(shared_redis: RedisServer, key: str) -> None:
    """A loop that was kept busy past the deadline takes the reply that is there."""

    async def main() -> None:
        async with AsyncQuota(key, "10/s", redis=shared_redis.url, on_outage="reject") as quota:
            await quota.acquire()
            for _ in range(3):
                asking = asyncio.create_task(quota.acquire())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                time.sleep(COMMAND_TIMEOUT + 0.1)  # noqa: ASYNC251 - this is the fault
                assert (await asking).source == "store"

    asyncio.run(main())


def test_ten_times_as_many_waiters_close_without_an_outage(redis_server: RedisServer) -> None:
    """However many asks a closing client had before it, none is cut off."""
    Replica._everywhere.clear()

    async def main() -> None:
        given: dict[str, Any] = {"redis": redis_server.url, "on_outage": "reject"}
        other = AsyncQuota("other", "10/s", **given)
        quota = AsyncQuota("key", "100000/s", **given)
        tasks = [asyncio.create_task(quota.acquire()) for _ in range(2500)]
        await asyncio.sleep(0.002)
        await quota.aclose()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (await other.acquire()).source == "store"
        await other.aclose()

    asyncio.run(main())


def test_a_client_that_closes_beside_a_call_is_no_outage(redis_server: RedisServer) -> None:
    """Closing waits for the call of another thread instead of cutting it off."""
    Replica._everywhere.clear()
    given: dict[str, Any] = {"redis": redis_server.url, "on_outage": "reject"}
    other = Quota("other", "10/s", **given)
    for _ in range(20):
        quota = Quota("key", "1000/s", **given)

        def draw(quota: Quota = quota) -> None:
            with suppress(RuntimeError):
                while True:
                    quota.acquire()

        threads = [threading.Thread(target=draw) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        quota.close()
        for thread in threads:
            thread.join()
        assert other.try_acquire() is not None or other.peek().source == "store"
    other.close()
