"""The lane: one client's line of requests that draw on the same windows.

    Rule 1   Who waits, waits here; one ask is under way at most, and asks for all.
    Rule 2   Permits go out in order of time, to the first in line that they cover. What nobody
             here needs goes back.
    Rule 3   A permit that has waited long is checked before it goes out: the upstream may have
             spoken to another replica meanwhile.
    Rule 4   Who cannot be served in time is told so at once, with the time it would take.
    Rule 5   Who finds a spare permit in hand asks nobody (see `prefetch.py`).

A shell calls `take`, `enter`, `leave` and `told` when something happens; then `settle`, which
gives every waiter the outcome that is due, and `act`, which says what to do: ask the store,
sleep, or rest.
Times are whole microseconds on the caller's clock, and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import compress
from operator import add

from quotaclient._core.ask import (
    NEVER,
    SECOND,
    Answer,
    Ask,
    GiveBack,
    Group,
    Permit,
    Refusal,
    Source,
)
from quotaclient._core.asks import Asks
from quotaclient._core.guard import Guard
from quotaclient._core.hand import Hand, Returns
from quotaclient._core.limits import Limit
from quotaclient._core.patience import Patience, Precedent
from quotaclient._core.prefetch import Prefetch
from quotaclient._core.queue import (
    Closed,
    Outcome,
    Refused,
    Undecided,
    Waiter,
    WaitQueue,
    groups_of,
)

MOST_AT_ONCE = 250  # requests in one ask: whom a loop can wake while their permits last
FRESH = SECOND // 2  # a permit that waited longer than this is checked before it goes out (P6)
OFTEN = 2  # times that a request may lose its permit to time before its guard is widened
TRIES = 8  # answers in a row that came too late, until who cannot wait is refused (guards double)
CROWD = 100  # waiters; of more, expired permits make room for reservations
ROOM_EVERY = SECOND // 50  # only once in so long
LINGER = FRESH  # what nobody waits for travels with the next ask, or alone after this
CHECK_AHEAD = SECOND // 20  # so much before it is due, so that the check costs no time


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing to do before `until`, or before something happens (None)."""

    until: int | None


REST = None
"""Nobody waits and nothing is to be given back."""


class Lane:
    """The line, the permits in hand, and what is known of the windows."""

    def __init__(self, key: str, limits: tuple[Limit, ...], name: str, guard: Guard) -> None:
        self.limits = limits
        self.left = tuple(limit.most for limit in limits)
        self.source: Source = "local"
        self._guard = guard
        self._asks = Asks(key, limits, name, guard)
        self._queue = WaitQueue(len(limits))
        self._hand = Hand()
        self._patience = Patience(limits, self._queue, self._hand)
        self._prefetch = Prefetch()
        self._plenty = False  # whether the last answer was permits for now, all that were asked for
        self._returns = Returns()
        self._asking = False
        self._in_line = False  # there is a place to wait for before the rest is asked for
        self._resume_at = 0  # not to ask before: the last answer had nothing for anybody
        self._room_at = NEVER  # when reservations are given back to be booked anew
        self._room_made = -ROOM_EVERY  # when they were last
        self._held = 0
        self._news = 0  # how old what we know is: when the store was asked that answered last
        self._rounds = 0  # answers so far
        self._expired = 0  # moments in a row in which permits expired in hand
        self._late = 0  # answers in a row whose permits had expired when they came
        self._closed = False

    def __repr__(self) -> str:
        return (
            f"<Lane waiting={len(self._queue)} in_hand={[permit.at for permit in self._hand]}"
            f" spare={len(self._prefetch)} returns={len(self._returns)}"
            f" asking={self._asking} held={self._held}>"
        )

    @property
    def key(self) -> str:
        return self._asks.key

    @property
    def name(self) -> str:
        return self._asks.name

    @property
    def guard(self) -> int:
        return self._guard.value

    @property
    def spare(self) -> tuple[int, ...]:
        """The units in hand that nobody waits for, and those that go back, per window."""
        spare = self._prefetch.units or (0,) * len(self.left)
        return tuple(map(add, spare, self._returns.sums)) if self._returns else spare

    def remaining(self, costs: tuple[int, ...]) -> int:
        """The units left in the fullest window that these costs draw on, spare ones included."""
        left: tuple[int, ...] = tuple(map(add, self.left, self.spare))
        return min(compress(left, costs), default=min(left))  # who draws on none may know of all

    def held_for(self, now: int) -> int:
        """How much longer nobody sends, by what this lane knows."""
        return max(0, self._held - now)

    @property
    def first_waiting(self) -> Waiter | None:
        return self._queue.first()

    def other_than(self, waiter: Waiter) -> Waiter | None:
        """Somebody else who waits."""
        return next((other for other in self._queue if other is not waiter), None)

    @property
    def asking(self) -> bool:
        """Whether an ask is under way."""
        return self._asking

    @property
    def is_told_next(self) -> bool:
        """Whether who joins the line can only wait for the answer that is on its way."""
        return self._asking and not self._hand and not self._prefetch

    @property
    def has_reservations(self) -> bool:
        """Whether somebody must look at the clock."""
        return bool(self._hand)

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost with this lane."""
        return not (self._queue or self._hand or self._prefetch or self._returns or self._asking)

    # What happens

    def take_warning(self) -> str | None:
        """What a log is to say of this lane's guard, once."""
        return self._guard.take_warning()

    def take(self, costs: tuple[int, ...], now: int) -> Permit | None:
        """A spare permit, for a request that finds nobody in line and one in hand."""
        if self._queue or now > self._news + FRESH:
            return None
        return self._prefetch.take(costs, now)

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
            self._patience.meet(waiter)
        self._queue.append(waiter, in_front=in_front)
        return waiter

    def leave(self, waiter: Waiter, now: int) -> None:
        """A request will not be sent. A permit that it was just handed goes to the next."""
        if waiter.waiting:
            waiter.gone = True
            self._queue.remove(waiter)
            if self._queue.only_costs != waiter.costs and self._waits_far(now):
                self._plan_room(now)  # the place of a big one is no place for a small one
        elif isinstance(waiter.outcome, Permit):
            self.pass_on(waiter.outcome, now)

    def pass_on(self, permit: Permit, now: int) -> None:
        """A permit was not used: the next in line has it while it lasts, else the store."""
        if now <= permit.expires and permit.at >= self._held:
            self._hand.add((permit,))
        else:
            self._make_room(permit, now)

    def exchange(self, permit: Permit, times: int, now: int) -> None:
        """A permit expired before its request left, so many times in a row for that request.

        Once or twice is a handshake, or a busy host; more often the guard is too small.
        """
        self._make_room(permit, now)
        if times > OFTEN and permit.ticket.by - permit.ticket.at >= self._guard.value:
            self._guard.widen()  # else it has grown since: many are late in one moment

    def _make_room(self, permit: Permit, now: int) -> None:
        """Give a permit back, and the reservations too, to book them anew, and earlier.

        Of a crowd many expire together, and a busy host is not to spend its time on this: then
        once for all that do within a moment.
        """
        self.give_back(permit)
        if len(self._queue) > CROWD:
            self._plan_room(now)
        else:
            self._in_line = False
            for later in self._hand.take_after(permit.expires):
                self.give_back(later)

    def _plan_room(self, now: int) -> None:
        self._room_at = min(self._room_at, max(now, self._room_made + ROOM_EVERY))

    def _waits_far(self, now: int) -> bool:
        """Whether nobody in line goes soon, so that nothing would be asked for a while."""
        return bool(self._hand) and self._hand[0].at > now + LINGER

    def _book_anew(self, now: int) -> None:
        """Give back the reservations, when there is more room than when they were made.

        What goes back makes room for others, too: it does not wait until somebody's time comes.
        """
        if now >= self._returns_at and self._waits_far(now) and not self._asking:
            self._room_at = now
        if now >= self._room_at:
            self._room_at, self._room_made = NEVER, now
            self._in_line = False
            for later in self._hand.take_after(now):
                self.give_back(later)

    def give_back(self, permit: Permit) -> None:
        """A permit that nobody needs: others may, so it goes back at once."""
        self._file(GiveBack(permit.ticket, permit.costs), 0)

    def correct(self, permit: Permit, unused: tuple[int, ...], now: int) -> None:
        """A request used less than its permit (or more: below 0); the next ask takes it along."""
        free_of_charge = permit.ticket.source != "store"
        self._file(GiveBack(permit.ticket, unused), now if free_of_charge else now + LINGER)

    def _file(self, returned: GiveBack, at: int) -> None:
        self._returns.add(returned, at)
        self._patience.memory.forget()

    def forget(self) -> None:
        """The windows were emptied: spare permits are booked nowhere, refusals hold no more."""
        self._prefetch.take_out(bool)
        self._patience.memory.forget()

    def hold(self, until: int) -> None:
        """The upstream said that nobody sends before this instant."""
        if until > self._held:
            self._held, self._plenty = until, False
        for permit in self._prefetch.take_out(lambda permit: permit.at < self._held):
            self.give_back(permit)
        for permit in self._hand.take_before(self._held):
            self.give_back(permit)
            self._in_line = False  # who lost a permit is asked for at once

    def told(self, answer: Answer, now: int) -> None:
        """The store answered what was asked last."""
        self._asking = False
        self._rounds += 1
        self._news = answer.asked
        for returned in answer.returned:
            self._file(returned, 0)
        if answer.left:
            self.left, self.source = answer.left, answer.source
        if answer.source == "store":
            self._hand.set_right(answer)
        self._hand.add(answer.permits)
        if answer.permits:
            self._patience.memory.forget()
        if answer.source != "share":
            self._guard.took(answer.trip)
        late = bool(answer.permits) and answer.permits[0].expires < answer.permits[0].at
        self._late = self._late + 1 if late else 0
        if self._late > 1 and self._asks.told_in_time():  # else it has grown since
            self._guard.widen()  # once is a connection that is made, or a busy moment of this host
        self.hold(answer.hold)
        short = len(answer.permits) < self._asks.wanted
        self._plenty = bool(answer.permits) and not short and answer.permits[-1].at <= now
        self._in_line = bool(self._hand) and (
            short or self._in_line or self._hand[-1].at > now + self._asks.horizon
        )
        if answer.outage is not None:
            for waiter in self._hand.uncovered(self._queue, len(self._queue)):
                self._settle(waiter, Undecided(answer.outage))
        elif answer.refusal is not None:
            self._refuse_like(answer.refusal, answer, now)
        elif short and not answer.permits:
            self._resume_at = now + CHECK_AHEAD

    def _refuse_like(self, refusal: Refusal, answer: Answer, now: int) -> None:
        """Refuse those without a permit whom a refusal concerns; the others are asked for next.

        They draw as much or more on the window that refused, and will not wait until it has room.
        """
        served = len(answer.permits) + len(answer.returned)
        refused = Refused(refusal, answer.source)
        told = Precedent(refused, self._asks.refused_cost(served, refusal.window))
        for waiter in self._hand.uncovered(self._queue, len(self._queue)):
            if told.concerns(waiter):
                self._settle(waiter, refused)
        if answer.source == "store":  # others are asked at no cost
            self._patience.memory.note(told, now, self._asks.horizon)

    def close(self) -> None:
        """Turn away who waits, and ask for nothing more."""
        self._closed = True
        for waiter in list(self._queue):
            self._settle(waiter, Closed())

    def surrender(self, now: int) -> Ask | None:
        """The ask that gives back all that is in hand, if anything is; when none is under way."""
        for permit in self._prefetch.take_out(bool):
            self.give_back(permit)
        self._return_surplus(now)
        return self._ask(now, []) if self._returns else None

    def lost(self) -> None:
        """An ask ended without an answer (its asker was killed)."""
        self._asking = False

    # What to do

    def settle(self, now: int) -> None:
        """Give every waiter the outcome that is due."""
        if self._closed:
            self.close()  # who lost a permit to time came back into a closed lane
        self._book_anew(now)
        self._hand_out(now)
        self._turn_away(now)
        self._return_surplus(now)

    def _hand_out(self, now: int) -> None:
        if self._queue:
            self._hand.add(self._prefetch.take_out(lambda permit: now <= self._lasts(permit)))
        times = self._expired + 1
        while self._queue and self._hand and self._hand[0].at <= now and not self._stale(now):
            permit = self._hand.pop_first()
            if permit.expires < now:  # counted from the asking: not in the order of `at`
                self._expired = times
                self.exchange(permit, times, now)
                continue
            waiter = self._queue.first_covered(permit.costs)
            if waiter is None:
                self.give_back(permit)
                continue
            self._expired = 0
            surplus = tuple(
                have - need for have, need in zip(permit.costs, waiter.costs, strict=True)
            )
            if any(surplus):
                self._file(GiveBack(permit.ticket, surplus), 0)
                permit = replace(permit, costs=waiter.costs)
            self._prefetch.count()
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
        for waiter, refused in self._patience.hopeless(now, self._held, self.source):
            self._settle(waiter, refused)
        while (late := self._queue.past(now)) is not None:
            if not self._hand and (late.hears > self._rounds or 0 < self._late <= TRIES):
                return  # `act` is about to ask for it, maybe again: it was not refused
            self._settle(late, self._patience.too_late(late, now, self._held, self.source))

    def _settle(self, waiter: Waiter, outcome: Outcome) -> None:
        waiter.outcome = outcome
        self._queue.remove(waiter)
        waiter.wake()

    def _return_surplus(self, now: int) -> None:
        """What may go now is kept for who comes next; the rest, and what has expired, goes back."""
        for permit in self._hand.take_surplus(self._queue):
            usable = permit.ticket.source != "share" and permit.at <= now <= permit.expires < NEVER
            if not usable or self._queue or not self._prefetch.keep(permit):
                self.give_back(permit)
        for permit in self._prefetch.take_out(lambda permit: self._lasts(permit) < now):
            self.give_back(permit)

    def _lasts(self, permit: Permit) -> int:
        """Until when a spare permit may be used without another look at the store (Rule 3)."""
        return min(permit.expires, self._news + FRESH)

    def act(self, now: int) -> Ask | Sleep | None:
        """What the shell is to do, after `settle`. An ask that is returned is under way."""
        if self._closed:
            return REST
        check = bool(self._hand) and self._stale(now)
        if not self._asking:
            checks = check and now >= self._hand[0].at - CHECK_AHEAD
            if checks or (not (self._in_line and self._hand) and now >= self._resume_at):
                uncovered = self._hand.uncovered(self._queue, MOST_AT_ONCE)
                if uncovered or checks:
                    return self._ask(now, uncovered)
            if self._returns and not self._queue and now >= self._returns.due:
                return self._ask(now, [])
        until = self._wake_at(now, check) if self._queue else self._idle_until()
        return REST if until is None and not self._queue else Sleep(until)

    def _idle_until(self) -> int | None:
        """When somebody must look after the lane although nobody waits; None for never."""
        until = NEVER if self._asking else self._returns.due
        spare = self._prefetch.first
        if spare is not None:
            until = min(until, self._lasts(spare) + 1)
        return None if until == NEVER else until

    @property
    def _returns_at(self) -> int:
        """When what goes back makes room for who waits, a crowd's leavers all at once."""
        return max(self._returns.due, self._room_made + LINGER)

    def _wake_at(self, now: int, check: bool) -> int | None:
        times = [] if self._room_at == NEVER else [self._room_at]
        if self._hand and not (check and self._asking):
            times.append(self._hand[0].at - (CHECK_AHEAD if check else 0))
        if not self._asking:
            if now < self._returns_at and self._waits_far(self._returns_at):
                times.append(self._returns_at)
            deadline = self._queue.next_deadline()
            if not self._hand:
                times.append(self._resume_at)  # who is late by then is turned away by the answer
            elif deadline is not None:
                times.append(deadline + 1)
        return min(times, default=None)

    def _ask(self, now: int, waiters: list[Waiter]) -> Ask:
        """One ask for all that have no permit in hand, with all that is to be given back."""
        groups = groups_of(waiters, self.held_for(now))
        if groups:
            first, *others = groups
            groups = (first._replace(requests=first.requests + self._ahead(now, groups)), *others)
        self._asking = True
        return self._asks.make(now, waiters, groups, self._returns.take())

    def _ahead(self, now: int, groups: tuple[Group, ...]) -> int:
        """How many permits to ask for beyond those who wait."""
        plenty, costs = 0, groups[0].costs
        if self._plenty and self.source != "share" and len(groups) == 1:
            rows = zip(self.left, self.limits, costs, strict=True)
            rooms = [(left - limit.most // 2) // cost for left, limit, cost in rows if cost]
            plenty = min(rooms, default=0)
        lifetime = min(self.guard // 2, FRESH)
        return self._prefetch.ahead(now, costs, lifetime, min(plenty, MOST_AT_ONCE))
