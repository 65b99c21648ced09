"""The lane, step by step in virtual time."""

from __future__ import annotations

from quotaclient._core.ask import NEVER, Answer, Ask, GiveBack, Permit, Refusal, Ticket
from quotaclient._core.guard import ENOUGH, Guard
from quotaclient._core.lane import (
    CHECK_AHEAD,
    CROWD,
    FRESH,
    LINGER,
    MOST_AT_ONCE,
    ROOM_EVERY,
    Lane,
    Sleep,
)
from quotaclient._core.limits import Limit
from quotaclient._core.patience import OFTEN
from quotaclient._core.prefetch import SURE
from quotaclient._core.queue import SLACK, Closed, Refused, Undecided, Waiter

SECOND = 1_000_000
LIMIT = Limit(10, 10)


def a_lane(*limits: Limit, guard: int | None = 0) -> Lane:
    """A lane with a guard of 0 unless told otherwise."""
    return Lane("key", limits or (LIMIT,), "name", Guard(limits or (LIMIT,), guard))


def enter(
    lane: Lane, max_wait: int | None = None, costs: tuple[int, ...] = (1,), priority: int = 0
) -> Waiter:
    """Someone comes at 0."""
    return lane.enter(costs, max_wait, priority)


def permit(
    at: int,
    costs: tuple[int, ...] = (1,),
    expires: int = NEVER,
    source: str = "",
    guard: int = 0,
) -> Permit:
    """A permit of this process, or of Redis with source="store"."""
    ticket = Ticket("store" if source == "store" else "local", (1,), at, at + guard, at)
    return Permit(at, expires, costs, ticket)


def answered(lane: Lane, *permits: Permit, now: int = 0, **more: object) -> None:
    """The store answers."""
    lane.told(Answer("local", now, left=(5,), permits=permits, **more), now)  # type: ignore[arg-type]
    lane.settle(now)


def asked(lane: Lane, now: int = 0) -> Ask:
    """The ask that the lane makes now."""
    lane.settle(now)
    step = lane.act(now)
    assert isinstance(step, Ask), step
    return step


def sleeps(lane: Lane, now: int = 0) -> int | None:
    """Until when the lane sleeps now."""
    lane.settle(now)
    step = lane.act(now)
    assert isinstance(step, Sleep), step
    return step.until


def rests(lane: Lane, now: int = 0) -> bool:
    """Whether the lane has nothing to do now."""
    lane.settle(now)
    return lane.act(now) is None


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


def test_a_request_that_is_late_too_often_widens_the_guard() -> None:
    """Once or twice is a handshake; a request that loses its permit a third time has no chance."""
    lane = a_lane(Limit(10, 1), guard=10)
    lane.exchange(permit(0, guard=10), 2, 0)
    assert lane.guard == 10
    lane.exchange(permit(0, guard=10), 3, 0)
    assert lane.guard == 20


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


def test_a_refusal_that_comes_with_all_that_was_asked_for() -> None:
    """An answer that grants everything and refuses something too is taken at its word."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    hasty = enter(lane, max_wait=10)
    answered(lane, permit(0), refusal=Refusal(90, 0))
    assert hasty.outcome == Refused(Refusal(90, 0), "local")


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


def test_a_hold_refuses_whom_it_outlasts() -> None:
    """A known hold turns away at once who would not wait for its end, and names no limit."""
    lane = a_lane()
    lane.hold(500)
    waiter = enter(lane, max_wait=100)
    lane.settle(0)
    assert waiter.outcome == Refused(Refusal(500, None), "local")


def test_a_store_answer_brings_its_hold() -> None:
    """A hold that another replica heard comes with any answer."""
    lane = a_lane()
    enter(lane)
    asked(lane)
    answered(lane, permit(100), hold=700)
    assert asked(lane).returns[0].ticket.at == 100


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
