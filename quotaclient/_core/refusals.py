"""What the store refused, as an answer to those who come next.

Who polls a full window is not to cost a call each time. But others may give back at any moment,
and a first ask deserves the store's own answer: only who is refused time and again is answered
from memory, and not for long. Times are whole microseconds on the caller's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from quotaclient._core.queue import Refused, Waiter

OFTEN = 2  # refusals in a row that are asked for


@dataclass(frozen=True, slots=True)
class Refusal:
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
        self._last: Refusal | None = None

    def note(self, refusal: Refusal, now: int, horizon: int) -> None:
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
