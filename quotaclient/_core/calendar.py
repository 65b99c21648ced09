"""Aligned periods: where the days of a zone, and what divides them, begin and end.

Periods are stretches of local time, numbered from its 1970. One change of the zone's offset at a
time is looked at, the next one of `Calendar.of`; a change by whole periods moves no edge and is
none. Instants are whole microseconds of UTC; what the clock says is an argument.

    A period that a change cuts short ends with it, or begins with it: a day has 23 hours. One that
    it repeats, or part of it, is one: a day has 25, also where the clock goes back over midnight.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = (datetime(9999, 12, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}")


class Calendar(NamedTuple):
    """Microseconds to add to UTC: `offset`, but from the instant `change` on `after`.

    `change` is 0 where none is near.
    """

    offset: int
    change: int
    after: int

    @classmethod
    def of(cls, zone: str, period: int, now: int) -> Calendar:
        """What to know of a zone at `now`, for periods that nobody asks for when they are over.

        A permit may be given back, and clocks differ, up to two days later.
        """
        return _calendar(zone, period, (now - 2 * DAY) // DAY)

    def bounds(self, instant: int, period: int) -> tuple[int, int]:
        """Beginning and end of the period that an instant is in."""
        offset, change, after = self
        if not change:
            start = instant - (instant + offset) % period
            return start, start + period
        first = (change + after) // period  # the period that the change leads into
        if instant < change:
            number = min((instant + offset) // period, first)
            end = (number + 1) * period
            return number * period - offset, end - after if number == first else min(
                end - offset, change
            )
        number = (instant + after) // period
        start = number * period - after
        if number == first:
            repeated = (change - 1 + offset) // period >= first
            start = first * period - offset if repeated else change
        return start, (number + 1) * period - after


def is_zone(name: str) -> bool:
    """Whether the time zone database knows a zone by this name."""
    if not _NAME.fullmatch(name):
        return False
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # none; not one; a folder of them
        return False
    return True


@lru_cache(maxsize=1024)
def _calendar(zone: str, period: int, day: int) -> Calendar:
    """The first change from a day on, within a year."""
    start = min(day * DAY, _LAST)
    offset = _offset(zone, start)
    for later in range(start + DAY, min(start + 366 * DAY, _LAST), DAY):
        after = _offset(zone, later)
        if (after - offset) % period:
            return Calendar(offset, _change(zone, later - DAY, later), after)
        offset = after
    return Calendar(offset, 0, offset)


def _change(zone: str, before: int, later: int) -> int:
    """The one instant between two at which the offset changes."""
    old = _offset(zone, before)
    while later - before > 1:
        middle = (before + later) // 2
        if _offset(zone, middle) == old:
            before = middle
        else:
            later = middle
    return later


def _offset(zone: str, instant: int) -> int:
    local = (_EPOCH + timedelta(microseconds=instant)).astimezone(ZoneInfo(zone))
    offset = local.utcoffset()
    assert offset is not None  # zones have one
    return offset // timedelta(microseconds=1)
