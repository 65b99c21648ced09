"""What limits are made of: each check gives a value back, or an error.

The error shows the value and a correct example. The checks take `object`: callers without a type
checker deserve our errors too.
"""

from __future__ import annotations

import re
import reprlib
from contextlib import suppress
from typing import Literal, TypeGuard

from quotaclient._core.calendar import DAY, is_zone

Kind = Literal["sliding", "fixed", "bucket"]

# Redis computes in doubles, exact to 2**53 ≈ 9e15: room for the sum of thousands of full windows.
_MAX_COUNT = 10**12
# Redis expires keys by the millisecond; a shorter window could not be told from none.
_MIN_PERIOD = 0.001
# A leap year: the longest quota that anyone sells by.
_MAX_PERIOD = 366 * 86_400
# Some fifty limits with names; more is not a limit but a file handed in by mistake.
_MAX_TEXT = 1_000

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class InvalidLimit(ValueError):
    """A limit that cannot be; the message shows the value and a correct example."""


def checked_count(value: object) -> int:
    if not _is_count(value):
        raise InvalidLimit(
            f"the count must be a whole number from 1 to {_MAX_COUNT:,}, not {shown(value)};"
            ' for example Limit(100, 60) or "100/min"'
        )
    return int(value)


def checked_period(value: object) -> float:
    number = checked_number(value)
    if not _MIN_PERIOD <= number <= _MAX_PERIOD:  # false for nan
        raise _bad_period(value)
    return microseconds(number) / 1e6


def checked_number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):  # an int may be longer than any float
            return float(value)
    raise _bad_period(value)


def checked_name(value: object) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidLimit(
            f'the name must be a letter and up to 63 letters, digits, "_" or "-",'
            f' not {shown(value)}; for example name="tokens" or "90000 tokens/min"'
        )
    return value


def checked_kind(value: object) -> Kind:
    if value == "pace":
        raise InvalidLimit(
            'the kind "pace" stands for two sliding limits: write "100/min pace", or unpack them:'
            " limit=[*(100 / minute).pace(), 1000 / hour]"
        )
    if value not in ("sliding", "fixed", "bucket"):
        raise InvalidLimit(
            f'the kind must be "sliding", "fixed" or "bucket", not {shown(value)}; for example'
            ' "100/min", "10000/day fixed" or "2/s bucket 40"'
        )
    return value


def checked_zone(value: object, kind: Kind, period: float) -> str | None:
    """The zone whose clock the periods of a fixed limit go by, UTC unless told otherwise."""
    if kind != "fixed":
        if value is not None:
            raise InvalidLimit(
                f"only a fixed limit has a zone, {shown(value)} was given to a {kind} one;"
                ' for example "10000/day fixed America/Los_Angeles"'
            )
        return None
    if DAY % microseconds(period):
        raise InvalidLimit(
            f"a fixed period must divide a day, which {period:g} s do not;"
            ' for example "100/min fixed", "500/6h fixed" or "10000/day fixed"'
        )
    if value is None:
        return "UTC"
    if not isinstance(value, str) or not is_zone(value):
        raise InvalidLimit(
            f"the zone must be a name of the time zone database, not {shown(value)};"
            ' for example "10000/day fixed America/Los_Angeles"'
        )
    return value


def checked_burst(value: object, kind: Kind) -> int | None:
    """How many units a bucket holds."""
    if kind != "bucket":
        if value is not None:
            raise InvalidLimit(
                f"only a bucket has a burst, {shown(value)} was given to a {kind} limit;"
                ' for example "2/s bucket 40"'
            )
        return None
    if not _is_count(value):
        raise InvalidLimit(
            f"the burst of a bucket must be a whole number from 1 to {_MAX_COUNT:,},"
            f' not {shown(value)}; for example "2/s bucket 40"'
        )
    return value


def checked_route(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidLimit(
            f"the route must be text, not {shown(value)}; leave it out: a client fills it in,"
            ' for example from routes={"GET /search/*": "30/min"}'
        )
    return value


def checked_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidLimit(f'a limit is text such as "100/min", not {shown(value)}')
    if len(value) > _MAX_TEXT:
        raise InvalidLimit(
            f"{shown(value)} has {len(value):,} characters, more than {_MAX_TEXT:,}:"
            ' name fewer limits, for example "10/s; 1000/h"'
        )
    return value


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_COUNT


def _bad_period(value: object) -> InvalidLimit:
    return InvalidLimit(
        f"the period must be 0.001 seconds to 366 days, not {shown(value)};"
        ' for example Limit(200, 10), 200 / (10 * second) or "200/10s"'
    )


def microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def shown(value: object) -> str:
    """`value` as an error shows it: its repr, shortened."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"  # repr() refuses those over 4,300 digits
    return _short.repr(value)
