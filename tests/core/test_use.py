"""Saturated lanes in virtual time: nothing wasted, few calls, equal parts (P3, P4, P5)."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest

from quotaclient._core.limits import Limit
from tests.core.load import demand, longest_gap, saturated, settle_down, strict, use
from tests.core.world import SECOND, Shell, World

MS = SECOND // 1000
CLIENT, ROUTE = Limit(10, 1), Limit(10, 60, name="route")


@pytest.mark.parametrize(("trip", "late"), [(500, 0), (5 * MS, 10 * MS)])
@pytest.mark.parametrize(
    ("limit", "lanes", "tasks", "rounds", "asks"),
    [
        (Limit(200, 10), 6, 40, 30, 0.15),
        (Limit(100, 1), 6, 20, 40, 0.2),
        (Limit(500, 1), 6, 50, 20, 0.1),
        (Limit(100, 60), 12, 10, 30, 1.0),
        (Limit(3, 10), 12, 3, 60, 1.0),
    ],
    ids=str,
)
def test_the_whole_limit_is_used(
    limit: Limit, lanes: int, tasks: int, rounds: int, asks: float, trip: int, late: int
) -> None:
    """P3: at least 97 % is sent. P4: the higher the rates, the fewer the calls. P5: equal parts."""
    world = World((limit,), seed=5, trip=trip, late=late)
    shells = saturated(world, lanes, tasks)
    settle_down(world)
    result = use(world, shells, rounds)
    assert strict(world)
    assert result.used >= 0.97
    assert result.fairness >= 0.8
    assert result.asks <= asks + world.exchanges / len(result.sent)
    assert result.checks <= min(1, asks)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("limit", "lanes", "tasks"),
    [(Limit(200, 10), 6, 40), (Limit(100, 2), 4, 25), (Limit(100, 1), 6, 25)],
    ids=str,
)
def test_parts_are_equal_soon(limit: Limit, lanes: int, tasks: int, seed: int) -> None:
    """P5: what comes free in a burst is divided, not raced for: parts are equal in five periods."""
    world = World((limit,), seed=seed, late=3 * MS)
    shells = saturated(world, lanes, tasks)
    world.run(world.now + limit.period_us)
    assert use(world, shells, 5).fairness >= 0.8


@pytest.mark.parametrize("late", [0, 5 * MS])
def test_nobody_stampedes_after_a_hold(late: int) -> None:
    """P6: for a period a tenth of the limit goes in a tenth of the period; then all of it."""
    world = World((Limit(100, 1),), seed=3, late=late)
    saturated(world, 6, 40)
    world.run(world.now + 2 * SECOND)
    end = world.now + 3 * SECOND
    world.hold(end)
    world.run(end + SECOND)
    sent = [one.when - end for one in world.departures if one.when > world.now - 3 * SECOND]
    assert not [when for when in sent if when < 0]
    assert all(sum(at <= when < at + 100 * MS for when in sent) <= 10 for at in sent)
    assert len(sent) >= 60  # the guard widens each tenth by a half
    world.run(end + 4 * SECOND)
    assert strict(world)
    assert len([one for one in world.departures if one.when > end + SECOND]) >= 270


@pytest.mark.parametrize("trip", [500, 20 * MS])
def test_a_hundred_lanes(trip: int) -> None:
    """P3, P4, P5: a hundred lanes use it all, one ask a request, and nobody is forgotten."""
    world = World((Limit(200, 10),), seed=5, trip=trip)
    shells = saturated(world, 100, 5)
    settle_down(world)
    result = use(world, shells, 20)
    assert strict(world)
    assert result.used >= 0.97
    assert result.asks <= 1
    assert result.checks <= 1
    assert result.fairness >= 0.5  # of 40 each, by chance
    assert max(longest_gap(result.sent, shell) for shell in shells) <= 4 * 5


def test_a_thousand_lanes() -> None:
    """P3, P5: where a lane's turn comes every ten periods, each has it, and all is used."""
    world = World((Limit(100, 10),), seed=5)
    shells = saturated(world, 1000, 2)
    result = use(world, shells, 12)
    assert strict(world)
    assert result.used >= 0.97
    assert result.asks <= 2  # until all have a place in line
    assert result.checks <= 1
    assert result.fairness > 0


def test_a_fast_lane_hardly_ever_asks() -> None:
    """P4: a thousand requests a second, one by one, against a large limit: 0.02 calls each."""
    world = World((Limit(1_000_000, 60),), seed=1)
    shell = world.lane("lane")

    def again() -> None:
        shell.request(done=lambda: world.at(world.now + MS, again))

    again()
    world.run(world.now + 5 * SECOND)
    calls, sent = world.asks + world.checks, len(world.departures)
    world.run(world.now + 10 * SECOND)
    calls, sent = world.asks + world.checks - calls, len(world.departures) - sent
    assert sent >= 9_900
    assert calls <= 0.02 * sent


@pytest.mark.parametrize("late", [0, 20 * MS])
def test_a_far_store_is_no_end(late: int) -> None:
    """P3: 60 ms to the store and back, and a period of a second: requests keep flowing."""
    world = World((Limit(20, 1),), seed=1, late=late, fixed_trip=30 * MS)
    shells = saturated(world, 4, 10)
    world.run(world.now + 5 * SECOND)
    assert use(world, shells, 40).used >= 0.9
    assert strict(world)


def test_a_bad_moment_of_a_host_does_not_cost_quota_for_ever() -> None:
    """P3: wide guards of a time when requests left late are given up when they leave on time."""
    world = World((Limit(20, 1),), seed=1, late=200 * MS)
    shells = saturated(world, 4, 10)
    guard = shells[0].lane.guard
    world.run(world.now + 10 * SECOND)
    assert min(shell.lane.guard for shell in shells) >= 4 * guard
    world.late = 0
    world.run(world.now + 600 * SECOND)
    assert [shell.lane.guard for shell in shells] == [guard] * 4
    assert use(world, shells, 40).used >= 0.97
    assert strict(world)


@pytest.mark.parametrize(("trip", "late"), [(500, 0), (5 * MS, 10 * MS)])
def test_a_narrow_route_does_not_shut_the_client(trip: int, late: int) -> None:
    """P3: requests that wait for a route's 10/min leave the client's 10/s to the others."""
    world = World((CLIENT, ROUTE), seed=1, trip=trip, late=late)
    routed = [world.lane(f"client-{number}") for number in range(12)]
    others = [world.lane(f"client-{number}") for number in range(12)]
    for shell in routed:
        demand(shell, 3, lambda: (1, 1))
    for shell in others:
        demand(shell, 3, lambda: (1, 0))
    settle_down(world)
    result = use(world, [*others, *routed], 230)  # four periods of the route
    assert strict(world)
    assert result.used >= 0.97
    by_lane = [sum(one.shell is shell for one in result.sent) for shell in others]
    assert min(by_lane) >= 0.8 * max(by_lane)
    assert sum(one.costs[1] for one in result.sent) >= 0.95 * 4 * ROUTE.count


def arrivals(world: World, shell: Shell, costs: tuple[int, ...]) -> dict[int, list[int]]:
    """Requests that come faster than they may go; who left, in order, by priority."""
    left: dict[int, list[int]] = {0: [], 1: []}

    def come(number: int) -> None:
        priority = world.random.choice([0, 0, 1])
        cost = world.random.choice(costs)
        shell.request((cost,), priority=priority, done=partial(left[priority].append, number))

    for number in range(300):
        world.at(world.now + number * 70 * MS, partial(come, number))
    world.run(world.now + 400 * SECOND)
    return left


@pytest.mark.parametrize("late", [0, 10 * MS])
def test_equal_requests_go_in_order_of_arrival(late: int) -> None:
    """P5: within a priority nobody overtakes an equal one."""
    world = World((Limit(10, 1),), seed=4, trip=10 * MS, late=late, guard=100 * MS)
    left = arrivals(world, world.lane("lane"), (1,))
    assert len(left[0]) + len(left[1]) == 300
    assert all(numbers == sorted(numbers) for numbers in left.values())


@pytest.mark.parametrize("costs", [(1, 2, 3, 5), (1, 8)], ids=str)
def test_mixed_requests_are_overtaken_by_few(costs: tuple[int, ...]) -> None:
    """P5: with mixed costs and late departures a request is overtaken by some, never by all."""
    world = World((Limit(10, 1),), seed=4, trip=3 * MS, late=30 * MS)
    left = arrivals(world, world.lane("lane"), costs)
    assert len(left[0]) + len(left[1]) == 300
    for numbers in left.values():
        for place, number in enumerate(numbers):
            assert sum(other > number for other in numbers[:place]) <= 8


@pytest.mark.parametrize("cost", [5, 8, 10])
def test_a_big_request_among_many_small_ones(cost: int) -> None:
    """P5: up to a whole limit at once, against eleven lanes of small ones: within four periods."""
    world = World((Limit(10, 1),), seed=4, trip=1 * MS)
    shells = saturated(world, 11, 3)
    big = world.lane("big")
    begun: list[int] = []

    def again() -> None:
        begun.append(world.now)
        big.request((cost,), done=again)

    world.at(world.now + 3 * SECOND, again)
    world.run(world.now + 3 * SECOND)
    assert use(world, [*shells, big], 50).used >= 0.97
    assert len(begun) > 15
    assert all(after - begin <= 4 * SECOND for begin, after in pairwise(begun))
