"""One suite for every store: memory and Redis, for threads and for event loops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from inspect import isawaitable
from typing import Any

import pytest
import redis
import redis.asyncio

from quotaclient._core.ask import SECOND, Answer, Ask, GiveBack, Group
from quotaclient._core.limits import Limit
from quotaclient._stores import hashed
from quotaclient._stores.memory import SWEEP_FROM, MemoryStore, clock
from quotaclient._stores.redis import (
    COMMAND_TIMEOUT,
    AsyncRedisStore,
    Connections,
    RedisStore,
    StoreDown,
)
from quotaclient._stores.scripts import HOLD, RESERVE, RESET, account_key, parse_reply
from quotaclient.testing import Answer as HttpAnswer
from quotaclient.testing import RedisServer, ScriptedUpstream

LIMIT = Limit(5, 10)


class AsyncAsSync:
    """An async store with the face of a sync one, on a loop of its own."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.runner = asyncio.Runner()
        self.store = self.run(self.made(make))

    async def made(self, make: Callable[[], Any]) -> Any:
        return make()

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def reserve(self, ask: Ask) -> Answer:
        answer: Answer = self.run(self.store.reserve(ask))
        return answer

    def hold(self, key: str, wait: int) -> None:
        self.run(self.store.hold(key, wait))

    def reset(self, key: str, limits: tuple[Limit, ...]) -> None:
        self.run(self.store.reset(key, limits))

    def close(self) -> None:
        self.run(self.store.close())
        self.runner.close()


@pytest.fixture(params=["memory", "redis", "async redis"])
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each store in turn."""
    if request.param == "memory":
        store: Any = MemoryStore("suite")
    else:
        server: RedisServer = request.getfixturevalue("shared_redis")
        connections = Connections(server.url)
        if request.param == "redis":
            store = RedisStore(connections, "suite")
        else:
            store = AsyncAsSync(lambda: AsyncRedisStore(connections, "suite"))
    yield store
    assert not isawaitable(store.close())


def an_ask(key: str, requests: int = 1, **more: Any) -> Ask:
    """An ask for LIMIT that waits however long."""
    groups = (Group(requests, (1,)),) if requests else ()
    given: dict[str, Any] = {"limits": (LIMIT,), "lane": "a", "guard": 0, "groups": groups}
    return Ask(key, **given | more)


def test_permits_for_now_then_reservations(store: Any, key: str) -> None:
    """What is free goes now, the next request gets its exact time."""
    answer = store.reserve(an_ask(key, 5))
    assert [permit.at <= clock() for permit in answer.permits] == [True] * 5
    assert answer.left == (0,)
    (later,) = store.reserve(an_ask(key)).permits
    assert 9.9 * SECOND < later.at - clock() <= 10 * SECOND
    assert later.ticket.source == answer.source


def test_a_refusal_books_nothing(store: Any, key: str) -> None:
    """Who cannot wait is told when, and nothing is booked."""
    store.reserve(an_ask(key, 5))
    answer = store.reserve(an_ask(key, max_wait=SECOND))
    assert not answer.permits
    assert 9.9 * SECOND < answer.refusal.at - clock() <= 10 * SECOND
    assert answer.refusal.window == 0
    assert answer.left == (0,)


def test_give_back(store: Any, key: str) -> None:
    """What is given back is free for the very ask that brings it."""
    permits = store.reserve(an_ask(key, 5)).permits
    returns = tuple(GiveBack(permit.ticket, permit.costs) for permit in permits[:2])
    answer = store.reserve(an_ask(key, 2, returns=returns))
    assert all(permit.at <= clock() for permit in answer.permits)
    assert len(answer.permits) == 2


def test_a_hold_binds_all(store: Any, key: str) -> None:
    """Nobody under the key sends before the end of a hold; a shorter one does not shorten it."""
    store.hold(key, 20 * SECOND)
    store.hold(key, SECOND)
    answer = store.reserve(an_ask(key))
    assert 19.9 * SECOND < answer.permits[0].at - clock() <= 20 * SECOND
    assert 19.9 * SECOND < answer.hold - clock() <= 20 * SECOND


def test_reset(store: Any, key: str) -> None:
    """A reset forgets what was sent, and of which key nobody knows is no error."""
    first = store.reserve(an_ask(key, 5))
    store.reset(key, (LIMIT,))
    again = store.reserve(an_ask(key, 5))
    assert all(permit.at <= clock() for permit in again.permits)
    assert again.generations == first.generations
    store.reset(f"{key}-unknown", (LIMIT,))


def test_an_ask_without_requests_only_looks(store: Any, key: str) -> None:
    """Looking books nothing."""
    store.reserve(an_ask(key, 2))
    for _ in range(2):
        answer = store.reserve(an_ask(key, 0))
        assert (answer.left, answer.permits) == ((3,), ())


def test_costs_and_groups(store: Any, key: str) -> None:
    """Grants come back with the costs of the group that they are for."""
    limits = (Limit(4, 10), Limit(100, 10, name="tokens"))
    groups = (Group(2, (1, 10)), Group(1, (0, 70)), Group(2, (1, 20)))
    permits = store.reserve(an_ask(key, limits=limits, groups=groups)).permits
    assert [permit.costs for permit in permits] == [(1, 10), (1, 10), (0, 70), (1, 20)]
    assert [permit.at <= clock() for permit in permits] == [True, True, True, False]


def test_two_stores_share_windows(store: Any, key: str, shared_redis: RedisServer) -> None:
    """Another client of the same kind sees the same windows; another prefix sees others."""
    store.reserve(an_ask(key, 5))
    source = store.reserve(an_ask(key, 0)).source
    for prefix, left in (("suite", 0), ("other", 5)):
        if source == "local":
            other: Any = MemoryStore(prefix)
        else:
            other = RedisStore(Connections(shared_redis.url), prefix)
        assert other.reserve(an_ask(key, 0)).left == (left,)
        other.close()


def test_memory_forgets_what_says_nothing() -> None:
    """Thousands of keys do not stay when their windows are empty."""
    store = MemoryStore("sweep")
    short = (Limit(1, 0.001),)
    for number in range(5 * SWEEP_FROM):
        store.reserve(an_ask(f"{number}", limits=short))
    assert len(store._accounts) <= 2 * SWEEP_FROM


def test_scripts_survive_a_flush(shared_redis: RedisServer, key: str) -> None:
    """A server that forgot the scripts is sent their text, once."""
    store = RedisStore(Connections(shared_redis.url), "flush")
    with redis.Redis(port=shared_redis.port) as client:
        for _ in range(2):
            client.script_flush()
            assert len(store.reserve(an_ask(key)).permits) == 1
        before = client.info("commandstats")["cmdstat_eval"]["calls"]
        store.reserve(an_ask(key))
        assert client.info("commandstats")["cmdstat_eval"]["calls"] == before
    store.close()


def test_redis_names_no_tenant(shared_redis: RedisServer) -> None:
    """Users' keys are hashed; what is stored can be told by prefix, name, kind and period."""
    store = RedisStore(Connections(shared_redis.url), "names")
    store.reserve(an_ask(hashed("tenant@example.com")))
    with redis.Redis(port=shared_redis.port, decode_responses=True) as client:
        names = sorted(client.scan_iter("names:*"))
    start = account_key("names", hashed("tenant@example.com"))
    assert names == [f"{start}:lanes", f"{start}:requests:sliding:10000000"]
    store.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_frozen_redis_costs_one_deadline_and_runs_a_script_once(
    colour: str, redis_server: RedisServer, key: str
) -> None:
    """A call ends at its deadline, is not sent again, and does not spoil the next."""
    connections = Connections(redis_server.url)
    store: Any = (
        RedisStore(connections, "frozen")
        if colour == "sync"
        else AsyncAsSync(lambda: AsyncRedisStore(connections, "frozen"))
    )
    store.reserve(an_ask(key))
    redis_server.freeze()
    since = time.monotonic()
    with pytest.raises(StoreDown):
        store.reserve(an_ask(key))
    assert COMMAND_TIMEOUT * 0.9 < time.monotonic() - since < COMMAND_TIMEOUT + 0.25
    redis_server.thaw()
    time.sleep(0.05)  # what was in its socket is run now
    assert store.reserve(an_ask(key)).left == (2,)
    with redis.Redis(port=redis_server.port) as client:
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 3
    store.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_who_queued_behind_a_failure_does_not_try_again(
    colour: str, redis_server: RedisServer, key: str
) -> None:
    """A dead Redis costs a hundred callers about one deadline, not one after the other."""
    connections = Connections(redis_server.url)
    redis_server.freeze()
    since = time.monotonic()
    if colour == "sync":
        store = RedisStore(connections, "queue")

        def call() -> None:
            with pytest.raises(StoreDown):
                store.reserve(an_ask(key))

        threads = [threading.Thread(target=call) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.close()
    else:

        async def calls() -> None:
            store = AsyncRedisStore(connections, "queue")
            asks = (store.reserve(an_ask(key)) for _ in range(100))
            answers = await asyncio.gather(*asks, return_exceptions=True)
            assert all(isinstance(answer, StoreDown) for answer in answers)
            await store.close()

        asyncio.run(calls())
    assert time.monotonic() - since < 2 * COMMAND_TIMEOUT + 0.5


def test_a_cancelled_call_does_not_poison_its_connection(
    shared_redis: RedisServer, key: str
) -> None:
    """After a call was cancelled in flight the next reads its own reply."""

    async def calls() -> None:
        store = AsyncRedisStore(Connections(shared_redis.url), "cancelled")
        await store.reserve(an_ask(key))
        for turns in range(12):
            task = asyncio.create_task(store.reserve(an_ask(f"{key}-other")))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            answer = await store.reserve(an_ask(key, 0))
            assert answer.left == (4,)
        await store.close()

    asyncio.run(calls())


def test_what_is_no_redis_is_down() -> None:
    """Whatever answers at that port: the caller sees one kind of error."""
    with ScriptedUpstream(lambda _: HttpAnswer(body=b"no")) as upstream:
        store = RedisStore(Connections(upstream.url.replace("http:", "redis:")), "http")
        with pytest.raises(StoreDown):
            store.reserve(an_ask("key"))
        store.close()


def test_a_key_of_another_kind_is_down(shared_redis: RedisServer, key: str) -> None:
    """Somebody else's key under our name is an outage, not a crash."""
    store = RedisStore(Connections(shared_redis.url), "wrong")
    with redis.Redis(port=shared_redis.port) as client:
        client.lpush(f"{account_key('wrong', key)}:requests:sliding:10000000", "theirs")
    with pytest.raises(StoreDown, match="WRONGTYPE"):
        store.reserve(an_ask(key))
    store.close()


def test_settings_come_from_urls_and_clients(shared_redis: RedisServer) -> None:
    """A URL or a client of either colour says where Redis is; the client itself is not used."""
    expected = Connections(f"redis://me:secret@127.0.0.1:{shared_redis.port}/3")
    assert expected.server == f"redis://127.0.0.1:{shared_redis.port}/3"
    assert (expected.kwargs["username"], expected.kwargs["password"]) == ("me", "secret")
    parameters: dict[str, Any] = {"host": "h", "port": 7, "db": 2, "password": "p"}
    for client in (redis.Redis(**parameters), redis.asyncio.Redis(**parameters)):
        connections = Connections(client)
        assert connections.server == "redis://h:7/2"
        assert connections.kwargs["password"] == "p"
    assert Connections("rediss://h").server == "rediss://h:6379/0"
    assert Connections(redis.Redis(ssl=True)).server == "rediss://localhost:6379/0"
    assert Connections("unix:///run/redis.sock").server == "unix:///run/redis.sock?db=0"
    for made in ("rediss://h", "unix:///run/redis.sock", "redis://h"):
        connections = Connections(made)
        assert connections.pool().max_connections == connections.async_pool().max_connections


@pytest.mark.parametrize(
    "wrong", ["localhost:6379", "http://h", 7, object(), "redis://u:geheim@h:port", ""]
)
def test_what_is_no_redis_setting(wrong: object) -> None:
    """What cannot be used is a ValueError with the remedy, and never shows a password."""
    with pytest.raises(ValueError, match="pass a URL such as") as caught:
        Connections(wrong)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        [],
        [1, 0, [1], [1], []],
        [1, 0, [1], [1], [], [], []],
        ["1", 0, [1], [1], [], []],
        [1, 0, [1, 2], [1], [], []],
        [1, 0, [1], [1], [1], []],
        [1, 0, [1], [1], [2, 5], []],
        [1, 0, [1], [1], [0, 5], []],
        [1, 0, [1], [1], [1, 5, 1, 6], []],
        [1, 0, [1], [1], [], [5]],
        [1, 0, [1], [1], [], [5, 7]],
        [1, 0, [1], [True], [], []],
    ],
    ids=str,
)
def test_an_answer_that_is_not_our_scripts(answer: Any) -> None:
    """Whatever a server answers, it is an answer of the script or an error that we expect."""
    with pytest.raises((TypeError, ValueError)):
        parse_reply(an_ask("key"), answer)


def test_scripts_are_loaded_once() -> None:
    """Each script is read when the stores are imported, and named by its digest."""
    assert {len(script.sha) for script in (RESERVE, HOLD, RESET)} == {40}
    assert "booking rule" in RESERVE.text


def test_redis_clock_is_what_counts(shared_redis: RedisServer, key: str) -> None:
    """Asks carry no time: Redis brings its own, and permits are on the caller's clock."""
    store = RedisStore(Connections(shared_redis.url), "clock")
    before = clock()
    answer = store.reserve(replace(an_ask(key), guard=100_000))
    (permit,) = answer.permits
    assert before <= answer.asked <= permit.at <= clock()
    assert permit.expires == answer.asked + 50_000
    assert abs(permit.ticket.at - time.time() * 1e6) < 5 * SECOND
    store.close()
