"""What a quota tells of its decisions, and how what was really used is told to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quotaclient._core.ask import Permit, Source
from quotaclient._core.limits import Limit
from quotaclient._core.options import Cost, checked_use

Correct = Callable[[Permit, tuple[int, ...]], None]


class Booking:
    """The units that one permit has in its windows."""

    __slots__ = ("_correct", "_costs", "_limits", "_permit")

    def __init__(self, limits: tuple[Limit, ...], permit: Permit, correct: Correct) -> None:
        self._limits = limits
        self._permit = permit
        self._costs = permit.costs
        self._correct = correct

    def settle(self, cost: Cost) -> None:
        used = checked_use(cost, self._limits, self._costs)
        unused = tuple(have - use for have, use in zip(self._costs, used, strict=True))
        if any(unused):
            self._costs = used
            self._correct(self._permit, unused)


@dataclass(frozen=True, slots=True)
class Decision:
    """How a request got its permit: `response.extensions["quota"]`, or what `acquire` returns.

    `remaining`: units that could go at once, in the fullest of its windows, when the store was
    last asked. `waited`: seconds, all waits together. `source`: who granted it: "store" (Redis),
    "local" (the windows of this process) or "share" (this replica's, while Redis is away).
    `attempts`: how often the request was sent. `hold`: seconds that the upstream asked everybody
    to wait with this answer, None if it did not.
    """

    remaining: int
    waited: float
    source: Source
    attempts: int = 1
    hold: float | None = None
    _booking: Booking | None = field(default=None, repr=False, compare=False)

    def settle(self, cost: Cost) -> None:
        """Book what was really used, in place of the cost: less, or more.

        A mapping settles the windows that it names, a number all of them, where all count the
        same. Does no I/O: the next call to the store takes it along, half a second later at the
        latest. What is settled a period or more after the request left changes nothing, nor does
        what is settled after the client was closed. May be called again, with a better number.
        Raises ValueError for what is no cost; more than the limit is none here, for it was used.
        """
        if self._booking is not None:
            self._booking.settle(cost)


@dataclass(frozen=True, slots=True)
class Usage:
    """What `peek` sees. `used`: units per limit, reservations included. `hold`: seconds or None."""

    remaining: int
    used: dict[Limit, int]
    hold: float | None
    source: Source


class Exceeded(Exception):
    """What the `QuotaExceeded` of each HTTP library tells, besides its message."""

    def __init__(
        self,
        message: str,
        *,
        retry_after: float = 0.0,
        limit: Limit | None = None,
        source: str = "store",
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.limit = limit
        self.source = source
