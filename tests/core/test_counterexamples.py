"""Counterexamples that were found by chance, each with the right value."""

from __future__ import annotations

import pytest

from quotaclient._core.account import Account
from quotaclient._core.ask import NEVER, Answer, Ask, Group, Permit, Ticket
from quotaclient._core.guard import Guard
from quotaclient._core.lane import Lane
from quotaclient._core.limits import Limit
from quotaclient._core.queue import Closed
from tests.core.ledger import most_at_once
from tests.core.load import demand, saturated, strict
from tests.core.world import SECOND, Shell, World

MS = SECOND // 1000


def test_who_comes_back_to_a_closed_lane_is_turned_away() -> None:
    """A request that lost its permit to time as its client was closed is not forgotten."""
    limits = (Limit(10, 10),)
    lane = Lane("key", limits, "name", Guard(limits, 0))
    lane.close()
    waiter = lane.enter((1,), 5, 0, in_front=True)
    lane.settle(10)
    assert waiter.outcome == Closed()


def test_a_burst_that_is_late_doubles_the_guard_once() -> None:
    """Ten requests that lost a third permit of the same guard in one moment: twice the guard."""
    limits = (Limit(100, 60),)
    lane = Lane("key", limits, "name", Guard(limits))
    guard = lane.guard
    for _ in range(10):
        lane.exchange(Permit(0, 0, (1,), Ticket("store", (1,), 0, guard, 0)), 3, 0)
    assert lane.guard == 2 * guard


def test_permits_of_an_outgrown_guard_do_not_widen_the_next() -> None:
    """60 ms to the store and back: a guard of four times that, not of eight."""
    world = World((Limit(20, 1),), seed=1, fixed_trip=30 * MS)
    shells = saturated(world, 4, 10)
    world.run(world.now + 5 * SECOND)
    assert [shell.lane.guard for shell in shells] == [240 * MS] * 4


def estimated(shell: Shell, tasks: int) -> None:
    """Tasks whose requests draw 1,500 tokens, and turn out half a second later to use 300."""
    world = shell.world

    def again() -> None:
        shell.request((1500,), done=lambda: world.at(world.now + SECOND // 2, after))

    def after() -> None:
        sent = next(one for one in world.departures if one.costs == (1500,))
        shell.correct(sent, (1200,))
        again()

    for _ in range(tasks):
        world.at(world.now, again)


def test_what_was_settled_is_used_while_others_wait() -> None:
    """P3: 10,000 tokens a minute are 33 requests that use 300 each; at least 25 are sent, not 6."""
    world = World((Limit(10_000, 60, name="tokens"),), seed=1)
    estimated(world.lane("lane"), 8)
    world.run(world.now + 600 * SECOND)
    assert strict(world)
    assert len(world.departures) >= 10 * 25


def test_a_small_request_does_not_inherit_a_far_place() -> None:
    """P3: four units are free; behind a big request that gave up, small ones go at once."""
    world = World((Limit(10, 60),), seed=1)
    shell = world.lane("lane")
    for _ in range(6):
        shell.request()
    world.run(world.now + SECOND)
    big = shell.request((8,))
    for _ in range(4):
        shell.request()
    world.run(world.now + SECOND)
    shell.cancel(big)
    world.run(world.now + SECOND)
    assert len(world.departures) == 10


def test_what_nobody_needs_goes_back_at_once() -> None:
    """P3: who waits far in line does not keep the place of one that was cancelled from others."""
    world = World((Limit(5, 10),), seed=1)
    shell = world.lane("lane")
    for _ in range(5):
        shell.request()
    world.run(world.now + 9_500 * MS)
    small = shell.request()
    world.run(world.now + 10 * MS)
    shell.request((5,), priority=1)
    world.run(world.now + 10 * MS)
    shell.cancel(small)
    world.run(world.now + 10 * MS)
    (record,) = world.account.windows.values()
    record.forget(world.now)
    assert sum(run.units for run in record.runs if run.at > world.now) == 5


def test_a_refusal_is_not_for_whom_a_permit_in_hand_covers() -> None:
    """P4: told "in ten seconds" and sent away, a request could have left in half a second."""
    limits = (Limit(5, 10),)
    lane = Lane("key", limits, "name", Guard(limits, 0))

    def answered(at: int, cost: int) -> None:
        lane.settle(0)
        assert isinstance(lane.act(0), Ask)
        ticket = Ticket("local", (1,), at, at, at)
        lane.told(Answer("local", 0, left=(0,), permits=(Permit(at, NEVER, (cost,), ticket),)), 0)

    first = lane.enter((1,), None, 0)
    answered(SECOND // 2, 1)
    lane.enter((5,), None, 1)
    small = lane.enter((1,), 2 * SECOND, 0)
    lane.leave(first, 0)
    answered(10 * SECOND, 5)
    lane.settle(0)
    lane.settle(SECOND // 2)
    assert isinstance(small.outcome, Permit)


@pytest.mark.parametrize("drift", [-5e-4, 5e-4])
def test_a_clock_that_drifts(drift: float) -> None:
    """P1, P3: an hour of a host may be some seconds longer or shorter than one of the store."""
    world = World((Limit(2, 3600),), seed=1)
    shells = [world.lane(f"lane-{number}", drift=number * drift) for number in range(2)]
    for shell in shells:
        demand(shell, 2, lambda: (1,))
    world.run(world.now + 20 * 3600 * SECOND)
    assert strict(world)
    assert len(world.departures) >= 2 * 19


def test_who_would_not_wait_is_not_refused_for_a_slow_answer() -> None:
    """P4: there is room, but permits live for 25 ms and come after 60: a longer guard is next."""
    world = World((Limit(5, 1),), seed=1, fixed_trip=30 * MS)
    shell = world.lane("lane")
    shell.request(max_wait=0)
    world.run(world.now + SECOND)
    assert len(world.departures) == 1


def test_who_would_not_wait_is_refused_when_no_answer_can_be_in_time() -> None:
    """P4: permits of 0.2 s do not outlive a trip of 0.2 s: that is said after some tries."""
    world = World((Limit(5, 0.2),), seed=1, fixed_trip=100 * MS)
    shell = world.lane("lane")
    shell.request(max_wait=0)
    world.run(world.now + 20 * SECOND)
    assert len(shell.refused) == 1
    assert world.asks == 9


@pytest.mark.parametrize(("late", "guard"), [(1, 50 * MS), (2, 100 * MS)])
def test_one_late_answer_is_not_a_slow_network(late: int, guard: int) -> None:
    """P3: a moment in which a host stands still does not widen the window, two in a row do."""
    world = World((Limit(100, 1),), seed=1, fixed_trip=MS)
    shell = world.lane("lane")

    def answer_in(trip: int) -> None:
        world.fixed_trip = trip // 2

    for _ in range(8):
        shell.request()
        world.run(world.now + SECOND)
    answer_in(40 * MS)
    world.at(world.now + late * 40 * MS, lambda: answer_in(MS))
    shell.request()
    world.run(world.now + SECOND)
    assert shell.lane.guard == guard


def test_a_crowd_that_is_late_is_late_once() -> None:
    """P3: permits that expire together, as a host stands still, do not widen the window."""
    limits = (Limit(100, 1),)
    lane = Lane("key", limits, "name", Guard(limits))
    for _ in range(20):
        lane.enter((1,), None, 0)
    lane.settle(0)
    assert isinstance(lane.act(0), Ask)
    ticket = Ticket("store", (1,), 0, 50 * MS, 0)
    permits = (Permit(0, 25 * MS, (1,), ticket),) * 20
    lane.told(Answer("store", 0, left=(80,), permits=permits), 0)
    lane.settle(60 * MS)
    assert lane.guard == 50 * MS


def test_what_recovers_from_a_hold_keeps_its_limit() -> None:
    """P1: the place that a tenth of the period allows is one that the whole of it allows, too."""
    account, limit = Account(), Limit(5, 10)
    account.raise_hold(4 * SECOND)
    for cost in (3, 4, 2):
        account.reserve(Ask("", (limit,), "lane", 20 * MS, (Group(1, (cost,)),)), SECOND)
    runs = account.window(limit).runs
    assert most_at_once((run.at, run.by + 10 * SECOND, int(run.units)) for run in runs) <= 5
