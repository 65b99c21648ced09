"""The Lua scripts and their wire: an ask as KEYS and ARGV, a reply from what comes back."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from importlib.resources import files
from pathlib import Path
from typing import Any

from quotaclient._core.account import window_name
from quotaclient._core.ask import Ask, Grant, Group, Refusal, Reply
from quotaclient._core.calendar import Calendar
from quotaclient._core.limits import Limit


@dataclass(frozen=True)
class Script:
    """A script's text and the name by which Redis knows it."""

    text: str = field(repr=False)
    sha: str

    @classmethod
    def load(cls, name: str, *, without: Collection[str] = ()) -> Script:
        """Read `lua/<name>.lua`, and put its parts in where it says so, `without` some."""
        text = _PART.sub(lambda part: "" if part[1] in without else _text(part[1]), _text(name))
        return cls(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _text(name: str) -> str:
    """A file of `lua/`: in the wheel beside this package, in a checkout at its top."""
    installed = files("quotaclient") / "lua" / f"{name}.lua"
    checkout = Path(__file__).parents[2] / "lua" / f"{name}.lua"
    return (installed if installed.is_file() else checkout).read_text("utf-8")


_PART = re.compile(r"^-- Part: (\w+)\.lua.*\n", re.MULTILINE)

RESERVE = Script.load("reserve", without={"fixed", "bucket"})
RESERVE_KINDS = Script.load("reserve")
HOLD = Script.load("hold")
RESET = Script.load("reset")


def account_key(prefix: str, key: str) -> str:
    """What all keys of one account begin with: one hash tag, so one slot of a cluster."""
    return f"{prefix}:{{{key}}}"


def hold_key(prefix: str, key: str) -> str:
    return f"{account_key(prefix, key)}:hold"


def window_keys(prefix: str, key: str, limits: tuple[Limit, ...]) -> list[str]:
    return [f"{account_key(prefix, key)}:{window_name(limit)}" for limit in limits]


def reserve_keys(prefix: str, ask: Ask) -> list[str]:
    """KEYS of reserve.lua."""
    account = account_key(prefix, ask.key)
    return [f"{account}:hold", f"{account}:lanes", *window_keys(prefix, ask.key, ask.limits)]


def reserve_script(ask: Ask) -> Script:
    """What to run: asks of sliding windows only do not pay for the other kinds."""
    return RESERVE if _all_slide(ask) else RESERVE_KINDS


def _all_slide(ask: Ask) -> bool:
    return all(limit.kind == "sliding" for limit in ask.limits)


def _kinds_args(ask: Ask, wall: int) -> Iterator[int]:
    """ARGV of fixed.lua and bucket.lua; `wall` is the time in UTC here, to look up zones."""
    limits = list(enumerate(ask.limits, 1))
    fixed = [
        (i, *Calendar.of(limit.zone, limit.period_us, wall)) for i, limit in limits if limit.zone
    ]
    buckets = [(i, limit.count) for i, limit in limits if limit.burst]
    yield len(fixed)
    yield from _flat(fixed)
    yield len(buckets)
    yield from _flat(buckets)


def reserve_args(ask: Ask, wall: int, now: int | None = None) -> list[str | int]:
    """ARGV of what `reserve_script` says; `now` overrides the server's clock in tests."""
    returns = [
        (window + 1, generation, returned.ticket.at, returned.ticket.by, units)
        for returned in ask.returns
        for window, (generation, units) in enumerate(
            zip(returned.ticket.generations, returned.costs, strict=True)
        )
        if units
    ]
    sends = [(sent.window + 1, *sent[1:]) for sent in ask.sent]
    return [
        "" if now is None else now,
        ask.lane,
        ask.guard,
        -1 if ask.max_wait is None else ask.max_wait,
        ask.horizon,
        ask.idle,
        int(ask.greets),
        *_flat((limit.most, limit.period_us) for limit in ask.limits),
        *(() if _all_slide(ask) else _kinds_args(ask, wall)),
        len(returns),
        *_flat(returns),
        len(sends),
        *_flat(sends),
        *_flat((group.requests, group.after, *group.costs) for group in ask.groups),
    ]


def _flat(rows: Any) -> Iterator[int]:
    return (value for row in rows for value in row)


def parse_reply(ask: Ask, answer: Any) -> Reply:
    """The reply that reserve.lua gave to this ask; ValueError or TypeError for anything else."""
    windows = len(ask.limits)
    now, hold, refused_at, refused_by, *rest = answer
    if not all(type(number) is int for number in answer):
        raise TypeError("not a number")
    records, grants = rest[: 2 * windows], rest[2 * windows :]
    if len(records) != 2 * windows:
        raise ValueError("not a value per window")
    if not 0 <= refused_by <= windows:
        raise ValueError("no such window")
    pairs = zip(grants[::2], grants[1::2], strict=True)
    return Reply(
        now=now,
        hold=hold,
        generations=tuple(records[::2]),
        used=tuple(records[1::2]),
        grants=tuple(_with_costs(ask, pairs)),
        refusal=Refusal(refused_at, refused_by - 1 if refused_by else None) if refused_at else None,
    )


def _with_costs(ask: Ask, pairs: Any) -> Iterator[Grant]:
    """Grants come in the order of the groups, and none spans two of them."""
    groups = iter(ask.groups)
    left = 0
    costs: tuple[int, ...] = ()
    for requests, at in pairs:
        if not left:
            left, costs, _ = next(groups, Group(0, ()))
        if not 0 < requests <= left:
            raise ValueError("more than was asked for")
        left -= requests
        yield Grant(requests, at, costs)
