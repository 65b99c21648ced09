"""The lane: one client's line of requests that draw on the same windows.

    Rule 1   Who waits, waits here; one ask is under way at most, and asks for all.
    Rule 2   Permits go out in order of time, to the first in line that they cover. What nobody
             here needs goes back.
    Rule 3   A permit that has waited long is checked before it goes out: the upstream may have
             spoken to another replica meanwhile.
    Rule 4   Who cannot be served in time is told so at once, with the time it would take.

A shell calls `enter`, `leave` and `told` when something happens; then `settle`, which gives every
waiter the outcome that is due, and `act`, which says what to do: ask the store, sleep, or rest.
Times are whole microseconds on the caller's clock, and arguments.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

from quotaclient._core.ask import SECOND, Answer, Ask, GiveBack, Permit, Refusal, Source
from quotaclient._core.limits import Limit
from quotaclient._core.queue import Closed, Outcome, Refused, Undecided, Waiter, WaitQueue

MOST_AT_ONCE = 1000  # requests in one ask: what Redis books in about a millisecond
FRESH = SECOND // 2  # a permit that waited longer than this is checked before it goes out (P6)
CHECK_AHEAD = SECOND // 20  # so much before it is due, so that the check costs no time

_by_time = attrgetter("at")


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing to do before `until`, or before something happens (None)."""

    until: int | None


REST = None
"""Nobody waits and nothing is to be given back."""


def default_guard(limits: tuple[Limit, ...]) -> int:
    """How late a permitted request may arrive, in microseconds, unless the user says.

    1 % of the shortest period, within 50-500 ms (what a busy host's scheduling and a handshake
    take), but at most a tenth of the period, for the window is widened by it.
    """
    shortest = min(limit.period_us for limit in limits)
    return min(max(shortest // 100, SECOND // 20), SECOND // 2, shortest // 10)


class Lane:
    """The line, the permits in hand, and what is known of the windows."""

    def __init__(
        self, key: str, limits: tuple[Limit, ...], name: str, guard: int | None = None
    ) -> None:
        self.limits = limits
        self.guard = default_guard(limits) if guard is None else guard
        self.left = tuple(limit.count for limit in limits)
        self.source: Source = "local"
        self._terms = Ask(key, limits, name, self.guard)
        self._queue = WaitQueue(len(limits))
        self._unchecked: list[Waiter] = []  # newcomers whose wait may not fit (Rule 4)
        self._hand: list[Permit] = []  # in order of time
        self._returns: list[GiveBack] = []
        self._asking = False
        self._in_line = False  # there is a place to wait for before the rest is asked for
        self._asked_for = 0
        self._resume_at = 0  # not to ask before: the last answer had nothing for anybody
        self._held = 0
        self._news = 0  # how old what we know is: when the store was asked that answered last
        self._rounds = 0  # answers so far
        self._closed = False

    def __repr__(self) -> str:
        return (
            f"<Lane waiting={len(self._queue)} in_hand={[permit.at for permit in self._hand]}"
            f" returns={len(self._returns)} asking={self._asking} held={self._held}>"
        )

    @property
    def key(self) -> str:
        return self._terms.key

    @property
    def look(self) -> Ask:
        """An ask that only looks: for a user who wants to know, not for the lane."""
        return self._terms

    def held_for(self, now: int) -> int:
        """How much longer nobody sends, by what this lane knows."""
        return max(0, self._held - now)

    @property
    def first_waiting(self) -> Waiter | None:
        return self._queue.first()

    @property
    def has_reservations(self) -> bool:
        """Whether somebody must look at the clock."""
        return bool(self._hand)

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost with this lane."""
        return not (self._queue or self._hand or self._returns or self._asking)

    # What happens

    def enter(
        self,
        costs: tuple[int, ...],
        deadline: int | None,
        priority: int,
        *,
        wake: Callable[[], object] = bool,
        in_front: bool = False,
    ) -> Waiter:
        """A request joins the line; in front, when it stood there before and lost its permit."""
        waiter = Waiter(costs, deadline, priority, wake)
        waiter.hears = self._rounds + (2 if self._asking else 1)
        if in_front:
            self._in_line = False  # the permit that it gave back makes room: ask at once
        elif deadline is not None:
            self._unchecked.append(waiter)
        self._queue.append(waiter, in_front=in_front)
        return waiter

    def leave(self, waiter: Waiter, now: int) -> None:
        """A request will not be sent. A permit that it was just handed goes to the next."""
        if waiter.waiting:
            waiter.gone = True
            self._queue.remove(waiter)
        elif isinstance(waiter.outcome, Permit):
            self.pass_on(waiter.outcome, now)

    def pass_on(self, permit: Permit, now: int) -> None:
        """A permit was not used: the next in line has it while it lasts, else the store."""
        if now <= permit.expires and permit.at >= self._held:
            insort(self._hand, permit, key=_by_time)
        else:
            self.give_back(permit)

    def give_back(self, permit: Permit) -> None:
        self._returns.append(GiveBack(permit.ticket, permit.costs))

    def hold(self, until: int) -> None:
        """The upstream said that nobody sends before this instant."""
        self._held = max(self._held, until)
        overtaken = [permit for permit in self._hand if permit.at < self._held]
        for permit in overtaken:
            self.give_back(permit)
        if overtaken:
            self._hand = [permit for permit in self._hand if permit.at >= self._held]
            self._in_line = False  # who lost a permit is asked for at once

    def told(self, answer: Answer, now: int) -> None:
        """The store answered what was asked last."""
        self._asking = False
        self._rounds += 1
        self._news = answer.asked
        self._returns += answer.returned
        if answer.left:
            self.left, self.source = answer.left, answer.source
        for permit in answer.permits:
            insort(self._hand, permit, key=_by_time)
        if answer.permits and answer.permits[0].expires < now:
            self._widen_guard()
        self.hold(answer.hold)
        short = len(answer.permits) < self._asked_for
        self._in_line = bool(self._hand) and (
            short or self._in_line or self._hand[-1].at > now + self._terms.horizon
        )
        if answer.outage is not None:
            self._settle_uncovered(Undecided(answer.outage), None)
        elif answer.refusal is not None:
            self._settle_uncovered(Refused(answer.refusal, answer.source), answer.refusal.at)
        elif short and not answer.permits:
            self._resume_at = now + CHECK_AHEAD

    def _widen_guard(self) -> None:
        """Permits that arrive expired would do so for ever: the way to the store is too long."""
        self.guard = max(self.guard, min(2 * self.guard, self._terms.shortest // 2))
        self._terms = replace(self._terms, guard=self.guard)

    def _settle_uncovered(self, outcome: Refused | Undecided, before: int | None) -> None:
        """Tell those for whom there is no permit in hand; with `before`, whose deadline is."""
        for waiter in list(islice(self._queue, len(self._hand), None)):
            if before is None or (waiter.deadline is not None and waiter.deadline < before):
                self._settle(waiter, outcome)

    def close(self, now: int) -> Ask | None:
        """Turn away who waits; the ask that gives back all that is in hand, if anything is."""
        self._closed = True
        for waiter in list(self._queue):
            self._settle(waiter, Closed())
        self._return_surplus()
        return self._ask(now, 0) if self._returns else None

    def lost(self) -> None:
        """An ask ended without an answer (its asker was killed)."""
        self._asking = False

    # What to do

    def settle(self, now: int) -> None:
        """Give every waiter the outcome that is due."""
        self._drop_expired(now)
        self._hand_out(now)
        self._turn_away(now)
        self._return_surplus()

    def _drop_expired(self, now: int) -> None:
        while self._hand and self._hand[0].expires < now:
            self.give_back(self._hand.pop(0))

    def _hand_out(self, now: int) -> None:
        while self._queue and self._hand and self._hand[0].at <= now and not self._stale(now):
            permit = self._hand.pop(0)
            waiter = self._queue.first_covered(permit.costs)
            if waiter is None:
                self.give_back(permit)
                continue
            surplus = tuple(
                have - need for have, need in zip(permit.costs, waiter.costs, strict=True)
            )
            if any(surplus):
                self._returns.append(GiveBack(permit.ticket, surplus))
                permit = replace(permit, costs=waiter.costs)
            self._settle(waiter, permit)
        if not self._hand:
            self._in_line = False

    def _stale(self, now: int) -> bool:
        """Whether the next permit has to be checked before it goes out (Rule 3)."""
        return self._news + FRESH < max(now, self._hand[0].at)

    def _turn_away(self, now: int) -> None:
        """Refuse who cannot be served in time (Rule 4); nobody while the store is being asked."""
        if self._asking:
            return
        if self._hand or self._held > now:
            unchecked, self._unchecked = self._unchecked, []
            in_hand = self._units_in_hand() if unchecked else ()
            for waiter in unchecked:
                if waiter.waiting and waiter.deadline is not None:
                    at = self._not_before(waiter, in_hand)
                    if at > max(waiter.deadline, now):
                        self._refuse(waiter, at)
        while (late := self._queue.past(now)) is not None:
            if not self._hand and late.hears > self._rounds:
                return  # `act` is about to ask for it
            self._refuse(late, max(now, self._not_before(late, self._units_in_hand())))

    def _units_in_hand(self) -> tuple[int, ...]:
        units = zip(*(permit.costs for permit in self._hand), strict=True)
        return tuple(map(sum, units)) or (0,) * len(self.limits)

    def _not_before(self, waiter: Waiter, in_hand: tuple[int, ...]) -> int:
        """The earliest that a waiter can hope for, by what is known.

        Its own permit, if one in hand is its. Else the last in hand; from there on the requests
        between need their whole periods: a part of a period may pass all at once.
        """
        requests, *units = self._queue.ahead_of(waiter)
        if not self._hand:
            return self._held
        if requests < len(self._hand):
            return self._hand[max(requests, 0)].at
        last = self._hand[-1]
        at = last.at
        for limit, ahead, booked, before, cost in zip(
            self.limits, units, in_hand, last.costs, waiter.costs, strict=True
        ):
            if cost:
                full = (max(ahead - booked, 0) + before + cost - 1) // limit.count
                at = max(at, last.at + full * limit.period_us)
        return at

    def _refuse(self, waiter: Waiter, at: int) -> None:
        """Name the window that is slowest for these costs, unless a hold is what it waits for."""
        pace = [
            cost * limit.period / limit.count
            for limit, cost in zip(self.limits, waiter.costs, strict=True)
        ]
        window = None if at <= self._held else pace.index(max(pace))
        self._settle(waiter, Refused(Refusal(at, window), self.source))

    def _settle(self, waiter: Waiter, outcome: Outcome) -> None:
        waiter.outcome = outcome
        self._queue.remove(waiter)
        waiter.wake()

    def _return_surplus(self) -> None:
        for permit in self._hand[len(self._queue) :]:
            self.give_back(permit)
        del self._hand[len(self._queue) :]

    def act(self, now: int) -> Ask | Sleep | None:
        """What the shell is to do, after `settle`. An ask that is returned is under way."""
        uncovered = len(self._queue) - len(self._hand)
        check = bool(self._hand) and self._stale(now)
        if self._closed:
            return REST
        if not self._asking:
            if uncovered and not self._in_line and now >= self._resume_at:
                return self._ask(now, min(uncovered, MOST_AT_ONCE))
            if check and now >= self._hand[0].at - CHECK_AHEAD:
                return self._ask(now, 0)
            if self._returns and not self._queue:
                return self._ask(now, 0)
        if not self._queue:
            return REST
        return Sleep(self._wake_at(check, bool(uncovered)))

    def _wake_at(self, check: bool, uncovered: bool) -> int | None:
        times: list[int] = []
        if self._hand and not (check and self._asking):
            times.append(self._hand[0].at - (CHECK_AHEAD if check else 0))
        if not self._asking:
            deadline = self._queue.next_deadline()
            if deadline is not None:
                times.append(deadline + 1)
            if uncovered and not self._hand:
                times.append(self._resume_at)
        return min(times, default=None)

    def _ask(self, now: int, requests: int) -> Ask:
        """One ask for all that have no permit in hand, with all that is to be given back."""
        self._asking, self._asked_for = True, requests
        patience = self._queue.patience(len(self._hand), requests, now)
        returns, self._returns = tuple(self._returns), []
        return replace(
            self._terms,
            groups=self._queue.groups(len(self._hand), requests, self.held_for(now)),
            max_wait=None if patience is None else max(patience, 0),
            returns=returns,
        )
