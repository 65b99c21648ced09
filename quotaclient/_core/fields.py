"""What header fields say of quotas: how much is left of each, until when, and how much there is.

Three dialects, read from every host:

    RateLimit: "day";r=0;t=50       with RateLimit-Policy: "day";q=1000;w=86400 (IETF drafts 8 on)
    RateLimit: limit=100, remaining=0, reset=50                                 (draft 7)
    RateLimit-Remaining: 0          with -Limit, -Reset, -Policy; also X-RateLimit-…, X-Rate-Limit-…
                                    and with a name within: anthropic-ratelimit-tokens-remaining,
                                    x-ratelimit-remaining-tokens, x-esi-error-limit-remain

A list in one of the last speaks of as many quotas, each at its position ("0, 1543"). A field that
is malformed is ignored, by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal

from quotaclient._core.limits import InvalidLimit, Limit
from quotaclient._core.scalars import MOST, number, reset, span
from quotaclient._core.structured import LONGEST_LIST, items, whole

Fields = Mapping[str, list[str]]
"""The lines of each field, by its name in small letters."""

_FAMILY = re.compile(r"rate-?limit|(?:error|app|user)-limit")
_ROLES = {
    "limit": "limit",
    "max": "limit",
    "remaining": "remaining",
    "remain": "remaining",
    "reset": "reset",
    "after": "after",
    "policy": "policy",
    "interval": "interval",
}
_PERIODS = {"second": 1.0, "minute": 60.0, "hour": 3_600.0, "day": 86_400.0}
_DRAFT_7 = re.compile(r"(limit|remaining|reset)=([0-9]{1,15})")


Dialect = Literal["standard", "named", "plain"]
"""Standard: the IETF's own field. Named: one of several of a host. Plain: the only one."""


@dataclass(slots=True)
class Budget:
    """One quota. `left`: in units; `ends`: seconds until it is whole again; None: not said.

    `silent`: nothing at all was said of what is left, which is not the same as something that
    cannot be read.
    """

    name: str
    dialect: Dialect
    left: float | None
    ends: float | None
    silent: bool = False


def budgets(fields: Fields, present: float) -> list[Budget]:
    """All quotas of which it is said how much is left of them, or until when."""
    return [*_structured(fields), *_draft_7(fields), *_named(fields, present)]


def limits(fields: Fields) -> tuple[Limit, ...]:
    """The limits that are announced with their period, in the order in which they are."""
    found = dict.fromkeys(
        limit
        for count, period in _announced(fields)
        if (limit := _limit_of(count, period)) is not None
    )
    return tuple(found)


def _limit_of(count: float | None, period: float | None) -> Limit | None:
    if count is None or period is None or count != int(count):
        return None
    try:
        return Limit(int(count), period)
    except InvalidLimit:
        return None


def _structured(fields: Fields) -> Iterator[Budget]:
    for line in fields.get("ratelimit", ()):
        for name, said in items(line) or ():
            left, ends = whole(said, "r"), whole(said, "t")
            if left is not None:  # no "r" is not "r=0"
                yield Budget(name, "standard", left, _bounded(ends))


def _draft_7(fields: Fields) -> Iterator[Budget]:
    for line in fields.get("ratelimit", ()):
        said = _pairs(line)
        if "remaining" in said:
            yield Budget("", "standard", said["remaining"], _bounded(said.get("reset")))


def _bounded(seconds: int | None) -> float | None:
    return None if seconds is None else min(float(seconds), MOST)


def _pairs(line: str) -> dict[str, int]:
    if len(line) > LONGEST_LIST:
        return {}
    matches = [_DRAFT_7.fullmatch(part.strip()) for part in line.split(",")]
    return {match[1]: int(match[2]) for match in matches if match}


@dataclass(slots=True)
class _Group:
    """The fields of one name: what they say at each position."""

    dialect: Dialect
    roles: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


def _groups(fields: Fields) -> dict[str, _Group]:
    """Fields that speak of the same quotas, by the words of their names that say of which."""
    groups: dict[str, _Group] = {}
    for name, lines in fields.items():
        family = _FAMILY.search(name)
        if family is None or name == "ratelimit":
            continue
        around = name[: family.start()] + name[family.end() :]
        words = [word for word in around.split("-") if word]
        role = next((_ROLES[word] for word in reversed(words) if word in _ROLES), "limit")
        rest = [word for word in words if word not in _ROLES]
        line = ",".join(lines)
        if len(line) <= LONGEST_LIST:
            key = "-".join((family[0].replace("-", ""), *rest))
            group = groups.setdefault(key, _Group("named" if set(rest) - {"x"} else "plain"))
            group.roles.setdefault(role, [part.strip() for part in line.split(",")])
    return groups


def _named(fields: Fields, present: float) -> Iterator[Budget]:
    for key, group in _groups(fields).items():
        left, ends = group.roles.get("remaining", []), _ends(group, present)
        for position, (units, seconds) in enumerate(zip_longest(left, ends)):
            value = None if units is None else number(units.partition(";")[0].strip())
            yield Budget(f"{key} {position}", group.dialect, value, seconds, silent=not left)


def _ends(group: _Group, present: float) -> list[float | None]:
    """Until when, by position. A date has a comma in it: then there is but one."""
    texts = group.roles.get("after") or group.roles.get("reset") or []
    ends = [reset(text, present) for text in texts]
    if None in ends:
        whole_text = reset(", ".join(texts), present)
        return ends if whole_text is None else [whole_text]
    return ends


def _announced(fields: Fields) -> Iterator[tuple[float | None, float | None]]:
    """Counts and periods."""
    for name in ("ratelimit-policy", "x-ratelimit-policy", "ratelimit-limit", "x-ratelimit-limit"):
        for line in fields.get(name, ()):
            yield from _policies(line)
    for key, group in _groups(fields).items():
        counts = group.roles.get("limit", [])
        if "interval" in group.roles:
            spans = (span(text) or number(text) for text in group.roles["interval"])
            yield from zip(map(number, counts), spans, strict=False)
        period = _PERIODS.get(key.rpartition("-")[2])
        if period is not None:
            yield from ((number(count), period) for count in counts)


def _policies(line: str) -> Iterator[tuple[float | None, float | None]]:
    """`"day";q=1000;w=86400`, and `1000;w=86400` of the drafts before."""
    for name, said in items(line) or ():
        if "w" in said and said.get("qu", '"requests"') == '"requests"':
            count = whole(said, "q") if "q" in said else number(name)
            yield count, whole(said, "w")
