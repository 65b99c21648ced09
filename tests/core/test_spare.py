"""Spare permits in hand: a lane step by step in virtual time."""

from __future__ import annotations

from quotaclient._core.ask import Answer, Permit
from quotaclient._core.lane import (
    FRESH,
    Lane,
)
from quotaclient._core.limits import Limit
from quotaclient._core.prefetch import SURE
from tests.core.steps import SECOND, a_lane, asked, permit, sleeps

ROOMY = Limit(1000, 10)  # a guard of 0.1 s: a permit can be used for 0.05 s


def busy(lane: Lane, life: int = 50_000) -> int:
    """Requests come quickly, one by one, until spare permits are in hand; the time then."""
    now, gap = SECOND, 1_000
    for _ in range(SURE + 1):
        lane.enter((1,), None, 0)
        ask = asked(lane, now)
        (group,) = ask.groups
        permits = [permit(now, expires=now + life, source="store")] * group.requests
        lane.told(Answer("store", now, left=(900,), permits=tuple(permits)), now)
        lane.settle(now)
        now += gap
    return now


def test_a_busy_lane_asks_ahead() -> None:
    """Requests that come quickly find a permit in hand, and what is left counts the spare ones."""
    lane = a_lane(ROOMY, guard=None)
    now = busy(lane)
    assert "spare=2" in repr(lane)
    assert lane.remaining((1,)) == 902
    assert not lane.idle
    assert lane.take((2,), now) is None
    assert lane.take((1,), now) is not None
    assert lane.take((1,), now) is not None
    assert lane.take((1,), now) is None
    assert lane.idle


def test_who_waits_goes_before_who_finds_a_spare_permit() -> None:
    """With somebody in line a newcomer takes nothing; spare permits go to the line."""
    lane = a_lane(ROOMY, guard=None)
    now = busy(lane)
    first = lane.enter((1,), None, 0)
    assert lane.take((1,), now) is None
    lane.settle(now)
    assert isinstance(first.outcome, Permit)


def test_spare_permits_go_back_when_they_expire() -> None:
    """An idle lane wakes when its spare permits expire, and gives them back."""
    lane = a_lane(ROOMY, guard=None)
    now = busy(lane)
    assert sleeps(lane, now) == now - 1_000 + 50_001
    assert len(asked(lane, now + 50_001).returns) == 2
    assert lane.take((1,), now + 50_001) is None


def test_a_hold_overtakes_spare_permits() -> None:
    """Nobody leaves during a hold, spare permits or not."""
    lane = a_lane(ROOMY, guard=None)
    now = busy(lane)
    lane.hold(now + SECOND)
    assert lane.take((1,), now) is None
    assert len(asked(lane, now).returns) == 2


def test_spare_permits_that_a_request_is_too_big_for_go_back() -> None:
    """They are of no use to who waits, and may be to others."""
    lane = a_lane(ROOMY, guard=None)
    now = busy(lane)
    lane.enter((5,), None, 0)
    ask = asked(lane, now)
    assert [group[:2] for group in ask.groups] == [(1, (5,))]
    assert len(ask.returns) == 2


def test_a_closing_lane_gives_spare_permits_back() -> None:
    """A clean shutdown takes nothing with it."""
    lane = a_lane(ROOMY, guard=None)
    now = busy(lane)
    lane.close()
    ask = lane.surrender(now)
    assert ask is not None
    assert len(ask.returns) == 2


def test_a_reset_ends_spare_permits() -> None:
    """What they were booked in is empty: using them would not be counted."""
    lane = a_lane(ROOMY, guard=None)
    busy(lane)
    assert lane.spare == (2,)
    lane.forget()
    assert lane.spare == (0,)
    assert lane.idle


def test_old_news_ends_spare_permits() -> None:
    """With a long guard, they are used for half a second: then the upstream may have spoken."""
    lane = a_lane(Limit(1000, 60), guard=20 * SECOND)
    now = busy(lane, 10 * SECOND)
    assert lane.take((1,), now - 1_000 + FRESH) is not None
    assert lane.take((1,), now + FRESH) is None
    assert len(asked(lane, now + FRESH).returns) == 1


def test_nothing_is_asked_for_ahead_of_a_share() -> None:
    """While Redis is away each replica takes what it needs, no more."""
    lane = a_lane(ROOMY, guard=None)
    for now in range(SECOND, SECOND + 20_000, 1_000):
        lane.enter((1,), None, 0)
        assert [group.requests for group in asked(lane, now).groups] == [1]
        lane.told(Answer("share", now, left=(900,), permits=(permit(now),)), now)
        lane.settle(now)
