"""Who cannot be served in time is told so at once, with the time it would take.

    Rule 1   The permits in hand say when those in line go at the earliest, and a hold says so.
    Rule 2   What the store refused is an answer to those who come next. Who polls a full window is
             not to cost a call each time; but others may give back at any moment, and a first ask
             deserves the store's own answer: only who is refused time and again is answered from
             memory, and not for long.

Times are whole microseconds on the caller's clock; nothing here reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quotaclient._core.ask import Refusal, Source
from quotaclient._core.hand import Hand
from quotaclient._core.limits import Limit
from quotaclient._core.queue import SLACK, Refused, Waiter, WaitQueue, covers

OFTEN = 2  # refusals in a row that are asked for


@dataclass(frozen=True, slots=True)
class Precedent:
    """An answer for all who draw `cost` or more on the window that refused, and cannot wait."""

    refused: Refused
    cost: int

    def concerns(self, waiter: Waiter) -> bool:
        """Whether it answers a waiter, too."""
        at, window = self.refused.refusal
        hasty = waiter.deadline is not None and waiter.deadline < at
        return hasty and (window is None or waiter.costs[window] >= self.cost)


class Memory:
    """The last refusal, if there were many in a row; `until` when it answers."""

    def __init__(self) -> None:
        self.until = 0
        self._in_a_row = 0
        self._last: Precedent | None = None

    def note(self, refusal: Precedent, now: int, horizon: int) -> None:
        """The store refused once more; `horizon`: how fast its windows change."""
        self._in_a_row += 1
        if self._in_a_row > OFTEN:
            self._last = refusal
            self.until = min(refusal.refused.refusal.at, now + horizon // 4)

    def forget(self) -> None:
        """There is more room in the windows than when it refused."""
        self._in_a_row = self.until = 0

    def answer(self, waiter: Waiter, now: int) -> Refused | None:
        """What the store would say, as far as is known."""
        if now < self.until and self._last is not None and self._last.concerns(waiter):
            return self._last.refused
        return None


class Patience:
    """Whom a lane turns away, by what it has in hand and what it knows."""

    def __init__(self, limits: tuple[Limit, ...], queue: WaitQueue, hand: Hand) -> None:
        self._limits = limits
        self._queue = queue
        self._hand = hand
        self._newcomers: list[Waiter] = []
        self.memory = Memory()

    def meet(self, waiter: Waiter) -> None:
        """Somebody has come who will not wait for ever."""
        self._newcomers.append(waiter)

    def hopeless(self, now: int, held: int, source: Source) -> Iterator[tuple[Waiter, Refused]]:
        """The newcomers whose time ends too early; `held`: nobody goes before this instant."""
        if self._hand or max(held, self.memory.until) > now:
            newcomers, self._newcomers = self._newcomers, []
            in_hand = self._hand.units(len(self._limits)) if newcomers else ()
            for waiter in newcomers:
                if waiter.waiting and waiter.deadline is not None:
                    at = self._not_before(waiter, held, in_hand)
                    if at > max(waiter.deadline, now):
                        yield waiter, self._refused(waiter, at, held, source)
                    elif (refused := self.memory.answer(waiter, now)) is not None:
                        yield waiter, refused
        elif len(self._newcomers) > 2 * len(self._queue) + SLACK:  # most were served at once
            self._newcomers = [waiter for waiter in self._newcomers if waiter.waiting]

    def too_late(self, waiter: Waiter, now: int, held: int, source: Source) -> Refused:
        """The answer for somebody whose time has passed."""
        at = self._not_before(waiter, held, self._hand.units(len(self._limits)))
        return self._refused(waiter, max(now, at), held, source)

    def _not_before(self, waiter: Waiter, held: int, in_hand: tuple[int, ...]) -> int:
        """The earliest that a waiter can hope for, by what is known.

        Its own permit, if one in hand is its. Else the last in hand; from there on the requests
        between need their whole periods: a part of a period may pass all at once.
        """
        requests, *units = self._queue.ahead_of(waiter)
        if not self._hand:
            return held
        if self._queue.only_costs is None:  # who stands before may not be covered by the first
            mine = (permit.at for permit in self._hand if covers(permit.costs, waiter.costs))
            return next(mine, held)
        if requests < len(self._hand):
            return self._hand[max(requests, 0)].at
        last = self._hand[-1]
        at = last.at
        for limit, ahead, booked, before, cost in zip(
            self._limits, units, in_hand, last.costs, waiter.costs, strict=True
        ):
            if cost:
                between = max(ahead - booked, 0) + before + cost - 1
                at = max(at, last.at + limit.least_span(between))
        return at

    def _refused(self, waiter: Waiter, at: int, held: int, source: Source) -> Refused:
        """Name the window that is slowest for these costs, unless a hold is what it waits for."""
        pace = [
            cost * limit.period / limit.count
            for limit, cost in zip(self._limits, waiter.costs, strict=True)
        ]
        window = None if at <= held else pace.index(max(pace))
        return Refused(Refusal(at, window), source)
