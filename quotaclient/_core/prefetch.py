"""Permits that are asked for before they are needed, so that most requests ask nobody.

    Rule 1   Only while permits are immediate and less than half of a limit is used: who has to
             wait, or is refused, is not to be so for what nobody needs yet.
    Rule 2   No more than lately were used in the time that a permit lasts, and no more than
             twice what was used since the last ask: a burst is no rate.
    Rule 3   What is spare goes to the next request, and back before it expires.

Times are whole microseconds on the caller's clock; nothing here reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from quotaclient._core.ask import Permit

SURE = 8  # asks in a row, each soon after the last, that make a rate of some requests
PLENTY = 4  # times as much as is asked for must be left: others ask ahead too


class Prefetch:
    """The permits in hand that may go now and that nobody waits for, and how many to ask for."""

    def __init__(self) -> None:
        self._spare: deque[Permit] = deque()
        self._quick = 0  # asks in a row that came soon after another
        self._costs: tuple[int, ...] = ()  # what was asked for last
        self._used = 0  # permits since the last ask
        self._asked = 0  # when that was

    def __len__(self) -> int:
        return len(self._spare)

    @property
    def units(self) -> tuple[int, ...]:
        """What the spare permits are worth, per window; () without any."""
        if not self._spare:
            return ()
        return tuple(len(self._spare) * cost for cost in self._spare[0].costs)

    @property
    def first(self) -> Permit | None:
        """The one that is used next."""
        return self._spare[0] if self._spare else None

    def count(self, permits: int = 1) -> None:
        """So many were used."""
        self._used += permits

    def keep(self, permit: Permit) -> bool:
        """Keep one that nobody needs now, if it is like the others."""
        alike = not self._spare or self._spare[0].costs == permit.costs
        if alike:
            self._spare.append(permit)
        return alike

    def take(self, costs: tuple[int, ...], now: int) -> Permit | None:
        """One for a request of these costs, if there is any."""
        spare = self._spare
        if spare and spare[0].costs == costs and now <= spare[0].expires:
            self._used += 1
            return spare.popleft()
        return None

    def take_out(self, gone: Callable[[Permit], bool]) -> list[Permit]:
        """Take out those that are of no use any more."""
        taken = [permit for permit in self._spare if gone(permit)]
        if taken:
            self._spare = deque(permit for permit in self._spare if not gone(permit))
        return taken

    def ahead(self, now: int, costs: tuple[int, ...], lifetime: int, plenty: int) -> int:
        """How many to ask for now beyond those who wait.

        `costs`: what each costs. `lifetime`: how long a permit can be used. `plenty`: requests
        until half of a limit is used, 0 when permits are not immediate.
        """
        used, elapsed = self._used, now - self._asked
        self._used, self._asked = 0, now
        expected = used * lifetime // max(elapsed, 1)
        self._quick = self._quick + 1 if expected and costs == self._costs else 0
        self._costs = costs
        if self._quick < SURE:
            return 0
        return max(0, min(2 * used, expected, plenty // PLENTY))
