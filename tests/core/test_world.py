"""Lanes, window and store together, in virtual time with chance: the promises as properties."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotaclient._core.guard import default_guard
from quotaclient._core.limits import Limit
from quotaclient._core.queue import Waiter
from tests.core.world import SECOND, Shell, World

LIMITS = st.sampled_from(
    [
        (Limit(1, 1),),
        (Limit(5, 2),),
        (Limit(20, 1),),
        (Limit(3, 1), Limit(7, 10, name="slow")),
        (Limit(10, 1), Limit(40, 5, name="tokens")),
    ]
)


@settings(max_examples=120, deadline=None)
@given(
    limits=LIMITS,
    seed=st.integers(0, 2**32),
    lanes=st.integers(1, 4),
    trip=st.sampled_from([0, 300, 20_000, 90_000]),
    late=st.sampled_from([0, 10_000, 60_000]),
)
def test_strict_and_nobody_is_forgotten(
    limits: tuple[Limit, ...], seed: int, lanes: int, trip: int, late: int
) -> None:
    """P1, P2: no window ever holds more than its limit, arrivals late by half the guard included.

    And every request departs, is refused, or was cancelled: nobody waits for ever.
    """
    world = World(limits, seed, trip, late)
    shells = [world.lane(f"lane-{number}") for number in range(lanes)]
    chance = world.random
    waiting: list[tuple[Shell, Waiter]] = []

    def come() -> None:
        costs = tuple(chance.randint(0, min(3, limit.count)) for limit in limits)
        shell = chance.choice(shells)
        max_wait = chance.choice([None, None, 0, SECOND // 3, 9 * SECOND])
        waiting.append((shell, shell.request(costs, max_wait, chance.choice([0, 0, 0, 1]))))

    def go() -> None:
        shell, waiter = chance.choice(waiting)
        shell.cancel(waiter)

    def hold() -> None:
        until = world.now + chance.randint(0, 3 * SECOND)
        world.account.raise_hold(until)
        chance.choice(shells).lane.hold(until)

    start = world.now
    for _ in range(60):
        world.at(start + chance.randint(0, 8 * SECOND), come)
    world.run(start + SECOND)
    for _ in range(15):
        world.at(start + chance.randint(SECOND, 8 * SECOND), go)
    world.at(start + chance.randint(SECOND, 8 * SECOND), hold)
    world.run(start + 600 * SECOND)

    for window, limit in enumerate(limits):
        jitter = default_guard(limits) // 2  # no guard of this world is smaller
        assert world.most_in_any_window(window, jitter) <= limit.count
    assert all(not waiter.waiting for _, waiter in waiting)
    assert all(shell.lane.idle for shell in shells), shells
    for record in world.account.windows.values():
        record.forget(world.now)
        assert record.total == 0


def saturated(world: World, lanes: int, seconds: int, tasks: int = 5) -> list[Shell]:
    """Lanes whose tasks send one request after the other."""
    shells = [world.lane(f"lane-{number}") for number in range(lanes)]
    for shell in shells:

        def again(shell: Shell = shell) -> None:
            shell.request(done=lambda: again(shell))

        for _ in range(tasks):
            world.at(world.now, again)
    world.run(world.now + seconds * SECOND)
    return shells


@pytest.mark.parametrize(
    ("limit", "lanes", "seconds"),
    [(Limit(200, 10), 6, 200), (Limit(100, 1), 4, 30), (Limit(3, 10), 12, 600)],
)
def test_nothing_is_wasted_and_all_get_their_part(limit: Limit, lanes: int, seconds: int) -> None:
    """P3, P4, P5: saturated lanes use the whole quota, in equal parts, with few calls."""
    world = World((limit,), seed=7)
    begin = world.now
    shells = saturated(world, lanes, seconds, tasks=max(2, limit.count // lanes))
    sent = len(world.departures)
    guard = shells[0].lane.guard / SECOND
    possible = limit.count * (seconds / (limit.period + guard))
    assert world.most_in_any_window(0) <= limit.count
    assert sent >= 0.97 * possible
    assert world.asks <= 1.1 * sent
    assert world.checks <= sent
    later = [one.shell.lane.name for one in world.departures if one.when > begin + limit.period_us]
    parts = [later.count(f"lane-{number}") for number in range(lanes)]
    assert min(parts) >= 0.8 * max(parts), parts


def test_order_of_arrival_within_a_lane() -> None:
    """P5: equal requests of one lane depart in the order in which they came."""
    world = World((Limit(5, 1),), seed=3, trip=5_000)
    shell = world.lane("lane")
    order: list[int] = []

    def come(number: int) -> None:
        shell.request(done=lambda: order.append(number))

    for number in range(40):
        world.at(world.now + number * 7_000, partial(come, number))
    world.run(world.now + 60 * SECOND)
    assert order == sorted(order)
    assert len(order) == 40


def test_a_dead_lane_takes_little_with_it() -> None:
    """P3: a crashed replica loses what it held for the next second and one permit."""
    world = World((Limit(20, 2),), seed=5)
    shells = saturated(world, 4, 10)
    shells[0].dead = True
    sent = len(world.departures)
    world.run(world.now + 20 * SECOND)
    possible = 20 * 20 / (2 + shells[0].lane.guard / SECOND)
    assert len(world.departures) - sent >= 0.9 * possible


def test_a_big_request_is_not_starved() -> None:
    """P5: among small ones that keep coming, a big one goes within some periods."""
    for priority in (0, 1):
        world = World((Limit(40, 4),), seed=9)
        shell = world.lane("lane")
        gone: list[int] = []
        for number in range(600):
            world.at(world.now + number * SECOND // 10, partial(shell.request, (1,)))
        begin = world.now + 10 * SECOND
        done = partial(_note, world, gone)
        world.at(begin, partial(shell.request, (20,), None, priority, done))
        world.run(begin + 50 * SECOND)
        assert gone
        assert gone[0] - begin <= 13 * SECOND


def _note(world: World, gone: list[int]) -> None:
    gone.append(world.now)
