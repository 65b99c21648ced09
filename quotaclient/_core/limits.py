"""Limits: at most `count` units in any `period` seconds, and the text that says so.

The text, with blanks anywhere between words and no blank needed around "/":

    limits = limit (";" limit)*                        10/s; 1000/h
    limit  = rate [kind] | burst "burst," rate         40 burst, 2/s
    rate   = count [name] ("/" | "per") period         90000 tokens/min
    period = [number] unit                             5 per 2 minutes
    kind   = "fixed" [zone]                            10000/day fixed America/Los_Angeles
           | "bucket" burst                            2/s bucket 40
           | "pace" [burst]                            100/min pace

"pace" is no kind of its own: it is two sliding limits, of which the second spreads requests out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from quotaclient._core.checks import (
    NAME,
    InvalidLimit,
    Kind,
    checked_burst,
    checked_count,
    checked_kind,
    checked_name,
    checked_number,
    checked_period,
    checked_route,
    checked_text,
    checked_zone,
    microseconds,
    shown,
)

__all__ = ["InvalidLimit", "Kind", "Limit", "Unit", "day", "hour", "limits_of", "minute", "second"]

_LONGEST_SHIFT = 7_200_000_000  # µs: by which clocks are set, in Antarctica/Troll
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
# A name stands apart from its count: "1e3/min" and "100k/min" are mistakes, not 1 e3 and 100 k.
_LIMIT = re.compile(
    rf"""(?:(?P<first>[0-9]+) \s+ (?i:burst) \s*,\s*)?
         (?P<count>[0-9]+) (?:\s+(?P<name>{NAME.pattern}))?
         (?: \s*/\s* | \s+(?i:per)\s+ )
         (?P<number>[0-9]+(?:\.[0-9]+)?)? \s* (?P<unit>[A-Za-z]+)
         (?: \s+(?P<pace>(?i:pace)) (?:\s+(?P<least>[0-9]+))?
           | \s+(?P<fixed>(?i:fixed)) (?:\s+(?P<zone>[A-Za-z][A-Za-z0-9_+/-]*))?
           | \s+(?i:bucket) \s+ (?P<burst>[0-9]+) )?""",
    re.ASCII | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of time to divide a count by: `100 / minute`, `200 / (10 * second)`.

    `seconds`: 0.001 to 366 days; anything else raises InvalidLimit.
    """

    seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", checked_period(self.seconds))

    def __mul__(self, factor: float) -> Unit:
        return Unit(checked_number(factor) * self.seconds)

    __rmul__ = __mul__

    def __rtruediv__(self, count: int) -> Limit:
        return Limit(count, self)


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """At most `count` units in any `period`, or as its kind has it.

    `count`: whole units, 1 to 10**12.
    `period`: seconds, 0.001 to 366 days, or a unit such as `minute`; kept to the whole microsecond.
    `name`: what is counted; a letter, then up to 63 letters, digits, "_" or "-".
    `kind`: "sliding" holds for every stretch of `period` seconds, wherever it begins; "fixed" for
        aligned periods, which begin at midnight or divide a day; "bucket" is one that holds
        `burst` units and regains `count` per `period`.
    `zone`: whose midnight, for "fixed": an IANA name, "UTC" unless told otherwise.
    `burst`: whole units, 1 to 10**12, for "bucket".
    `route`: whose limit it is, "" for the client's own; `routes=` fills it in.

    Raises InvalidLimit for anything else. `Limit.parse(str(limit))` gives back an equal limit, if
    it is no route's.
    """

    count: int
    period: float
    name: str
    kind: Kind
    route: str
    zone: str | None
    burst: int | None

    # By hand, because a unit is taken for `period` and seconds are kept: each has its own type.
    def __init__(
        self,
        count: int,
        period: float | Unit,
        *,
        name: str = "requests",
        kind: Kind = "sliding",
        route: str = "",
        zone: str | None = None,
        burst: int | None = None,
    ) -> None:
        seconds = period.seconds if isinstance(period, Unit) else period
        object.__setattr__(self, "count", checked_count(count))
        object.__setattr__(self, "period", checked_period(seconds))
        object.__setattr__(self, "name", checked_name(name))
        object.__setattr__(self, "kind", checked_kind(kind))
        object.__setattr__(self, "route", checked_route(route))
        object.__setattr__(self, "zone", checked_zone(zone, self.kind, self.period))
        object.__setattr__(self, "burst", checked_burst(burst, self.kind))

    @property
    def period_us(self) -> int:
        """The period in microseconds, 1,000 to 366 days."""
        return microseconds(self.period)

    @property
    def most(self) -> int:
        """The most units that may go at once."""
        return self.burst or self.count

    @property
    def reach_us(self) -> int:
        """For how long, in microseconds, a unit may matter at most: till a full bucket is empty."""
        if self.burst:
            return -(-self.burst * self.period_us // self.count)
        return self.period_us + self._shift

    def least_span(self, units: int) -> int:
        """Microseconds that pass at least, once a unit has gone, until so many more may have."""
        if self.burst:
            return max(0, units - self.burst) * self.period_us // self.count
        if self.kind == "fixed":
            return max(0, units // self.count - 1) * max(0, self.period_us - self._shift)
        return units // self.count * self.period_us

    @property
    def _shift(self) -> int:
        """By how much a period may be longer or shorter, in microseconds."""
        return 0 if self.zone in (None, "UTC") else _LONGEST_SHIFT

    def pace(self, burst: int | None = None) -> tuple[Limit, Limit]:
        """This limit, and one that spreads its units: `burst` per `burst × period / count`.

        `burst`: whole units, 1 to count - 1; a tenth of the count, rounded up, if left out.
        """
        if self.kind != "sliding":
            raise InvalidLimit(f'"{self}" cannot be paced, "100/min pace" can: leave "pace" out')
        units = -(-self.count // 10) if burst is None else checked_count(burst)
        if units >= self.count:
            smaller = f"take one from 1 to {self.count - 1:,}, or " if self.count > 1 else ""
            raise InvalidLimit(
                f'"{self}" with a burst of {units} is not paced: {smaller}leave "pace" out;'
                ' for example "100/min pace 5"'
            )
        spread = -(-units * self.period_us // self.count)
        return self, replace(self, count=units, period=spread / 1e6)

    def __str__(self) -> str:
        amount = str(self.count) if self.name == "requests" else f"{self.count} {self.name}"
        text = f"{amount}/{_period_text(self.period_us)}"
        if self.kind == "fixed":
            text += " fixed" if self.zone == "UTC" else f" fixed {self.zone}"
        if self.burst:
            text += f" bucket {self.burst}"
        return f"{text} on {self.route}" if self.route else text

    @classmethod
    def parse(cls, text: str) -> tuple[Limit, ...]:
        """The limits in `text`, in its order: "100/min", "10/s; 1000/h", "5 per 2 minutes",
        "10000/day fixed America/Los_Angeles", "2/s bucket 40", "100/min pace", which are two.

        Units are s, m, h and d and their longer names (sec, min, hr, day, …) in any case; the
        number before the unit may have decimals, the count may not. Raises InvalidLimit for text
        over 1,000 characters, for two limits on the same window, for anything else.
        """
        parts = [part.strip() for part in checked_text(text).split(";")]
        if "" in parts:
            raise InvalidLimit(
                f'{shown(text)} lacks a limit; for example "100/min" or "10/s; 1000/h"'
            )
        return _distinct(limit for part in parts for limit in _parse_one(part))


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
            f'{shown(value)} is not a limit; for example "100/min" or 100 / minute'
        ) from None
    limits = _distinct(map(_checked_limit, elements))
    if not limits:
        raise InvalidLimit('no limit given: name at least one, for example "100/min"')
    return limits


def _parse_one(text: str) -> tuple[Limit, ...]:
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise InvalidLimit(
            f'{shown(text)} is not a limit: write a whole count, "/" or "per", and a period,'
            ' for example "100/min", "5 per 2 minutes" or "90000 tokens/min"; after that maybe'
            ' "pace", "fixed" or "bucket" with its burst, for example "2/s bucket 40"'
        )
    unit = _UNITS.get(match["unit"].lower())
    if unit is None:
        raise InvalidLimit(
            f"{shown(text)} has the unknown unit {shown(match['unit'])}:"
            ' use s, min, h or d, for example "100/min"'
        )
    try:
        return _made(match, unit)
    except InvalidLimit as error:
        raise InvalidLimit(f"{shown(text)} is not a limit: {error}") from None


def _made(match: re.Match[str], unit: int) -> tuple[Limit, ...]:
    count, name = int(match["count"]), match["name"] or "requests"
    period = float(match["number"] or 1) * unit
    bursts = [int(burst) for burst in match.group("first", "burst") if burst]
    if bursts:
        if len(bursts) > 1 or match["pace"] or match["fixed"]:
            raise InvalidLimit('a burst makes it a bucket, once; for example "2/s bucket 40"')
        return (Limit(count, period, name=name, kind="bucket", burst=bursts[0]),)
    if match["fixed"]:
        return (Limit(count, period, name=name, kind="fixed", zone=match["zone"]),)
    limit = Limit(count, period, name=name)
    if match["pace"]:
        return limit.pace(int(match["least"]) if match["least"] else None)
    return (limit,)


def _distinct(limits: Iterable[Limit]) -> tuple[Limit, ...]:
    """`limits` as a tuple, if each has a window of its own: its route, name, kind, period, zone."""
    windows: dict[tuple[str, str, Kind, int, str | None], Limit] = {}
    for limit in limits:
        window = (limit.route, limit.name, limit.kind, limit.period_us, limit.zone)
        if window in windows:
            raise InvalidLimit(
                f'"{windows[window]}" and "{limit}" are limits on one window: keep the smaller, or'
                ' give each its own period or name, for example "10/s; 1000/h; 90000 tokens/h"'
            )
        windows[window] = limit
    return tuple(windows.values())


def _checked_limit(value: object) -> Limit:
    if not isinstance(value, Limit):
        raise InvalidLimit(
            f"{shown(value)} among the limits is not a Limit;"
            ' for example "10/s; 1000/h" or [10 / second, 1000 / hour]'
        )
    return value


def _period_text(period_us: int) -> str:
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, rest = divmod(period_us, seconds * 1_000_000)
        if not rest:
            return unit if number == 1 else f"{number}{unit}"
    return f"{period_us / 1e6:.6f}".rstrip("0") + "s"


# Last, because making them passes the checks above.
second = Unit(1)
minute = Unit(60)
hour = Unit(3_600)
day = Unit(86_400)
