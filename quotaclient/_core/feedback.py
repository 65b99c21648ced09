"""What an upstream's answer says about its quota. Nothing here raises.

Rule 1   429, 420, 418 and 529 refuse for the quota's sake, 503 and 413 if they say how long;
         what else does is in the host's profile (`profiles.py`).
Rule 2   What says how long to wait, the first that names a time ahead: `retry-after-ms`;
         Retry-After, or the body if that says longer; the RateLimit fields of what is used up
         (`fields.py`); the profile. 0 or a time that has passed is heard if nothing else is.
Rule 3   A success with nothing left says how long those that come next must wait.
Rule 4   What a cache kept says nothing of what is left now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from quotaclient._core.fields import Budget, Fields, budgets, limits
from quotaclient._core.limits import Limit
from quotaclient._core.profiles import GENERIC, Profile, Sign, values_at
from quotaclient._core.scalars import DAY, MOST, instant, number, retry_after, span

MOST_READ = 16_384  # bytes of a body

# 420: Twitter's, still sent by EVE Online; 418: Binance's ban; 529: Anthropic's "overloaded".
_REFUSALS = frozenset({418, 420, 429, 529})
# Throttling only with evidence, which Retry-After is (RFC 9110 section 15.5.14 and 15.6.4).
_THROTTLING = _REFUSALS | {413, 503}
_OVERLOAD = frozenset({503, 529})
_CACHES = ("x-cache", "x-cache-status", "cf-cache-status", "x-from-cache")
_PROBLEM = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Feedback:
    """What one answer says about the quota.

    `throttled`: the request was refused for the quota's sake.
    `terminal`: sending it again is pointless, or unwanted; a stated wait still binds others.
    `wait`: seconds from the receipt of the answer during which nobody should send, 0 to 32 days;
        0 where the answer names no time ahead, None where it names none at all.
    `hold_after`: seconds, up to 32 days, for which later requests must wait although this one
        succeeded.
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


def says_something(status: int, names: str, profile: Profile) -> bool:
    """Whether an answer may say anything about a quota; nearly none that succeeds does.

    `names`: of all its header fields, in any case.
    """
    return (
        status in _THROTTLING
        or "limit" in names.lower()
        or (bool(profile.signs) and any(status in sign.statuses for sign in profile.signs))
    )


def needs_body(status: int, content_type: str, path: str, profile: Profile) -> bool:
    """Whether the body may say more than status and header fields."""
    return profile.needs_body(status, path) or _is_problem(content_type)


def read_feedback(
    status: int,
    headers: Iterable[tuple[str, str]],
    body: bytes | str | None = None,
    *,
    now: datetime,
    path: str = "",
    profile: Profile = GENERIC,
) -> Feedback:
    """Read one answer.

    `headers`: one pair per line as received, names in any case; lines of the same name stay apart.
    `body`: what there is of it; over 16 KiB, or not JSON, it says nothing.
    `now`: when the answer arrived, by the caller's clock; without a zone it is UTC.
    `path`: that of the request.
    """
    lines = list(headers)
    if not says_something(status, "\n".join(name for name, _ in lines), profile):
        return _UNTHROTTLED
    fields: dict[str, list[str]] = {}
    for name, value in lines:
        fields.setdefault(name.lower(), []).append(value.strip(" \t"))
    content_type = fields.get("content-type", [""])[0]
    asked = needs_body(status, content_type, path, profile)
    answer = _Answer(status, fields, _json(body) if asked else None, now, path, profile)
    return answer.feedback()


class _Answer:
    """An answer, taken apart. `document`: its body, where that may say something."""

    def __init__(
        self,
        status: int,
        fields: Fields,
        document: Any,
        now: datetime,
        path: str,
        profile: Profile,
    ) -> None:
        self.status, self.fields, self.document = status, fields, document
        self.profile = profile
        self.present = _present(fields, now)
        self.budgets = [] if _is_cached(fields) else budgets(fields, self.present)
        self.sign = next((sign for sign in profile.signs if self._shows(sign, path)), None)

    def feedback(self) -> Feedback:
        stated = list(self._stated())
        throttled = (
            self.status in _REFUSALS
            or self.sign is not None
            or (self.status in _THROTTLING and bool(stated))
        )
        announced = limits(self.fields)
        if not throttled:
            return Feedback(throttled=False, hold_after=self._hold_after(), limits=announced)
        never = any(value.lower() == "false" for value in self.fields.get("x-should-retry", ()))
        return Feedback(
            throttled=True,
            terminal=never or (self.sign is not None and self.sign.terminal),
            wait=_first_ahead([*stated, *self._resets(), *self._usual()]),
            limits=announced,
            overload=self.status in _OVERLOAD,
        )

    def _shows(self, sign: Sign, path: str) -> bool:
        if self.status not in sign.statuses or not path.endswith(sign.path):
            return False
        if sign.empty:
            return any(budget.left == 0 for budget in self.budgets) or bool(list(self._stated()))
        if sign.header:
            return any(value.lower() in sign.is_ for value in self.fields.get(sign.header, ()))
        return any(
            value in sign.is_ or any(text in value.lower() for text in sign.has)
            for value in values_at(self.document, sign.at)
        )

    def _stated(self) -> Iterator[float]:
        """The waits that are stated as such."""
        short = [number(value) or 0.0 for value in self.fields.get("retry-after-ms", ())]
        if any(short):
            yield min(max(short) / 1e3, MOST)
        # Lines that disagree come from different hops; the longest satisfies all of them.
        waits = [retry_after(line, self.present) for line in self.fields.get("retry-after", ())]
        waits += [_seconds(value) for at in self.profile.waits for value in self._values(at)]
        known = [wait for wait in waits if wait is not None]
        if known:
            yield max(known)

    def _values(self, at: str) -> Iterator[str]:
        return values_at(self.document, at)

    def _resets(self) -> Iterator[float]:
        """When what is used up is whole again, by the dialect that is heard first."""
        violated = set(self._values("violated-policies"))
        used_up = [budget for budget in self.budgets if budget.left == 0]
        named = [budget for budget in used_up if budget.name in violated]
        for dialect in ("standard", "named", "plain"):
            among = named if named and dialect == "standard" else used_up
            yield from _longest(budget for budget in among if budget.dialect == dialect)
        yield from _longest(b for b in self.budgets if b.silent and b.dialect == "plain")

    def _usual(self) -> Iterator[float]:
        """The wait that is usual with this host where nothing is stated."""
        usual = self.profile.wait if self.sign is None or self.sign.wait is None else self.sign.wait
        if usual is not None:
            yield usual

    def _hold_after(self) -> float | None:
        used_up = (budget for budget in self.budgets if budget.left == 0)
        return next((seconds for seconds in _longest(used_up) if seconds), None)


def _first_ahead(waits: list[float]) -> float | None:
    return next((wait for wait in waits if wait), 0.0 if waits else None)


def _longest(budgets: Iterable[Budget]) -> Iterator[float]:
    ends = [budget.ends for budget in budgets if budget.ends is not None]
    if ends:
        yield max(ends)


def _seconds(value: str) -> float | None:
    seconds = number(value)
    return span(value) if seconds is None else min(seconds, MOST)


def _present(fields: Fields, now: datetime) -> float:
    """The present by the upstream's clock, in seconds since 1970, for its stamps to be read in.

    `Date` tells it, unless it is over a day off: no clock made that, but a cache or a fixed text.
    """
    ours = (now if now.tzinfo else now.replace(tzinfo=UTC)).timestamp()
    dates = (instant(value, ours) for value in fields.get("date", ()))
    return next((date for date in dates if date is not None and abs(date - ours) <= DAY), ours)


def _is_cached(fields: Fields) -> bool:
    if any(number(value) for value in fields.get("age", ())):
        return True
    return any("hit" in value.lower() for name in _CACHES for value in fields.get(name, ()))


def _is_problem(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == _PROBLEM


def _json(body: bytes | str | None) -> Any:
    """What a short JSON body holds; None for anything else."""
    if body is None or len(body) > MOST_READ:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
