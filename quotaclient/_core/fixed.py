"""The record of a fixed limit: so many units in each period of a calendar.

A unit that may arrive anywhere in [at, by] counts in every period that this touches. So it is
kept as the run of these periods: it occupies the window from the first one's beginning to the last
one's end, as one does that is sent at [beginning, end - period] of a sliding limit, and by the same
rules. Units of the same periods are one run, whenever they were granted.

Runs are in microseconds of UTC, whatever clock the asks are in: a wall clock that is set, or runs
ahead, leaves them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from quotaclient._core.calendar import Calendar
from quotaclient._core.limits import Limit
from quotaclient._core.window import Window

_UTC = Calendar(0, 0, 0)


@dataclass(slots=True)
class FixedWindow(Window):
    """The record of one fixed limit under one key."""

    calendar: Calendar = _UTC

    def open(self, limit: Limit, now: int, epoch: int) -> None:
        self.epoch = epoch
        assert limit.zone is not None  # fixed limits have one
        self.calendar = Calendar.of(limit.zone, self.period, now + epoch)
        self.forget(now)

    def covered(self, at: int, by: int) -> tuple[int, int]:
        start, _ = self.calendar.bounds(at, self.period)
        _, end = self.calendar.bounds(by, self.period)
        return start, end - self.period

    def sends(self, now: int) -> list[tuple[int, int, int]]:
        # In the middle of their periods: another clock, a little apart, counts them in the same.
        now += self.epoch
        return [
            (
                now - self._middle(run.at),
                now - self._middle(run.by + self.period - 1),
                ceil(run.units),
            )
            for run in self.runs
        ]

    def _middle(self, instant: int) -> int:
        """The middle of the period that an instant is in."""
        return sum(self.calendar.bounds(instant, self.period)) // 2
