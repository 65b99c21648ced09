"""Requests that are cancelled and replicas that end cost next to nothing (P3)."""

from __future__ import annotations

import pytest

from quotaclient._core.limits import Limit
from tests.core.load import hesitant, saturated, settle_down, strict, use
from tests.core.world import SECOND, World

MS = SECOND // 1000
LIMITS = [Limit(20, 2), Limit(200, 10), Limit(100, 1), Limit(100, 60), Limit(3, 10)]


@pytest.mark.parametrize(("trip", "late"), [(500, 0), (5 * MS, 20 * MS)])
@pytest.mark.parametrize(
    ("limit", "lanes", "tasks", "rounds"),
    [(Limit(200, 10), 6, 40, 20), (Limit(100, 1), 6, 20, 20), (Limit(3, 10), 12, 3, 60)],
    ids=str,
)
def test_a_third_gives_up(
    limit: Limit, lanes: int, tasks: int, rounds: int, trip: int, late: int
) -> None:
    """With three in ten cancelled at some time at least 95 % is still sent, in as few calls."""
    world = World((limit,), seed=3, trip=trip, late=late)
    shells = [world.lane(f"lane-{number}") for number in range(lanes)]
    gone = [hesitant(shell, tasks, 0.3, limit.period_us) for shell in shells]
    settle_down(world)
    result = use(world, shells, rounds)
    assert sum(map(len, gone)) >= 0.2 * world.requests
    assert strict(world)
    assert result.used >= 0.95
    assert result.asks <= 1


def test_a_hundred_thousand_cancelled_requests() -> None:
    """They leave no unit booked, no entry in the lane, and cost hardly a call."""
    world = World((Limit(100, 10),), seed=2)
    shell = world.lane("lane")

    def come_and_go() -> None:
        for _ in range(1_000):
            waits = (None, 9 * SECOND, 0, None, SECOND)
            waiters = [shell.request((1,), wait, place % 3) for place, wait in enumerate(waits)]
            for waiter in waiters:
                shell.cancel(waiter)

    for turn in range(20):
        world.at(world.now + turn * SECOND // 7, come_and_go)
    world.run(world.now + 5 * SECOND)
    assert world.requests == 100_000
    assert not world.departures
    assert world.asks + world.checks <= 100
    lane = shell.lane
    assert lane.idle
    assert not lane._patience._newcomers
    assert not lane._queue._deadlines
    assert not lane._queue._lines
    assert not lane._queue._kinds
    assert all(record.total == 0 for record in world.account.windows.values())
    for _ in range(100):
        shell.request()
    world.run(world.now + 100 * MS)
    assert len(world.departures) == 100


def test_ten_thousand_hand_one_permit_on() -> None:
    """Whose request is cancelled as it is handed a permit passes it on: one permit serves many."""
    world = World((Limit(1, 10),), seed=2)
    shell = world.lane("lane")
    shell.world.late = 1
    waiter = shell.request()
    world.run(world.now + SECOND)
    for _ in range(10_000):
        follower = shell.request()
        shell.cancel(waiter)
        waiter = follower
    world.run(world.now + 20 * SECOND)
    assert len(world.departures) == 2
    assert world.asks <= 3


@pytest.mark.parametrize("limit", LIMITS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_a_crash_takes_little_with_it(limit: Limit, seed: int) -> None:
    """A replica that dies takes what it held for the next second and one permit, once."""
    world = World((limit,), seed=seed)
    shells = saturated(world, 6, max(3, limit.count // 3))
    settle_down(world)
    world.run(world.now + world.random.randint(0, limit.period_us))
    dying = shells[0]
    soon = dying.now + SECOND
    held = sum(permit.at <= soon for permit in dying.lane._hand) + len(dying.lane._prefetch)
    dying.dead = True
    rounds = 6
    lost = (1 - use(world, shells, rounds).used) * limit.count * rounds
    assert lost <= held + 1.5
    assert strict(world)


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_closed_lane_leaves_its_places_to_others(limit: Limit) -> None:
    """A clean end gives back all that a lane held; the others, who ask nothing, miss one place."""
    world = World((limit,), seed=1)
    shells = saturated(world, 6, max(3, limit.count // 3))
    settle_down(world)
    shells[0].close()
    lost = (1 - use(world, shells[1:], 6).used) * limit.count * 6
    assert lost <= 1.5
    assert strict(world)
