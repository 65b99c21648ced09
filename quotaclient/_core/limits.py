"""Limits: at most `count` units in any `period` seconds, and the text that says so.

The text, with blanks anywhere between words and no blank needed around "/":

    limits = limit (";" limit)*                        10/s; 1000/h
    limit  = count [name] ("/" | "per") period         90000 tokens/min
    period = [number] unit                             5 per 2 minutes

The functions at the end decide what is valid; everything that makes a limit passes through them.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

Kind = Literal["sliding"]

# Redis computes in doubles, exact to 2**53 ≈ 9e15: room for the sum of thousands of full windows.
_MAX_COUNT = 10**12
# Redis expires keys by the millisecond; a shorter window could not be told from none.
_MIN_PERIOD = 0.001
# A leap year: the longest quota that anyone sells by.
_MAX_PERIOD = 366 * 86_400
# Some fifty limits with names; more is not a limit but a file handed in by mistake.
_MAX_TEXT = 1_000

_UNITS = {
    name: seconds
    for seconds, names in {
        1: ("s", "sec", "secs", "second", "seconds"),
        60: ("m", "min", "mins", "minute", "minutes"),
        3_600: ("h", "hr", "hrs", "hour", "hours"),
        86_400: ("d", "day", "days"),
    }.items()
    for name in names
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
# A name stands apart from its count: "1e3/min" and "100k/min" are mistakes, not 1 e3 and 100 k.
_LIMIT = re.compile(
    rf"""(?P<count>[0-9]+) (?:\s+(?P<name>{_NAME.pattern}))?
         (?: \s*/\s* | \s+(?i:per)\s+ )
         (?P<number>[0-9]+(?:\.[0-9]+)?)? \s* (?P<unit>[A-Za-z]+)""",
    re.ASCII | re.VERBOSE,
)


class InvalidLimit(ValueError):
    """A limit that cannot be; the message shows the value and a correct example."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of time to divide a count by: `100 / minute`, `200 / (10 * second)`.

    `seconds`: 0.001 to 366 days; anything else raises InvalidLimit.
    """

    seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", _checked_period(self.seconds))

    def __mul__(self, factor: float) -> Unit:
        return Unit(_checked_number(factor) * self.seconds)

    __rmul__ = __mul__

    def __rtruediv__(self, count: int) -> Limit:
        return Limit(count, self)


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """At most `count` units in any `period`.

    `count`: whole units, 1 to 10**12.
    `period`: seconds, 0.001 to 366 days, or a unit such as `minute`; kept to the whole microsecond.
    `name`: what is counted; a letter, then up to 63 letters, digits, "_" or "-".
    `kind`: "sliding", which holds for every stretch of `period` seconds, wherever it begins.
    `route`: whose limit it is, "" for the client's own; `routes=` fills it in.

    Raises InvalidLimit for anything else. `Limit.parse(str(limit))` gives back an equal limit, if
    it is no route's.
    """

    count: int
    period: float
    name: str
    kind: Kind
    route: str

    # By hand, because a unit is taken for `period` and seconds are kept: each has its own type.
    def __init__(
        self,
        count: int,
        period: float | Unit,
        *,
        name: str = "requests",
        kind: Kind = "sliding",
        route: str = "",
    ) -> None:
        seconds = period.seconds if isinstance(period, Unit) else period
        object.__setattr__(self, "count", _checked_count(count))
        object.__setattr__(self, "period", _checked_period(seconds))
        object.__setattr__(self, "name", _checked_name(name))
        object.__setattr__(self, "kind", _checked_kind(kind))
        object.__setattr__(self, "route", _checked_route(route))

    @property
    def period_us(self) -> int:
        """The period in microseconds, 1,000 to 366 days."""
        return _microseconds(self.period)

    def __str__(self) -> str:
        amount = str(self.count) if self.name == "requests" else f"{self.count} {self.name}"
        text = f"{amount}/{_period_text(self.period_us)}"
        return f"{text} on {self.route}" if self.route else text

    @classmethod
    def parse(cls, text: str) -> tuple[Limit, ...]:
        """The limits in `text`, in its order: "100/min", "10/s; 1000/h", "5 per 2 minutes".

        Units are s, m, h and d and their longer names (sec, min, hr, day, …) in any case; the
        number before the unit may have decimals, the count may not. Raises InvalidLimit for text
        over 1,000 characters, for two limits on the same window, for anything else.
        """
        parts = [part.strip() for part in _checked_text(text).split(";")]
        if "" in parts:
            raise InvalidLimit(
                f'{_shown(text)} lacks a limit; for example "100/min" or "10/s; 1000/h"'
            )
        return _distinct(map(_parse_one, parts))


def limits_of(value: str | Limit | Iterable[Limit]) -> tuple[Limit, ...]:
    """What users pass as `limit=`, as a tuple of at least one limit, no two on the same window.

    Raises InvalidLimit for everything else.
    """
    if isinstance(value, str):
        return Limit.parse(value)
    if isinstance(value, Limit):
        return (value,)
    try:
        elements = iter(value)
    except TypeError:
        raise InvalidLimit(
            f'{_shown(value)} is not a limit; for example "100/min" or 100 / minute'
        ) from None
    limits = _distinct(map(_checked_limit, elements))
    if not limits:
        raise InvalidLimit('no limit given: name at least one, for example "100/min"')
    return limits


def _parse_one(text: str) -> Limit:
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise InvalidLimit(
            f'{_shown(text)} is not a limit: write a whole count, "/" or "per", and a period,'
            ' for example "100/min", "5 per 2 minutes" or "90000 tokens/min"'
        )
    unit = _UNITS.get(match["unit"].lower())
    if unit is None:
        raise InvalidLimit(
            f"{_shown(text)} has the unknown unit {_shown(match['unit'])}:"
            ' use s, min, h or d, for example "100/min"'
        )
    count, number, name = int(match["count"]), float(match["number"] or 1), match["name"]
    try:
        return Limit(count, number * unit, name=name or "requests")
    except InvalidLimit as error:
        raise InvalidLimit(f"{_shown(text)} is not a limit: {error}") from None


def _distinct(limits: Iterable[Limit]) -> tuple[Limit, ...]:
    """`limits` as a tuple, if each has a window of its own: its route, name, kind and period."""
    windows: dict[tuple[str, str, Kind, int], Limit] = {}
    for limit in limits:
        window = (limit.route, limit.name, limit.kind, limit.period_us)
        if window in windows:
            raise InvalidLimit(
                f'"{windows[window]}" and "{limit}" are limits on one window: keep the smaller, or'
                ' give each its own period or name, for example "10/s; 1000/h; 90000 tokens/h"'
            )
        windows[window] = limit
    return tuple(windows.values())


# The checks take `object`: callers without a type checker deserve our errors too.


def _checked_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_COUNT:
        raise InvalidLimit(
            f"the count must be a whole number from 1 to {_MAX_COUNT:,}, not {_shown(value)};"
            ' for example Limit(100, 60) or "100/min"'
        )
    return int(value)


def _checked_period(value: object) -> float:
    number = _checked_number(value)
    if not _MIN_PERIOD <= number <= _MAX_PERIOD:  # false for nan
        raise _bad_period(value)
    return _microseconds(number) / 1e6


def _checked_number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):  # an int may be longer than any float
            return float(value)
    raise _bad_period(value)


def _checked_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidLimit(
            f'the name must be a letter and up to 63 letters, digits, "_" or "-",'
            f' not {_shown(value)}; for example name="tokens" or "90000 tokens/min"'
        )
    return value


def _checked_kind(value: object) -> Kind:
    if value != "sliding":
        raise InvalidLimit(f'the kind must be "sliding", not {_shown(value)}; leave it out')
    return "sliding"


def _checked_route(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidLimit(
            f"the route must be text, not {_shown(value)}; leave it out: a client fills it in,"
            ' for example from routes={"GET /search/*": "30/min"}'
        )
    return value


def _checked_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidLimit(f'a limit is text such as "100/min", not {_shown(value)}')
    if len(value) > _MAX_TEXT:
        raise InvalidLimit(
            f"{_shown(value)} has {len(value):,} characters, more than {_MAX_TEXT:,}:"
            ' name fewer limits, for example "10/s; 1000/h"'
        )
    return value


def _checked_limit(value: object) -> Limit:
    if not isinstance(value, Limit):
        raise InvalidLimit(
            f"{_shown(value)} among the limits is not a Limit;"
            ' for example "10/s; 1000/h" or [10 / second, 1000 / hour]'
        )
    return value


def _bad_period(value: object) -> InvalidLimit:
    return InvalidLimit(
        f"the period must be 0.001 seconds to 366 days, not {_shown(value)};"
        ' for example Limit(200, 10), 200 / (10 * second) or "200/10s"'
    )


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _period_text(period_us: int) -> str:
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, rest = divmod(period_us, seconds * 1_000_000)
        if not rest:
            return unit if number == 1 else f"{number}{unit}"
    return f"{period_us / 1e6:.6f}".rstrip("0") + "s"


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def _shown(value: object) -> str:
    """`value` as an error shows it: its repr, shortened."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"  # repr() refuses those over 4,300 digits
    return _short.repr(value)


# Last, because making them passes the checks above.
second = Unit(1)
minute = Unit(60)
hour = Unit(3_600)
day = Unit(86_400)
