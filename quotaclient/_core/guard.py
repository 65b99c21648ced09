"""The guard: how late a permitted request may arrive, and by how much its windows are widened.

    Rule 1   Automatic, it is 1 % of the shortest period, or of the time in which a bucket fills,
             within bounds; and at least four round trips to the store, so that half of what a
             permit lives is left when it is told.
    Rule 2   When permits expire before they could be used it doubles, also one that a user
             chose: else nothing might ever be sent.
    Rule 3   It never passes half the shortest period.
    Rule 4   After a calm time it halves again, down to what it was at first: the window is not to
             stay wide for one bad moment. Each doubling makes that time twice as long.

Times are whole microseconds; nothing here reads a clock.
"""

from __future__ import annotations

from collections import deque

from quotaclient._core.ask import SECOND
from quotaclient._core.limits import Limit

TRIPS = 8  # the shortest of so many counts: a busy moment of this host is not the network
CALM = 32  # answers in a row without a late permit, until what it grew by is tried without
ENOUGH = 4  # of them say something: on the first connections are made, and whatever else begins


def default_guard(limits: tuple[Limit, ...]) -> int:
    """How late a permitted request may arrive, in microseconds, unless the user says.

    1 % of the shortest period, within 50-500 ms (what a busy host's scheduling and a handshake
    take), but at most a tenth of the period, for the window is widened by it. A bucket that fills
    in less counts as long as that, for what is on its way takes its room: "60/min bucket 1" is
    "1/s bucket 1".
    """
    shortest = min(min(limit.period_us, limit.reach_us) for limit in limits)
    return min(max(shortest // 100, SECOND // 20), SECOND // 2, shortest // 10)


class Guard:
    """The guard of all lanes of a client that have the same limits; `value` in microseconds.

    `warning` says, once, that it had to grow; a shell logs it.
    """

    def __init__(self, limits: tuple[Limit, ...], given: int | None = None) -> None:
        self._limits = limits
        self._longest = min(limit.period_us for limit in limits) // 2
        self._automatic = given is None
        self._first = self._least = default_guard(limits) if given is None else given
        self._calm = 0  # answers since a permit was late
        self._calm_enough = CALM
        self._trips: deque[int] = deque(maxlen=TRIPS)
        self._warned = False
        self.value = self._least
        self.warning: str | None = None

    def took(self, trip: int) -> None:
        """The store was asked and answered in so many microseconds."""
        self._calm += 1
        if self._calm >= self._calm_enough:
            self._least, self._calm = max(self._least // 2, self._first), 0
        self._trips.append(trip)
        shortest = min(self._trips) if self._automatic and len(self._trips) >= ENOUGH else 0
        self.value = max(self._least, min(4 * shortest, self._longest))
        if self.value > self._least:
            self._warn(f"Redis takes {shortest / SECOND:.3f} s to answer")

    def widen(self) -> None:
        """Permits expired before they could be used."""
        self._calm = 0
        wider = min(2 * self.value, self._longest)
        if wider > self.value:
            self.value = self._least = wider
            self._calm_enough *= 2
            self._warn("permits expired before their requests could leave")

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            limits = "; ".join(map(str, self._limits))
            self.warning = (
                f"{reason}: the guard of {limits} is {self.value / SECOND:.3f} s now, and the"
                " windows are widened by it; what is nearer to Redis, or has longer periods,"
                " sends more"
            )

    def take_warning(self) -> str | None:
        """The warning, the first time."""
        warning, self.warning = self.warning, None
        return warning
