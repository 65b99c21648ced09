"""Quota and AsyncQuota, and what every client takes from them: one table, each colour and store."""

from __future__ import annotations

import gc
import time
from functools import partial
from typing import Any

import httpx
import pytest

from quotaclient import Limit, QuotaExceeded
from tests.shells.colours import Colour, Recording, eventually, made, results, stopwatch

SLOW = "5/min"  # nothing comes back within a test
TICK = 0.03  # seconds between arrivals whose order is to be certain


def refused(call: Any, *args: Any, **kwargs: Any) -> QuotaExceeded:
    """The refusal, which must come at once."""
    with stopwatch() as took, pytest.raises(QuotaExceeded) as caught:
        call(*args, **kwargs)
    assert took.seconds < 0.5
    return caught.value


def test_the_limit_and_no_more_is_acquired(any_colour: Colour, redis: str | None, key: str) -> None:
    """Five of five pass at once, the sixth does not, and each is told what is left."""
    quota = any_colour.quota(key, SLOW, redis=redis)
    decisions = [quota.acquire() for _ in range(5)]
    assert [decision.remaining for decision in decisions] == [4, 3, 2, 1, 0]
    assert {decision.source for decision in decisions} == {"store" if redis else "local"}
    assert all(decision.waited < 0.5 and decision.hold is None for decision in decisions)
    assert quota.try_acquire() is None
    refused(quota.acquire, max_wait=0)


def test_try_acquire_spends_only_what_it_returns(
    any_colour: Colour, redis: str | None, key: str
) -> None:
    """try_acquire returns a Decision or None, and None has spent nothing."""
    quota = any_colour.quota(key, SLOW, redis=redis)
    assert quota.try_acquire(4) is not None
    assert quota.try_acquire(2) is None
    assert quota.used() == 4
    assert quota.try_acquire(1) is not None
    assert quota.try_acquire(0) is not None


def test_peek_spends_nothing(any_colour: Colour, redis: str | None, key: str) -> None:
    """peek tells what is used, left and held, and changes none of it."""
    quota = any_colour.quota(key, "5/min; 100 tokens/h", redis=redis)
    quota.acquire({"requests": 2, "tokens": 70})
    for _ in range(3):
        usage = quota.peek()
        assert usage.used == {Limit(5, 60): 2, Limit(100, 3600, name="tokens"): 70}
        assert usage.remaining == 3
        assert usage.hold is None
        assert usage.source == ("store" if redis else "local")


def test_reset_gives_the_whole_limit_back(any_colour: Colour, redis: str | None, key: str) -> None:
    """After reset the whole limit passes again, under that key only."""
    quota = any_colour.quota(key, SLOW, redis=redis)
    quota.acquire(5)
    quota.acquire(5, key=f"{key}-other")
    quota.reset()
    assert quota.used() == 0
    quota.acquire(5, max_wait=0)
    assert quota.try_acquire() is None
    assert quota.try_acquire(key=f"{key}-other") is None


def test_order_of_arrival(colour: Colour, either: str | None, key: str) -> None:
    """Who came first goes first."""
    quota = colour.quota(key, "1/0.07s", redis=either, guard=0)
    quota.acquire()
    done: list[int] = []
    futures = []

    def note(number: int, _: object) -> None:
        done.append(number)

    for number in range(5):
        future = quota.start()
        future.add_done_callback(partial(note, number))
        futures.append(future)
        time.sleep(TICK / 3)
    results(futures)
    assert done == [0, 1, 2, 3, 4]


def test_priority_goes_before_arrival(colour: Colour, either: str | None, key: str) -> None:
    """A higher priority passes those who wait already, and arrival counts within it."""
    quota = colour.quota(key, "1/0.08s", redis=either, guard=0)
    quota.acquire()
    done: list[str] = []
    futures = []

    def note(name: str, _: object) -> None:
        done.append(name)

    for name, priority in [("a", 0), ("b", 0), ("low", -5), ("x", 7), ("y", 7)]:
        future = quota.start(priority=priority)
        future.add_done_callback(partial(note, name))
        futures.append(future)
        time.sleep(TICK / 3)
    results(futures)
    assert done == ["x", "y", "a", "b", "low"]


def test_max_wait_zero_never_waits(colour: Colour, redis: str | None, key: str) -> None:
    """With max_wait=0 what is there is taken, and else the refusal is immediate."""
    quota = colour.quota(key, SLOW, redis=redis, max_wait=0)
    for _ in range(5):
        quota.acquire()
    error = refused(quota.acquire)
    assert error.limit == Limit(5, 60)
    assert error.source == ("store" if redis else "local")
    assert 58 < error.retry_after <= 61
    assert quota.used() == 5


def test_a_wait_that_cannot_fit_is_refused_at_once(
    any_colour: Colour, redis: str | None, key: str
) -> None:
    """A max_wait that is too short is told so at once: the limit, the time, and who said it."""
    quota = any_colour.quota(key, "1/2s; 100/h", redis=redis)
    quota.acquire()
    error = refused(quota.acquire, max_wait=1)
    assert error.limit == Limit(1, 2)
    assert error.source == ("store" if redis else "local")
    assert 1.5 < error.retry_after <= 2.2
    assert "max_wait" in str(error)
    assert quota.used() == 1  # nothing is booked for who was refused


def test_who_would_wait_behind_others_too_long_is_refused_at_once(
    colour: Colour, either: str | None, key: str
) -> None:
    """Those ahead in line count: 2 more periods do not fit into 1.5 of them."""
    quota = colour.quota(key, "1/0.1s", redis=either, guard=0)
    quota.acquire()
    ahead = [quota.start(), quota.start()]
    time.sleep(TICK)
    with stopwatch() as took, pytest.raises(QuotaExceeded) as caught:
        quota.acquire(max_wait=0.15)
    assert took.seconds < 0.1
    assert caught.value.retry_after > 0.15
    results(ahead)


def test_retry_after_keeps_its_word(colour: Colour, either: str | None, key: str) -> None:
    """Who comes back after retry_after seconds is served without a wait."""
    quota = colour.quota(key, "2/0.2s", redis=either)
    quota.acquire(2)
    error = refused(quota.acquire, 2, max_wait=0)
    time.sleep(error.retry_after + 0.002)
    quota.acquire(2, max_wait=0)


def test_a_refused_waiter_does_not_wait_out_its_max_wait(
    colour: Colour, redis: str | None, key: str
) -> None:
    """Whoever cannot be served is refused early, even when it learns so only while waiting."""
    quota = colour.quota(key, "1/30s", redis=redis)
    quota.acquire()
    error = refused(quota.acquire, max_wait=20)
    assert error.retry_after > 25


def test_unbounded_max_wait(colour: Colour, either: str | None, key: str) -> None:
    """max_wait=None waits as long as it takes, in the quota and in the call."""
    quota = colour.quota(key, "1/0.1s", redis=either, max_wait=None)
    quota.acquire()
    with stopwatch() as took:
        assert quota.acquire().waited >= 0.05
        quota.acquire(max_wait=None)
    assert 0.15 < took.seconds < 0.6


def test_waited_is_what_was_waited(colour: Colour, either: str | None, key: str) -> None:
    """Decision.waited is the time between the call and the permit."""
    quota = colour.quota(key, "1/0.2s", redis=either, guard=0)
    quota.acquire()
    with stopwatch() as took:
        decision = quota.acquire()
    assert 0.1 < decision.waited <= took.seconds + 0.001
    assert took.seconds - decision.waited < 0.1


def test_costs(colour: Colour, redis: str | None, key: str) -> None:
    """A number draws on every window, a mapping on those it names, nothing on the others."""
    quota = colour.quota(key, "10/min; 100 tokens/min", redis=redis)
    quota.acquire(3)
    quota.acquire({"tokens": 50})
    quota.acquire({"requests": 2})
    quota.acquire({})
    quota.acquire(0)
    assert list(quota.peek().used.values()) == [5, 53]


def test_a_zero_cost_passes_a_full_window(colour: Colour, redis: str | None, key: str) -> None:
    """Cost 0 draws on nothing, so a full window does not stop it."""
    quota = colour.quota(key, SLOW, redis=redis)
    quota.acquire(5)
    quota.acquire(0, max_wait=0)


def test_a_cost_above_the_limit_is_an_error(colour: Colour, redis: str | None, key: str) -> None:
    """What can never be met is a ValueError that names cost and limit, and spends nothing."""
    quota = colour.quota(key, "10/min; 100 tokens/min", redis=redis)
    for cost, shown in [
        (11, "11"),
        ({"tokens": 101}, "101"),
        ({"requests": 1, "tokens": 500}, "500"),
    ]:
        with pytest.raises(ValueError, match=shown):
            quota.acquire(cost)
        with pytest.raises(ValueError, match=shown):
            quota.try_acquire(cost)
    assert list(quota.peek().used.values()) == [0, 0]


def test_a_large_cost_is_not_starved_by_small_ones(
    colour: Colour, either: str | None, key: str
) -> None:
    """A cost of the whole limit gets its turn while small ones keep coming."""
    quota = colour.quota(key, "4/0.1s", redis=either, guard=0)
    quota.acquire(4)
    big = quota.start(4)
    time.sleep(TICK)
    small = [quota.start() for _ in range(6)]
    with stopwatch() as took:
        big.result(5)
    assert took.seconds < 0.3
    results(small)


def test_the_same_key_is_the_same_window(
    colour: Colour, other: Colour, redis: str | None, key: str
) -> None:
    """Two quotas with one key share its window, whatever their colours."""
    one, two = colour.quota(key, SLOW, redis=redis), other.quota(key, SLOW, redis=redis)
    one.acquire(3)
    two.acquire(2)
    assert one.try_acquire() is None
    assert two.try_acquire() is None
    two.reset()
    assert one.try_acquire(5) is not None


def test_a_closed_quota_leaves_its_window(colour: Colour, redis: str | None, key: str) -> None:
    """Closing a quota and making it anew does not give the limit twice."""
    first = colour.quota(key, SLOW, redis=redis)
    first.acquire(5)
    first.close()
    assert colour.quota(key, SLOW, redis=redis).try_acquire() is None


def test_different_keys_and_prefixes_share_nothing(
    colour: Colour, redis: str | None, key: str
) -> None:
    """Another key, or another prefix, is another window."""
    colour.quota(key, SLOW, redis=redis).acquire(5)
    colour.quota(f"{key}-b", SLOW, redis=redis).acquire(5, max_wait=0)
    colour.quota(key, SLOW, redis=redis, prefix="elsewhere").acquire(5, max_wait=0)


def test_a_key_per_call(colour: Colour, redis: str | None, key: str) -> None:
    """The key of a call goes before the quota's; without either there is nothing to draw on."""
    quota = colour.quota(None, SLOW, redis=redis)
    quota.acquire(5, key=f"{key}-1")
    assert quota.try_acquire(key=f"{key}-1") is None
    assert quota.try_acquire(key=f"{key}-2") is not None
    assert quota.used(key=f"{key}-1") == 5
    for verb in (quota.acquire, quota.try_acquire, quota.peek, quota.reset):
        with pytest.raises(ValueError, match="tenant-7"):
            verb()


def test_a_closed_quota_says_so(any_colour: Colour, redis: str | None, key: str) -> None:
    """Every verb of a closed quota raises RuntimeError, and closing twice is fine."""
    quota = any_colour.quota(key, SLOW, redis=redis)
    quota.acquire()
    quota.close()
    quota.close()
    for verb in (quota.acquire, quota.try_acquire, quota.peek, quota.reset):
        with pytest.raises(RuntimeError, match="closed"):
            verb()


def test_closing_while_others_wait_leaves_nobody_hanging(
    colour: Colour, redis: str | None, key: str
) -> None:
    """Who waits when the quota is closed is served or told so: within its time, by our errors."""
    quota = colour.quota(key, "1/0.15s", redis=redis)
    quota.acquire()
    waiting = [quota.start(max_wait=1) for _ in range(3)]
    time.sleep(TICK)
    quota.close()
    for outcome in results(waiting, timeout=4):
        assert not isinstance(outcome, BaseException) or isinstance(
            outcome, RuntimeError | QuotaExceeded
        )
    gc.collect()  # a connection that was opened after the close would be reported here


def test_closing_gives_reservations_back(
    colour: Colour, other: Colour, either: str | None, key: str
) -> None:
    """What a closed quota had reserved for its waiters is free for others at once."""
    watching = other.quota(key, "1/0.5s", redis=either)

    def next_place() -> float:
        with pytest.raises(QuotaExceeded) as caught:
            watching.acquire(max_wait=0)
        return caught.value.retry_after

    quota = colour.quota(key, "1/0.5s", redis=either)
    quota.acquire()
    waiting = quota.start(max_wait=0.8)
    assert eventually(lambda: next_place() > 0.75, within=0.2)
    quota.close()
    assert eventually(lambda: next_place() < 0.56, within=0.2)
    results([waiting])


def test_peek_counts_reservations(colour: Colour, either: str | None, key: str) -> None:
    """Usage.used includes what is reserved: it may be more than the limit, which left cannot."""
    quota = colour.quota(key, "2/0.3s", redis=either)
    quota.acquire(2)
    waiting = quota.start(2)
    assert eventually(lambda: quota.used() == 4, within=0.25)
    assert quota.peek().remaining == 0
    results([waiting])


def test_clients_with_the_same_key_share_and_others_do_not(
    colour: Colour, other: Colour, redis: str | None, key: str
) -> None:
    """Clients share a window by their key, be they of either colour, and by nothing else."""
    parameters: dict[str, Any] = {"limit": SLOW, "redis": redis, "max_wait": 0}
    one = colour.client("http://one.test", key=key, transport=Recording(), **parameters)
    two = other.client("http://two.test", key=key, transport=Recording(), **parameters)
    far = other.client("http://one.test", key=f"{key}-b", transport=Recording(), **parameters)
    for _ in range(5):
        one.get("/")
    with pytest.raises(QuotaExceeded):
        two.get("/")
    far.get("/")


def test_the_default_key_is_the_origin(colour: Colour, redis: str | None, key: str) -> None:
    """Without a key, base_url's origin is it; without base_url each request's own origin is."""
    host = f"http://{key}.test"
    parameters: dict[str, Any] = {"limit": SLOW, "redis": redis, "max_wait": 0}
    based = colour.client(f"{host}/v1/", transport=Recording(), **parameters)
    for _ in range(5):
        based.get("items")
    free = colour.client(transport=Recording(), **parameters)
    with pytest.raises(QuotaExceeded):
        free.get(f"{host}:80/other")
    free.get(f"{host}:81/")
    free.get(f"https://{key}.test/")
    assert based.quota.used() == 5
    assert free.quota.used(key=f"{host}:80") == 5


def test_a_function_names_the_key(colour: Colour, redis: str | None, key: str) -> None:
    """A key function is asked for each request, and the request's own key goes before it."""

    def tenant(request: httpx.Request) -> str:
        return f"{key}-{request.headers['x-tenant']}"

    client = colour.client(
        "http://api.test", limit="1/min", key=tenant, redis=redis, max_wait=0, transport=Recording()
    )
    client.get("/", headers={"x-tenant": "a"})
    client.get("/", headers={"x-tenant": "b"})
    with pytest.raises(QuotaExceeded):
        client.get("/", headers={"x-tenant": "a"})
    client.get("/", headers={"x-tenant": "a"}, extensions={"quota": {"key": f"{key}-c"}})
    assert client.quota.used(key=f"{key}-c") == 1


@pytest.mark.parametrize(
    "value", ["", 7, None, True, b"bytes", ["key"], "k" * 65_537], ids=lambda value: repr(value)[:9]
)
def test_what_a_key_function_returns_is_checked(colour: Colour, value: Any) -> None:
    """A key function that returns no name is a ValueError, and nothing is sent."""
    inner = Recording()
    client = colour.client(
        "http://api.test", limit=SLOW, key=lambda request: value, transport=inner
    )
    with pytest.raises(ValueError, match="tenant-7"):
        client.get("/")
    assert not inner.requests


def test_per_request_options(colour: Colour, redis: str | None, key: str) -> None:
    """Cost and max_wait of one request go before the client's."""
    client = colour.client(
        "http://api.test", limit="5/min", key=key, redis=redis, transport=Recording()
    )
    client.get("/", extensions={"quota": {"cost": 3, "priority": 1}})
    client.get("/", extensions={"quota": {"cost": {"requests": 2}}})
    refused(client.get, "/", extensions={"quota": {"max_wait": 0.1}})
    client.get("/", extensions={"quota": {"cost": 0, "max_wait": 0}})
    assert client.quota.used() == 5


@pytest.mark.parametrize(
    "options",
    [
        {"costs": 2},
        {"cost": 1, "maxwait": 1},
        {"cost": -1},
        {"cost": 6},
        {"cost": {"tokens": 1}},
        {"cost": 1.5},
        {"cost": True},
        {"cost": "1"},
        {"cost": None},
        {"cost": float("nan")},
        {"cost": {"requests": float("nan")}},
        {"max_wait": -1},
        {"max_wait": float("nan")},
        {"priority": 0.5},
        {"priority": True},
        {"priority": "1"},
        {"priority": None},
        {"priority": float("nan")},
        {"key": ""},
        {"key": None},
        {"key": b"key"},
        {"key": "k" * 65_537},
        {"key": 7},
        {"retry": -1},
        {"retry": True},
        {"retry": None},
        {7: 7},
        5,
        None,
        "cost",
        [("cost", 1)],
    ],
    ids=lambda options: repr(options)[:40],
)
def test_wrong_per_request_options_send_nothing(colour: Colour, key: str, options: Any) -> None:
    """Unknown and wrong options are ValueErrors before anything is spent or sent."""
    inner = Recording()
    client = colour.client("http://api.test", limit=SLOW, key=key, transport=inner)
    with pytest.raises(ValueError, match=r"for example|split"):
        client.get("/", extensions={"quota": options})
    assert not inner.requests
    assert client.quota.used() == 0


def test_hundred_at_once(any_colour: Colour, redis: str | None, key: str) -> None:
    """Of 100 who ask at once for 60, 60 pass and 40 are refused, and 60 are used."""
    quota = any_colour.quota(key, "60/min", redis=redis, max_wait=0.5)
    with stopwatch() as took:
        outcomes = results([quota.start() for _ in range(100)])
    refusals = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert len(refusals) == 40
    assert len([outcome for outcome in outcomes if not isinstance(outcome, Exception)]) == 60
    assert took.seconds < 1.5
    assert quota.used() == 60


def test_all_waiters_are_served_in_the_time_that_the_limit_gives(
    colour: Colour, redis: str | None, key: str
) -> None:
    """40 through 10 per 0.1 s take three periods, guards included, and hardly more."""
    quota = colour.quota(key, "10/0.1s", redis=redis)
    with stopwatch() as took:
        outcomes = results([quota.start() for _ in range(40)])
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert 0.3 <= took.seconds < 0.8  # three times 0.1 s and the guard of 0.01 s


def test_a_quota_shows_itself(colour: Colour, redis: str | None, key: str) -> None:
    """repr names key, limits and store."""
    shown = repr(colour.quota(key, "5/min; 100 tokens/h", redis=redis).inner)
    assert key in shown
    assert "5/min; 100 tokens/h" in shown
    assert ("redis://127.0.0.1" in shown) is (redis is not None)


def test_with_closes_and_acquires_nothing(redis: str | None, key: str) -> None:
    """`with Quota(...)` spends nothing, returns the quota, and closes it."""
    with made("sync") as colour:
        quota = colour.quota(key, SLOW, redis=redis)
        with quota.inner as same:
            assert same is quota.inner
            assert quota.used() == 0
        with pytest.raises(RuntimeError):
            quota.acquire()
    with made("asyncio") as colour:
        entered = colour.quota(key, SLOW, redis=redis)

        async def use() -> None:
            async with entered.inner as same:
                assert same is entered.inner
                assert (await same.peek()).remaining == 5

        colour.call(use)
        with pytest.raises(RuntimeError):
            entered.acquire()
