"""Permits that are late, or old: a lane step by step in virtual time."""

from __future__ import annotations

from quotaclient._core.ask import Answer, Permit
from quotaclient._core.guard import ENOUGH
from quotaclient._core.lane import (
    CHECK_AHEAD,
    CROWD,
    FRESH,
    ROOM_EVERY,
)
from quotaclient._core.limits import Limit
from tests.core.steps import SECOND, a_lane, answered, asked, enter, permit, sleeps


def test_expired_permits_are_not_handed_out() -> None:
    """A permit that waited past its expiry goes back."""
    lane = a_lane()
    waiter = enter(lane)
    asked(lane)
    answered(lane, permit(50, expires=60))
    lane.settle(61)
    assert waiter.waiting
    assert asked(lane, 61).returns[0].ticket.at == 50


def test_permits_that_arrive_expired_widen_the_guard() -> None:
    """The guard grows, up to half a period, but for the first: connections are made then."""
    lane = a_lane(Limit(10, 1), guard=200_000)
    for guard in (200_000, 400_000, 500_000, 500_000):
        enter(lane)
        asked(lane)
        answered(lane, permit(10, expires=5), now=10)
        assert lane.guard == guard
        assert asked(lane, 10).guard == guard
        lane.lost()


def test_what_is_due_later_may_expire_earlier() -> None:
    """Permits of a slow ask expire sooner after they are due; none is handed out expired."""
    lane = a_lane()
    waiters = [enter(lane), enter(lane)]
    asked(lane)
    answered(lane, permit(40), permit(50, expires=45))
    lane.settle(60)
    assert [isinstance(waiter.outcome, Permit) for waiter in waiters] == [True, False]
    assert asked(lane, 60).returns[0].ticket.at == 50


def test_permits_that_expire_in_hand_widen_the_guard() -> None:
    """Three in a row that nobody could be handed in time: the guard is less than a step takes."""
    lane = a_lane(guard=10)
    enter(lane)
    for guard in (10, 10, 20):
        asked(lane, 1)
        lane.told(Answer("local", 1, permits=(permit(1, expires=1, guard=10),)), 1)
        lane.settle(2)
        assert lane.guard == guard


def test_a_request_that_is_late_too_often_widens_the_guard() -> None:
    """Once or twice is a handshake; a request that loses its permit a third time has no chance."""
    lane = a_lane(Limit(10, 1), guard=10)
    lane.exchange(permit(0, guard=10), 2, 0)
    assert lane.guard == 10
    lane.exchange(permit(0, guard=10), 3, 0)
    assert lane.guard == 20


def test_an_exchanged_permit_asks_at_once() -> None:
    """Who lost a permit to time stands in front, and is asked for even with a place in line."""
    lane = a_lane()
    enter(lane)
    enter(lane)
    asked(lane)
    answered(lane, permit(5 * SECOND))
    assert sleeps(lane, 10) == 5 * SECOND - CHECK_AHEAD
    lane.exchange(permit(0), 1, 10)
    front = lane.enter((1,), 9 * SECOND, 0, in_front=True)
    ask = asked(lane, 10)
    assert (len(ask.returns), ask.groups) == (1, ((2, (1,), 0),))
    answered(lane, permit(10), now=20)
    assert isinstance(front.outcome, Permit)


def test_in_a_crowd_room_is_made_once_for_many() -> None:
    """Permits that expire together make room for the reservations once in a while, not each."""
    lane = a_lane()
    for _ in range(CROWD + 1):
        enter(lane)
    asked(lane)
    answered(lane, permit(5 * SECOND))
    lane.exchange(permit(0), 1, 10)
    assert len(asked(lane, 10).returns) == 2
    answered(lane, permit(5 * SECOND), now=20)
    for now in (30, 40):
        lane.exchange(permit(0), 1, now)
    assert sleeps(lane, 50) == 10 + ROOM_EVERY
    assert len(asked(lane, 10 + ROOM_EVERY).returns) == 3


def test_old_permits_are_checked_before_they_go() -> None:
    """A permit of Redis that waited over half a second is checked, a little before it is due."""
    lane = a_lane()
    waiter = enter(lane)
    asked(lane)
    due = FRESH + 200_000
    answered(lane, permit(due, source="store"))
    assert sleeps(lane) == due - CHECK_AHEAD
    check = asked(lane, due - CHECK_AHEAD)
    assert not check.groups
    assert sleeps(lane, due) is None  # it is due, but not before the answer
    lane.told(Answer("store", due - CHECK_AHEAD, CHECK_AHEAD + 1, due), due + 1)
    lane.settle(due + 1)
    assert isinstance(waiter.outcome, Permit)


def test_fresh_permits_are_not_checked() -> None:
    """No check for what waited half a second or less."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    answered(lane, permit(FRESH))
    assert sleeps(lane) == FRESH


def test_the_guard_follows_the_trips() -> None:
    """What the store's answers took goes into the guard of the next ask, and into a warning."""
    lane = a_lane(Limit(10, 1), guard=None)
    for _ in range(ENOUGH):
        enter(lane)
        asked(lane)
        lane.told(Answer("store", 0, trip=60_000, permits=(permit(0),)), 0)
        lane.settle(0)
    enter(lane)
    assert asked(lane).guard == lane.guard == 240_000
    assert "0.240 s" in str(lane.take_warning())
    assert lane.take_warning() is None
