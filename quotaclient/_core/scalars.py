"""Numbers, spans and instants as upstreams write them; None for what cannot be read.

    Rule 1   What is longer than any such value in use is not looked at: reading is bounded.
    Rule 2   The whole text must be one: no signs, exponents, "nan", "1_000" or digits of other
             scripts, which float() and int() would read.
    Rule 3   Waits are 0 to 32 days: longer than the longest reset in use, a month, and far from
             anything that a timer chokes on.
    Rule 4   An instant counts to the end of its second, because a stamp is cut off rather than
             rounded, and to be early is a second refusal.

Instants are seconds since 1970; the present is an argument.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

DAY = 86_400.0
MOST = 32 * DAY
LONGEST_SCALAR = 128  # characters
_YEAR = 365.2425 * DAY

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SPAN_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|us|µs|ns|h|m|s)")
_SPAN = re.compile(rf"(?:{_SPAN_PART.pattern})+")
_SPAN_UNITS = {"h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_CLOCK_SPAN = re.compile(r"([0-9]{1,3}):([0-5][0-9]):([0-5][0-9])")

_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-5][0-9]|60)"
_OFFSET = r"(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-5][0-9])"
_DATES = tuple(
    re.compile(form)
    for form in (
        # The three forms of RFC 9110 section 5.6.7. The day of the week is not checked; no zone
        # means UTC. "-0000" is what Python's email.utils.formatdate() writes unless told otherwise.
        rf"[A-Z][a-z]{{2}}, (?P<day>[0-9]{{1,2}}) (?P<month>[A-Z][a-z]{{2}}) (?P<year>[0-9]{{4}})"
        rf" {_TIME}(?: (?:GMT|UTC|[+-]0000))?",
        rf"[A-Z][a-z]{{5,8}}, (?P<day>[0-9]{{2}})-(?P<month>[A-Z][a-z]{{2}})-(?P<year>[0-9]{{2}})"
        rf" {_TIME}(?: (?:GMT|UTC|[+-]0000))?",
        rf"[A-Z][a-z]{{2}} (?P<month>[A-Z][a-z]{{2}}) {{1,2}}(?P<day>[0-9]{{1,2}})"
        rf" {_TIME} (?P<year>[0-9]{{4}})",
        # JavaScript's Date.prototype.toString().
        rf"[A-Z][a-z]{{2}} (?P<month>[A-Z][a-z]{{2}}) (?P<day>[0-9]{{2}}) (?P<year>[0-9]{{4}})"
        rf" {_TIME} (?:GMT|UTC)(?:{_OFFSET})?(?: \([^()]*\))?",
        # ISO 8601 and RFC 3339, with or without seconds and zone.
        r"(?P<year>[0-9]{4})-(?P<number>[0-9]{2})-(?P<day>[0-9]{2})[T ](?P<hour>[0-9]{2}):"
        r"(?P<minute>[0-9]{2})(?::(?P<second>[0-5][0-9]|60)(?:\.[0-9]+)?)?"
        rf"(?:Z| ?UTC|{_OFFSET})?",
    )
)
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}


def number(text: str) -> float | None:
    """A number of at least 0."""
    return float(text) if len(text) <= LONGEST_SCALAR and _NUMBER.fullmatch(text) else None


def span(text: str) -> float | None:
    """Seconds, 0 to 32 days: in Go's notation ("6m0s", "250ms"), or as hh:mm:ss."""
    if len(text) > LONGEST_SCALAR:
        return None
    if _SPAN.fullmatch(text):
        parts = _SPAN_PART.findall(text)
        return min(sum(float(digits) * _SPAN_UNITS[unit] for digits, unit in parts), MOST)
    clock = _CLOCK_SPAN.fullmatch(text)
    if clock is None:
        return None
    hours, minutes, seconds = map(int, clock.groups())
    return min(float(hours * 3_600 + minutes * 60 + seconds), MOST)


def instant(text: str, present: float) -> float | None:
    """Seconds since 1970 of a date; a year of two digits is one near the present."""
    if len(text) > LONGEST_SCALAR:
        return None
    match = next((match for form in _DATES if (match := form.fullmatch(text))), None)
    if match is None:
        return None
    found = match.groupdict()
    year = int(found["year"])
    if len(found["year"]) == 2:
        this_year = 1970 + int(present // _YEAR)
        year = this_year + (year - this_year + 49) % 100 - 49  # not over 50 ahead, says the RFC
    month = int(found["number"]) if "number" in found else _MONTHS.get(found["month"], 0)
    try:
        date = datetime(
            year, month, int(found["day"]), int(found["hour"]), int(found["minute"]), tzinfo=UTC
        )
    except ValueError:  # 31 Feb, year 0, 24:00
        return None
    # A leap second is the next minute's first.
    return date.timestamp() + int(found["second"] or 0) - _offset(found)


def _offset(found: dict[str, str | None]) -> int:
    if not found.get("sign"):
        return 0
    seconds = int(found["hours"] or 0) * 3_600 + int(found["minutes"] or 0) * 60
    return -seconds if found["sign"] == "-" else seconds


def until(stamp: float, present: float, unit: float = 1.0) -> float:
    """Seconds from the present to the end of the `unit` that a stamp names, 0 to 32 days."""
    return min(max(stamp + unit - present, 0.0), MOST)


def retry_after(text: str, present: float) -> float | None:
    """Seconds to wait by a Retry-After: a span, a date, or a stamp in seconds or milliseconds.

    A number up to 32 days is a span; a larger one a stamp if it lies within 32 days of the
    present; if not, it says "not for long".
    """
    value = number(text)
    if value is None:
        return _span_or_date(text, present)
    if value <= MOST:
        return value
    for unit in (1.0, 1e-3):
        if abs(value * unit - present) <= MOST:
            return until(value * unit, present, unit)
    return MOST


def reset(text: str, present: float) -> float | None:
    """Seconds until a reset: a span, a date, or a stamp in seconds, or thousandths of those.

    A stamp is at most 32 days ahead; one that lies back by up to a day has passed.
    """
    value = number(text)
    if value is None:
        return _span_or_date(text, present)
    if value <= MOST:
        return value
    for unit in (1.0, 1e-3, 1e-6, 1e-9):
        if -DAY <= value * unit - present <= MOST:
            return until(value * unit, present, unit)
    return None


def _span_or_date(text: str, present: float) -> float | None:
    seconds = span(text)
    if seconds is not None:
        return seconds
    date = instant(text, present)
    return None if date is None else until(date, present)
