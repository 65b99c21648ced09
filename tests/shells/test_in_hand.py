"""Permits in hand, and what is told of them later: no call to the store goes with most requests."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis as redis_sync

from quotaclient import Decision
from quotaclient.testing import RedisServer
from tests.shells.colours import Colour, Recording, Threads, eventually, made, results

MANY = "100000/min"  # a guard of 0.5 s: a permit can be used for 0.25 s
BUDGET = "100/min; 10000 tokens/min"
ESTIMATE = {"requests": 1, "tokens": 1500}


def script_runs(server: RedisServer) -> int:
    """How often a script ran in this server."""
    with redis_sync.Redis(port=server.port) as client:
        stats: Any = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


def test_most_requests_ask_nobody(any_colour: Colour, redis_server: RedisServer, key: str) -> None:
    """One after the other, as fast as they can: one call for many, and the count stays true."""
    quota = any_colour.quota(key, MANY, redis=redis_server.url)
    quota.acquire()
    before = script_runs(redis_server)
    left = [quota.acquire().remaining for _ in range(600)]
    assert script_runs(redis_server) - before <= 120
    assert left == list(range(99_998, 99_398, -1))


def test_what_is_spare_goes_back(any_colour: Colour, redis_server: RedisServer, key: str) -> None:
    """A lane that falls idle gives back what it did not use, though nobody comes along.

    Until then others see it as used; who has it in hand does not.
    """
    quota = any_colour.quota(key, MANY, redis=redis_server.url)
    other = any_colour.quota(key, MANY, redis=redis_server.url)
    for _ in range(100):
        quota.acquire()
    assert other.used() > 100
    assert quota.used() == 100
    assert eventually(lambda: other.used() == 100)
    assert quota.used() == 100


def test_closing_gives_spare_permits_back(
    any_colour: Colour, redis_server: RedisServer, key: str
) -> None:
    """A clean shutdown takes no units with it."""
    quota = any_colour.quota(key, MANY, redis=redis_server.url)
    for _ in range(100):
        quota.acquire()
    quota.close()
    assert any_colour.quota(key, MANY, redis=redis_server.url).used() == 100


def test_the_last_units_are_for_all(colour: Colour, shared_redis: RedisServer, key: str) -> None:
    """Asking ahead takes none that others wait for: two use a limit up to its last unit."""
    one = colour.quota(key, "300/min", redis=shared_redis.url)
    two = colour.quota(key, "300/min", redis=shared_redis.url)
    for _ in range(120):
        one.acquire()
        two.acquire()
    assert eventually(lambda: one.used() == 240)
    futures = [quota.start(max_wait=5) for quota in (one, two) for _ in range(30)]
    assert all(isinstance(outcome, Decision) for outcome in results(futures))
    assert one.try_acquire() is None


def test_no_thread_stays(shared_redis: RedisServer, key: str) -> None:
    """The thread that looks after idle lanes ends with what was due."""

    def is_there() -> bool:
        return any(thread.name == "quotaclient" for thread in threading.enumerate())

    with Threads() as colour:
        quota = colour.quota(key, MANY, redis=shared_redis.url)
        for _ in range(100):
            quota.acquire()
        assert is_there()
        assert eventually(lambda: not is_there())


def test_settling_less(any_colour: Colour, redis: str | None, key: str) -> None:
    """What was not used is there for others, half a second later at the latest."""
    quota = any_colour.quota(key, BUDGET, redis=redis)
    other = any_colour.quota(key, BUDGET, redis=redis)
    decision = quota.acquire(ESTIMATE)
    any_colour.call(decision.settle, {"tokens": 812})
    assert eventually(lambda: list(other.peek().used.values()) == [1, 812])


def test_settling_more(any_colour: Colour, redis: str | None, key: str) -> None:
    """What was used beyond the estimate counts too, also beyond the limit."""
    quota = any_colour.quota(key, BUDGET, redis=redis)
    other = any_colour.quota(key, BUDGET, redis=redis)
    decision = quota.acquire(ESTIMATE)
    any_colour.call(decision.settle, {"tokens": 12_000})
    assert eventually(lambda: list(other.peek().used.values()) == [1, 12_000])
    assert quota.try_acquire({"tokens": 1}) is None
    assert quota.try_acquire({"requests": 1}) is not None


def test_settling_what_was_not_estimated(any_colour: Colour, redis: str | None, key: str) -> None:
    """A window that the request did not draw on can be settled as well, and again, up and down."""
    quota = any_colour.quota(key, BUDGET, redis=redis)
    other = any_colour.quota(key, BUDGET, redis=redis)
    decision = quota.acquire({"requests": 1})

    def arrives(used: int) -> bool:
        any_colour.call(decision.settle, {"tokens": used})
        return eventually(lambda: list(other.peek().used.values()) == [1, used])

    assert all(map(arrives, [700, 750, 100, 0, 200]))


def test_settling_travels_with_the_next_call(
    any_colour: Colour, shared_redis: RedisServer, key: str
) -> None:
    """And is there when the next decision is taken."""
    quota = any_colour.quota(key, "10/min", redis=shared_redis.url)
    any_colour.call(quota.acquire(6).settle, 2)
    assert quota.acquire(8).remaining == 0


def test_settling_at_the_end(any_colour: Colour, redis: str | None, key: str) -> None:
    """Closing tells what was settled."""
    quota = any_colour.quota(key, "10/min", redis=redis)
    any_colour.call(quota.acquire(6).settle, 2)
    quota.close()
    assert any_colour.quota(key, "10/min", redis=redis).used() == 2


def test_settling_a_response(colour: Colour, either: str | None, key: str) -> None:
    """A response's decision settles its last send."""
    client = colour.client("http://api", transport=Recording(), limit=BUDGET, redis=either, key=key)
    response = client.get("/", extensions={"quota": {"cost": ESTIMATE}})
    colour.call(response.extensions["quota"].settle, {"tokens": 100})
    assert eventually(lambda: list(client.quota.peek().used.values()) == [1, 100])


@pytest.mark.parametrize("cost", [-1, 1.5, True, "5", None, float("nan"), {"words": 1}, 10**13])
def test_what_cannot_be_settled(colour: Colour, either: str | None, key: str, cost: object) -> None:
    """A cost that is none is a ValueError, and changes nothing."""
    quota = colour.quota(key, "10/min", redis=either)
    decision = quota.acquire(3)
    with pytest.raises(ValueError, match="cost="):
        decision.settle(cost)  # type: ignore[arg-type]
    assert quota.used() == 3


def test_settling_on_a_thread_without_the_loop(shared_redis: RedisServer, key: str) -> None:
    """Where the loop is not, settling is kept for the next call."""
    with made("asyncio") as colour:
        quota = colour.quota(key, "10/min", redis=shared_redis.url)
        quota.acquire(6).settle(2)
        assert quota.acquire(8).remaining == 0


def test_a_request_that_draws_on_nothing_does_not_wait_for_units(
    any_colour: Colour, redis: str | None, key: str
) -> None:
    """Cost 0 obeys holds only: with a request in line for the next minute it goes at once."""
    quota = any_colour.quota(key, "1/min", redis=redis)
    quota.acquire()
    waiting = quota.start(max_wait=None)
    assert eventually(lambda: quota.used() == 2)
    assert quota.try_acquire(0) is not None
    quota.close()
    assert isinstance(waiting.exception(5), RuntimeError)
