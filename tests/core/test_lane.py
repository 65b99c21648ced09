"""The lane, step by step in virtual time."""

from __future__ import annotations

from quotaclient._core.ask import GiveBack, Permit, Ticket
from quotaclient._core.lane import (
    CHECK_AHEAD,
    LINGER,
    MOST_AT_ONCE,
)
from quotaclient._core.limits import Limit
from quotaclient._core.queue import SLACK, Closed, Undecided
from tests.core.steps import SECOND, a_lane, answered, asked, enter, permit, rests, sleeps


def test_one_ask_serves_all_who_wait() -> None:
    """Who comes while the store is asked waits for that; one ask is for all, equal ones grouped."""
    lane = a_lane()
    enter(lane)
    assert [group[:2] for group in asked(lane).groups] == [(1, (1,))]
    others = [enter(lane), enter(lane), enter(lane, costs=(4,))]
    assert sleeps(lane) is None
    answered(lane, permit(0))
    assert [group[:2] for group in asked(lane).groups] == [(2, (1,)), (1, (4,))]
    answered(lane, permit(0), permit(0), permit(0, (4,)))
    assert all(isinstance(waiter.outcome, Permit) for waiter in others)
    assert lane.idle
    assert lane.left == (5,)


def test_an_ask_is_bounded() -> None:
    """Ten thousand who wait are asked for a thousand at a time."""
    lane = a_lane()
    for _ in range(10_000):
        enter(lane)
    assert asked(lane).groups == ((MOST_AT_ONCE, (1,), 0),)


def test_reservations_go_out_in_time_and_order() -> None:
    """A permit for later goes to the first in line when its time has come, not before."""
    lane = a_lane()
    first, second = enter(lane), enter(lane)
    asked(lane)
    answered(lane, permit(300), permit(200))
    assert sleeps(lane) == 200
    lane.settle(200)
    assert isinstance(first.outcome, Permit)
    assert first.outcome.at == 200
    assert second.waiting
    assert sleeps(lane, 201) == 300


def test_higher_priority_goes_first() -> None:
    """The next permit is for the highest priority, then for who came first."""
    lane = a_lane()
    low = enter(lane)
    asked(lane)
    high = enter(lane, priority=5)
    answered(lane, permit(0))
    assert high.outcome is not None
    assert low.waiting
    again = enter(lane, priority=5)
    asked(lane)
    answered(lane, permit(0))
    assert again.outcome is not None
    assert low.waiting


def test_a_cancelled_waiters_permit_goes_to_the_next() -> None:
    """Who leaves leaves the permit to the line, also one that was just handed out."""
    lane = a_lane()
    first, second, third = enter(lane), enter(lane), enter(lane)
    asked(lane)
    answered(lane, permit(0), permit(100), permit(200))
    lane.leave(first, 10)
    lane.settle(10)
    assert isinstance(second.outcome, Permit)
    assert second.outcome.at == 0
    lane.leave(third, 20)
    ask = asked(lane, 20)
    assert sorted(returned.ticket.at for returned in ask.returns) == [100, 200]
    assert not ask.groups
    lane.leave(second, 30)
    lane.leave(second, 30)


def test_a_surplus_goes_back() -> None:
    """A permit covers a smaller request, and what is over goes back with the next ask."""
    lane = a_lane()
    big = enter(lane, costs=(5,))
    small = enter(lane, costs=(2,))
    asked(lane)
    lane.leave(big, 0)
    answered(lane, permit(0, (5,)), permit(7, (2,)))
    assert isinstance(small.outcome, Permit)
    assert small.outcome.costs == (2,)
    returns = asked(lane).returns
    assert [(returned.ticket.at, returned.costs) for returned in returns] == [(0, (3,)), (7, (2,))]


def test_a_permit_that_covers_nobody_goes_back() -> None:
    """A permit too small for all who wait is given back, and they are asked for."""
    lane = a_lane()
    enter(lane, costs=(5,))
    asked(lane)
    answered(lane, permit(0, (2,)))
    ask = asked(lane)
    assert ask.returns[0].costs == (2,)
    assert ask.groups == ((1, (5,), 0),)


def test_a_big_request_is_not_covered_by_small_permits() -> None:
    """Permits in hand count for those whom they are enough for: a big one is asked for."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    answered(lane, permit(500))
    big = enter(lane, costs=(7,), priority=1)
    assert asked(lane).groups == ((1, (7,), 0),)
    answered(lane, permit(600, (7,)), permit(700, (3,)))
    lane.settle(550)
    assert big.waiting
    lane.settle(600)
    assert isinstance(big.outcome, Permit)
    assert [returned.ticket.at for returned in asked(lane, 600).returns] == [700]


def test_a_permit_that_is_passed_on() -> None:
    """A permit that its request did not use serves the next while it lasts, else goes back."""
    lane = a_lane()
    waiter = enter(lane)
    asked(lane)
    lane.pass_on(permit(0, expires=10), 10)
    lane.pass_on(permit(0, expires=10), 11)
    lane.settle(10)
    assert isinstance(waiter.outcome, Permit)
    answered(lane, now=11)
    assert len(asked(lane, 11).returns) == 1


def test_a_permit_from_before_a_hold_is_not_passed_on() -> None:
    """What was not used before a hold is not used in it by the next."""
    lane = a_lane()
    waiter = enter(lane)
    asked(lane)
    assert lane.asking
    lane.hold(500)
    lane.pass_on(permit(10), 10)
    lane.settle(10)
    assert waiter.waiting


def test_with_a_place_in_line_nothing_more_is_asked() -> None:
    """A reservation beyond the horizon is the lane's place: newcomers wait behind it."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    answered(lane, permit(5 * SECOND))
    enter(lane)
    assert sleeps(lane, 10) == 5 * SECOND - CHECK_AHEAD


def test_within_the_horizon_newcomers_are_asked_for() -> None:
    """Near reservations do not keep a newcomer from asking."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    answered(lane, permit(SECOND // 2))
    enter(lane)
    assert asked(lane, 10).groups == ((1, (1,), 0),)


def test_a_hold_overtakes_reservations() -> None:
    """Permits from before the end of a hold go back, and who waited for them is asked for anew."""
    lane = a_lane()
    waiters = [enter(lane), enter(lane)]
    asked(lane)
    answered(lane, permit(100), permit(900))
    lane.hold(500)
    lane.hold(300)
    assert lane.held_for(100) == 400
    ask = asked(lane, 10)
    assert [returned.ticket.at for returned in ask.returns] == [100]
    assert ask.groups == ((1, (1,), 490),)
    assert all(waiter.waiting for waiter in waiters)
    lane.pass_on(permit(20), 30)
    assert not lane.idle


def test_a_store_answer_brings_its_hold() -> None:
    """A hold that another replica heard comes with any answer."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    answered(lane, permit(100), hold=700)
    assert asked(lane).returns[0].ticket.at == 100


def test_while_a_hold_is_known_nothing_earlier_is_asked_for() -> None:
    """A store that forgot the hold is told with the ask not to grant before its end."""
    lane = a_lane()
    lane.hold(700)
    enter(lane)
    assert asked(lane, 200).groups == ((1, (1,), 500),)


def test_an_outage_settles_who_has_no_permit() -> None:
    """When nothing may decide, who has no permit in hand is told why."""
    lane = a_lane()
    first = enter(lane)
    asked(lane)
    answered(lane, permit(SECOND // 2))
    second = enter(lane)
    asked(lane)
    answered(lane, outage="away")
    assert first.waiting
    assert second.outcome == Undecided("away")


def test_an_empty_handed_answer_is_no_reason_to_spin() -> None:
    """A store that grants nothing and refuses nothing is asked again a little later."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    answered(lane)
    assert sleeps(lane) == CHECK_AHEAD
    assert asked(lane, CHECK_AHEAD)


def test_what_an_answer_holds_back_is_given_back() -> None:
    """Permits that an answer could not pass on go back with the next ask."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    returned = GiveBack(Ticket("store", (1,), 7, 7, 7), (1,))
    answered(lane, permit(0), returned=(returned,))
    assert asked(lane).returns == (returned,)


def test_a_lost_ask_is_asked_again() -> None:
    """An ask whose asker was killed is not waited for."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    lane.lost()
    assert asked(lane).groups


def test_closing_gives_back_what_is_in_hand() -> None:
    """A clean end turns away who waits and returns reservations; then nothing is asked any more."""
    lane = a_lane()
    waiter = enter(lane)
    asked(lane)
    answered(lane, permit(400))
    lane.close()
    ask = lane.surrender(0)
    assert waiter.outcome == Closed()
    assert ask is not None
    assert ask.returns[0].ticket.at == 400
    lane.give_back(permit(500))
    assert rests(lane)
    assert a_lane().surrender(0) is None


def test_gone_waiters_do_not_pile_up() -> None:
    """Entries of those who left are dropped, in the line and among the deadlines."""
    lane = a_lane()
    enter(lane, max_wait=90 * SECOND)
    asked(lane)
    for _ in range(10 * SLACK):
        lane.leave(enter(lane, max_wait=80 * SECOND), 0)
    queue = lane._queue
    assert len(queue) == 1
    assert len(queue._deadlines) <= SLACK + 3
    assert sum(len(line.waiters) for line in queue._lines.values()) <= SLACK + 3


def test_served_waiters_do_not_pile_up() -> None:
    """Those who were served at once leave nothing behind, however many they were."""
    lane = a_lane()
    for now in range(10 * SLACK):
        lane.enter((1,), 90 * SECOND, 0)
        asked(lane, now)
        answered(lane, permit(now), now=now)
    assert len(lane._patience._newcomers) <= SLACK + 1
    assert len(lane._queue._deadlines) <= SLACK + 1


def test_lanes_tell_what_they_hold() -> None:
    """A lane's repr shows who waits and what is in hand."""
    lane = a_lane()
    enter(lane)
    enter(lane)
    asked(lane)
    answered(lane, permit(400))
    assert repr(lane) == "<Lane waiting=2 in_hand=[400] spare=0 returns=0 asking=False held=0>"
    assert lane.has_reservations
    first = lane.first_waiting
    assert first is not None
    assert lane.other_than(first) not in (first, None)
    assert (lane.key, lane.name) == ("key", "name")
    assert (lane.remaining((1,)), lane.remaining((0,))) == (5, 5)


ROOMY = Limit(1000, 10)  # a guard of 0.1 s: a permit can be used for 0.05 s


def test_what_was_really_used_travels_with_the_next_ask() -> None:
    """Or alone, half a second later; at once where that costs nothing."""
    lane = a_lane(Limit(10, 10))
    lane.correct(permit(0, (5,), source="store"), (2,), 0)
    assert not lane.idle
    assert lane.spare == (2,)
    assert sleeps(lane, 0) == LINGER
    enter(lane)
    assert [returned.costs for returned in asked(lane, 1).returns] == [(2,)]
    answered(lane, permit(1), now=1)
    lane.correct(permit(0, (5,), source="store"), (-3,), 1)
    assert [returned.costs for returned in asked(lane, 1 + LINGER).returns] == [(-3,)]
    answered(lane, now=LINGER)
    lane.correct(permit(0, (5,)), (1,), 2 * LINGER)
    assert [returned.costs for returned in asked(lane, 2 * LINGER).returns] == [(1,)]
