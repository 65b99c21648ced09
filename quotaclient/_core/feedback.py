"""What an upstream's answer says about its quota.

Retry-After is read as RFC 9110 §10.2.3 has it, and as it is sent besides: with decimals, as a
duration in Go's notation, as a stamp in seconds or milliseconds since 1970, or in `retry-after-ms`
(Azure, OpenAI). Nothing here raises: a line that cannot be read is ignored, by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from quotaclient._core.limits import Limit

_DAY = 86_400.0
# Longer than the longest reset in use, a month, and far from anything that a timer chokes on.
_MOST = 32 * _DAY
# Longer than any date or duration in use; bounds what reading can cost.
_MAX_SCALAR = 128

# 420: Twitter's, still sent by EVE Online; 418: Binance's ban; 529: Anthropic's "overloaded".
_REFUSALS = frozenset({418, 420, 429, 529})
# Throttling only with evidence, which Retry-After is (RFC 9110 §15.5.14 and §15.6.4).
_THROTTLING = _REFUSALS | {413, 503}
_OVERLOAD = frozenset({503, 529})

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|us|ns|h|m|s)")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_DURATION_UNITS = {"h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

# The three forms of RFC 9110 §5.6.7. The day of the week is not checked; no zone means UTC. "-0000"
# is what Python's email.utils.formatdate() writes unless told otherwise.
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-5][0-9]|60)"
_ZONE = r"(?: (?:GMT|UTC|[+-]0000))?"
_DATES = tuple(
    re.compile(form)
    for form in (
        rf"[A-Z][a-z]{{2}}, (?P<day>[0-9]{{1,2}}) (?P<month>[A-Z][a-z]{{2}}) (?P<year>[0-9]{{4}})"
        rf" {_TIME}{_ZONE}",
        rf"[A-Z][a-z]{{5,8}}, (?P<day>[0-9]{{2}})-(?P<month>[A-Z][a-z]{{2}})-(?P<year>[0-9]{{2}})"
        rf" {_TIME}{_ZONE}",
        rf"[A-Z][a-z]{{2}} (?P<month>[A-Z][a-z]{{2}}) {{1,2}}(?P<day>[0-9]{{1,2}})"
        rf" {_TIME} (?P<year>[0-9]{{4}})",
    )
)
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}


@dataclass(frozen=True, slots=True)
class Feedback:
    """What one answer says about the quota.

    `throttled`: the request was refused for the quota's sake.
    `terminal`: sending it again is pointless, or unwanted; a stated wait still binds others.
    `wait`: seconds from the receipt of the answer during which nobody should send, 0 to 32 days;
        0 where the answer names no time ahead, None where it names none at all.
    `hold_after`: seconds for which later requests must wait although this one succeeded.
    `limits`: the limits that the answer announces.
    `overload`: the upstream is short of capacity (503, 529), which says nothing about our quota.
    """

    throttled: bool
    terminal: bool = False
    wait: float | None = None
    hold_after: float | None = None
    limits: tuple[Limit, ...] = ()
    overload: bool = False


_UNTHROTTLED = Feedback(throttled=False)


def read_feedback(status: int, headers: Iterable[tuple[str, str]], *, now: datetime) -> Feedback:
    """Read one answer's status and header lines.

    `headers`: one pair per line as received, names in any case; lines of the same name stay apart.
    `now`: when the answer arrived, by the caller's clock; without a zone it is UTC.

    Never raises.
    """
    if status not in _THROTTLING:  # nearly every answer: no header is looked at
        return _UNTHROTTLED
    fields: dict[str, list[str]] = {}
    for name, value in headers:
        fields.setdefault(name.lower(), []).append(value.strip(" \t"))
    wait = _stated_wait(fields, now)
    if wait is None and status not in _REFUSALS:
        return _UNTHROTTLED
    terminal = any(value.lower() == "false" for value in fields.get("x-should-retry", ()))
    return Feedback(True, terminal=terminal, wait=wait, overload=status in _OVERLOAD)


def _stated_wait(fields: dict[str, list[str]], now: datetime) -> float | None:
    """The seconds to wait by `retry-after-ms` if it is positive, else by `Retry-After`."""
    short = [_number(value) or 0.0 for value in fields.get("retry-after-ms", ())]
    if any(short):
        return min(max(short) / 1e3, _MOST)
    present = _present(fields, now)
    waits = [_retry_after(value, present, now.year) for value in fields.get("retry-after", ())]
    # Lines that disagree come from different hops; the longest satisfies all of them.
    return max((wait for wait in waits if wait is not None), default=None)


def _present(fields: dict[str, list[str]], now: datetime) -> float:
    """The present by the upstream's clock, in seconds since 1970, for its stamps to be read in.

    `Date` tells it, unless it is over a day off: no clock made that, but a cache or a fixed text.
    """
    ours = (now if now.tzinfo else now.replace(tzinfo=UTC)).timestamp()
    dates = (_date(value, now.year) for value in fields.get("date", ()))
    return next((date for date in dates if date is not None and abs(date - ours) <= _DAY), ours)


def _retry_after(value: str, present: float, year: int) -> float | None:
    """Seconds from `present`, 0 to 32 days, or None if `value` is malformed."""
    number = _number(value)
    if number is not None:
        return _delta_or_stamp(number, present)
    duration = _duration(value)
    if duration is not None:
        return min(duration, _MOST)
    date = _date(value, year)
    return None if date is None else _until(date, present, unit=1.0)


def _delta_or_stamp(number: float, present: float) -> float:
    """A number up to 32 days is a wait; a larger one is a stamp if it lies near the present."""
    if number <= _MOST:
        return number
    for unit in (1.0, 1e-3):
        if abs(number * unit - present) <= _MOST:
            return _until(number * unit, present, unit=unit)
    return _MOST


def _until(stamp: float, present: float, *, unit: float) -> float:
    """Seconds from `present` to the end of the `unit` that `stamp` names, 0 to 32 days.

    To its end, because a stamp is cut off rather than rounded, and to be early is a second refusal.
    """
    return min(max(stamp + unit - present, 0.0), _MOST)


def _number(value: str) -> float | None:
    # The expression goes first: float() also reads "1e3", "1_000", "nan" and digits of any script.
    return float(value) if len(value) <= _MAX_SCALAR and _NUMBER.fullmatch(value) else None


def _duration(value: str) -> float | None:
    if len(value) > _MAX_SCALAR or not _DURATION.fullmatch(value):
        return None
    parts = _DURATION_PART.findall(value)
    return sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)


def _date(value: str, this_year: int) -> float | None:
    """Seconds since 1970 of an HTTP date, or None; a year of two digits is near `this_year`."""
    match = next((match for form in _DATES if (match := form.fullmatch(value))), None)
    if match is None:
        return None
    year = int(match["year"])
    if len(match["year"]) == 2:
        # Not over 50 years ahead (RFC 9110 §5.6.7).
        year = this_year + (year - this_year + 49) % 100 - 49
    month, day = _MONTHS.get(match["month"], 0), int(match["day"])
    try:
        date = datetime(year, month, day, int(match["hour"]), int(match["minute"]), tzinfo=UTC)
    except ValueError:  # 31 Feb, year 0, 24:00
        return None
    return date.timestamp() + int(match["second"])  # a leap second is the next minute's first
