"""When the days of a zone begin and end, and the hours, also where clocks are set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaclient._core.calendar import DAY, Calendar, is_zone

HOUR = DAY // 24
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(text: str) -> int:
    """An instant in UTC."""
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def period_at(zone: str, text: str, period: int = DAY) -> tuple[str, int]:
    """When the period at an instant began, in UTC, and how many minutes it takes."""
    when = instant(text)
    start, end = Calendar.of(zone, period, when).bounds(when, period)
    began = (EPOCH + timedelta(microseconds=start)).isoformat(" ", "minutes")
    return began.removesuffix("+00:00"), (end - start) * 60 // HOUR


@pytest.mark.parametrize(
    ("zone", "when", "began", "minutes"),
    [
        ("UTC", "2024-03-10 23:59:59.999999", "2024-03-10 00:00", 1440),
        ("UTC", "2024-03-11 00:00", "2024-03-11 00:00", 1440),
        ("Asia/Kolkata", "2024-03-10 18:29:59", "2024-03-09 18:30", 1440),
        ("Asia/Kolkata", "2024-03-10 18:30", "2024-03-10 18:30", 1440),
        # Clocks go forward at 2:00, back at 2:00.
        ("America/Los_Angeles", "2024-03-10 07:59", "2024-03-09 08:00", 1440),
        ("America/Los_Angeles", "2024-03-10 08:00", "2024-03-10 08:00", 1380),
        ("America/Los_Angeles", "2024-03-11 06:59", "2024-03-10 08:00", 1380),
        ("America/Los_Angeles", "2024-03-11 07:00", "2024-03-11 07:00", 1440),
        ("America/Los_Angeles", "2024-11-03 07:00", "2024-11-03 07:00", 1500),
        ("America/Los_Angeles", "2024-11-04 07:59", "2024-11-03 07:00", 1500),
        ("America/Los_Angeles", "2024-11-04 08:00", "2024-11-04 08:00", 1440),
        # Forward at 0:00, so that the day begins at 1:00; back at 1:00, so that 0:00 comes twice.
        ("America/Havana", "2024-03-10 04:59", "2024-03-09 05:00", 1440),
        ("America/Havana", "2024-03-10 05:00", "2024-03-10 05:00", 1380),
        ("America/Havana", "2024-11-03 04:00", "2024-11-03 04:00", 1500),
        ("America/Havana", "2024-11-03 05:30", "2024-11-03 04:00", 1500),
        ("America/Havana", "2024-11-04 05:00", "2024-11-04 05:00", 1440),
        # Forward at 24:00; back at 24:00 to 23:00 of the day before.
        ("America/Santiago", "2024-09-08 03:59", "2024-09-07 04:00", 1440),
        ("America/Santiago", "2024-09-08 04:00", "2024-09-08 04:00", 1380),
        ("America/Santiago", "2024-04-07 03:59", "2024-04-06 03:00", 1500),
        ("America/Santiago", "2024-04-07 04:00", "2024-04-07 04:00", 1440),
        # Back at 0:01: the day that had begun for a minute belongs to the one before.
        ("America/St_Johns", "2010-11-07 02:30", "2010-11-06 02:30", 1500),
        ("America/St_Johns", "2010-11-07 03:30", "2010-11-07 03:30", 1440),
        # By half an hour.
        ("Australia/Lord_Howe", "2024-04-06 16:00", "2024-04-06 13:00", 1470),
    ],
)
def test_days(zone: str, when: str, began: str, minutes: int) -> None:
    """A day begins at its midnight, or where there is none when clocks are set; it ends so, too."""
    assert period_at(zone, when) == (began, minutes)


@pytest.mark.parametrize(
    ("zone", "when", "hours", "began", "minutes"),
    [
        ("America/Los_Angeles", "2024-03-10 10:30", 1, "2024-03-10 10:00", 60),
        ("America/Los_Angeles", "2024-11-03 09:30", 1, "2024-11-03 09:00", 60),
        ("America/Los_Angeles", "2024-03-10 10:30", 2, "2024-03-10 10:00", 60),
        ("America/Los_Angeles", "2024-11-03 09:30", 2, "2024-11-03 07:00", 180),
        ("America/Los_Angeles", "2024-11-03 10:00", 2, "2024-11-03 10:00", 120),
        ("Australia/Lord_Howe", "2024-04-06 15:15", 1, "2024-04-06 14:00", 90),
    ],
)
def test_parts_of_a_day(zone: str, when: str, hours: int, began: str, minutes: int) -> None:
    """Setting clocks by whole periods changes none; else one is shorter, or longer."""
    assert period_at(zone, when, hours * HOUR) == (began, minutes)


@given(
    st.sampled_from(["America/Havana", "America/St_Johns", "Africa/Casablanca", "Asia/Tehran"]),
    st.sampled_from([HOUR * 24, HOUR * 12, HOUR * 2, HOUR * 3 // 4, HOUR]),
    st.integers(instant("1995-01-01"), instant("2035-01-01")),
    st.integers(-DAY, DAY),
)
def test_periods_follow_each_other(zone: str, period: int, now: int, away: int) -> None:
    """Every instant is in one period, and at the end of a period the next one begins."""
    calendar = Calendar.of(zone, period, now)
    start, end = calendar.bounds(now + away, period)
    assert start <= now + away < end
    assert calendar.bounds(start, period) == calendar.bounds(end - 1, period) == (start, end)
    assert calendar.bounds(end, period)[0] == end


@given(
    st.sampled_from(["America/Los_Angeles", "America/Santiago", "Asia/Kolkata"]),
    st.integers(instant("1995-01-01"), instant("2035-01-01")),
)
def test_a_day_is_one_date(zone: str, now: int) -> None:
    """What shows the same date there is one day, and nothing else is."""
    start, end = Calendar.of(zone, DAY, now).bounds(now, DAY)
    before, first, last, after = (
        (EPOCH + timedelta(microseconds=when)).astimezone(ZoneInfo(zone)).date()
        for when in (start - 1, start, end - 1, end)
    )
    assert before < first == last < after


def test_a_change_after_one_that_moves_no_edge() -> None:
    """A zone that skips a whole day, and then sets its clocks back, has a day of 25 hours then."""
    calendar = Calendar.of("Pacific/Apia", DAY, instant("2011-12-29 12:00"))
    start, end = calendar.bounds(instant("2012-03-31 13:30"), DAY)
    assert (start, end) == (instant("2012-03-31 10:00"), instant("2012-04-01 11:00"))


def test_the_end_of_all_calendars() -> None:
    """A clock that is set to the last of years finds no change after that."""
    assert Calendar.of("America/Havana", DAY, 2**60).change == 0


def test_zones_are_looked_up() -> None:
    """A name that no file in the database has is none."""
    assert is_zone("Europe/Berlin")
    for name in ("Europe/Atlantis", "Europe", "", "../etc", "Europe/Berlin\n", "x" * 500, "Ä"):
        assert not is_zone(name)
