"""Whom a lane turns away, and when: step by step in virtual time."""

from __future__ import annotations

from quotaclient._core.ask import Answer, Ask, Refusal
from quotaclient._core.limits import Limit
from quotaclient._core.patience import OFTEN
from quotaclient._core.queue import Refused
from tests.core.steps import SECOND, a_lane, answered, asked, enter, permit, rests, sleeps


def test_a_refused_waiter_leaves_nothing() -> None:
    """Who was turned away has nothing to pass on."""
    lane = a_lane()
    waiter = enter(lane, max_wait=5)
    asked(lane)
    answered(lane, refusal=Refusal(90, 0))
    assert waiter.outcome == Refused(Refusal(90, 0), "local")
    lane.leave(waiter, 6)
    assert rests(lane, 6)


def test_a_refusal_is_for_those_who_cannot_wait() -> None:
    """A refusal turns away whose deadline comes before it; the others stay in line."""
    lane = a_lane()
    hasty = enter(lane, max_wait=50)
    assert asked(lane).max_wait == 50
    patient = enter(lane)
    answered(lane, refusal=Refusal(90, 0))
    assert hasty.outcome is not None
    assert patient.waiting
    assert asked(lane).max_wait is None


def test_what_cannot_fit_is_refused_at_once() -> None:
    """With a reservation in hand the lane knows who cannot be in time, and says when."""
    lane = a_lane(Limit(2, 10))
    for _ in range(3):
        enter(lane)
    asked(lane)
    answered(lane, permit(4 * SECOND))  # a place in line for the first, nothing for the others
    fits = enter(lane, max_wait=15 * SECOND)
    hopeless = enter(lane, max_wait=15 * SECOND)
    lane.settle(0)
    assert fits.waiting
    assert hopeless.outcome == Refused(Refusal(24 * SECOND, 0), "local")


def test_a_whole_period_may_pass_at_once() -> None:
    """The bound counts whole periods only: what fits into one may go together."""
    lane = a_lane(Limit(100, 2))
    for _ in range(80):
        enter(lane)
    asked(lane)
    answered(lane, permit(SECOND))
    waiter = enter(lane, max_wait=SECOND + 1)
    lane.settle(0)
    assert waiter.waiting


def test_its_own_reservation_decides_for_a_waiter() -> None:
    """Who is to get a permit that is in hand is judged by its time."""
    lane = a_lane()
    for _ in range(3):
        enter(lane)
    late, early = enter(lane, max_wait=99), enter(lane, max_wait=101, priority=1)
    asked(lane)
    answered(lane, *(permit(at) for at in (10, 20, 30, 100, 110)))
    assert late.outcome == Refused(Refusal(100, 0), "local")
    assert early.waiting


def test_the_deadline_passes() -> None:
    """Who waited in vain is turned away at the deadline, after the store has been heard."""
    lane = a_lane()
    waiter = enter(lane, max_wait=50)
    assert asked(lane, 60).max_wait == 0  # late, but nobody has asked for it yet
    lane.settle(70)
    assert waiter.waiting
    enter(lane)
    answered(lane, permit(SECOND), now=80)
    lane.settle(80)
    assert waiter.outcome == Refused(Refusal(SECOND, 0), "local")


def test_a_deadline_wakes_the_lane() -> None:
    """Without a permit in hand the next deadline is when to look again."""
    lane = a_lane()
    enter(lane)
    hasty = enter(lane, max_wait=500)
    asked(lane)
    answered(lane, permit(400))
    lane.leave(hasty, 0)
    enter(lane, max_wait=300)
    assert sleeps(lane) == 400
    patient = enter(lane, max_wait=5 * SECOND)
    enter(lane)
    assert sleeps(lane, 10) == 400
    assert patient.waiting


def test_a_refusal_is_for_those_whom_it_concerns() -> None:
    """Who draws less on the window that refused, or not at all, is asked for next."""
    lane = a_lane(Limit(100, 60), Limit(1000, 60, name="tokens"))
    big = enter(lane, max_wait=SECOND, costs=(1, 500))
    bigger = enter(lane, max_wait=SECOND, costs=(1, 600))
    small = enter(lane, max_wait=SECOND, costs=(1, 1))
    asked(lane)
    answered(lane, refusal=Refusal(50 * SECOND, 1))
    assert big.outcome == bigger.outcome == Refused(Refusal(50 * SECOND, 1), "local")
    assert small.waiting
    assert asked(lane).groups == ((1, (1, 1), 0),)


def test_a_refusal_speaks_of_the_first_that_was_not_served() -> None:
    """What was granted before the refusal is not counted to the refused."""
    lane = a_lane()
    enter(lane, max_wait=SECOND, costs=(2,))
    refused = enter(lane, max_wait=SECOND, costs=(5,))
    small = enter(lane, max_wait=SECOND, costs=(1,))
    asked(lane)
    answered(lane, permit(0, (2,)), refusal=Refusal(9 * SECOND, 0))
    assert refused.outcome is not None
    assert small.waiting


def test_a_refusal_that_comes_with_all_that_was_asked_for() -> None:
    """An answer that grants everything and refuses something too is taken at its word."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    hasty = enter(lane, max_wait=10)
    answered(lane, permit(0), refusal=Refusal(90, 0))
    assert hasty.outcome == Refused(Refusal(90, 0), "local")


def test_a_hold_refuses_whom_it_outlasts() -> None:
    """A known hold turns away at once who would not wait for its end, and names no limit."""
    lane = a_lane()
    lane.hold(500)
    waiter = enter(lane, max_wait=100)
    lane.settle(0)
    assert waiter.outcome == Refused(Refusal(500, None), "local")


def test_who_polls_is_answered_from_memory() -> None:
    """Refused time and again, a lane does not ask for the same for a moment."""
    lane = a_lane(Limit(10, 10))
    refusal = Refusal(9 * SECOND, 0)

    def poll(now: int, cost: int = 1) -> bool:
        """Whether the store is asked for it."""
        waiter = lane.enter((cost,), now, 0)
        lane.settle(now)
        if isinstance(waiter.outcome, Refused):
            assert waiter.outcome.refusal == refusal
            return False
        assert isinstance(lane.act(now), Ask)
        lane.told(Answer("store", now, left=(0,), refusal=refusal), now)
        lane.settle(now)
        return True

    assert [poll(1) for _ in range(OFTEN + 3)] == [True] * (OFTEN + 1) + [False] * 2
    assert not poll(2, cost=4)
    patient = lane.enter((1,), 9 * SECOND, 0)
    lane.settle(3)
    assert patient.waiting
    lane.leave(patient, 3)
    assert poll(SECOND // 4 + 2)
    assert not poll(SECOND // 4 + 3)
    lane.forget()
    assert poll(SECOND // 4 + 4)


def test_a_permit_ends_a_row_of_refusals() -> None:
    """A lane that was served meanwhile asks again."""
    lane = a_lane(Limit(10, 10))
    for now in range(2 * OFTEN):
        lane.enter((1,), now, 0)
        asked(lane, now)
        if now % 2:
            lane.told(Answer("store", now, permits=(permit(now),)), now)
        else:
            lane.told(Answer("store", now, left=(0,), refusal=Refusal(9 * SECOND, 0)), now)
        lane.settle(now)
    lane.enter((1,), 10, 0)
    asked(lane, 10)
