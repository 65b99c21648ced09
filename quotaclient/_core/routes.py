"""Routes: limits that come on top of a client's own, for the requests that they match.

    route = [method " "] path          GET /search/*     /export     POST /v1/*/messages

A path is compared as it is sent, without the query; `*` stands for any text, also for none and
for several segments. Of a request's routes all count, not the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from quotaclient._core.limits import InvalidLimit, Limit, limits_of
from quotaclient._core.options import shown, wrong

# What httpx escapes (blanks, quotes, braces, …) is in no path as it is sent: a route with it would
# never match, and nobody would notice. Braces are how other libraries write "any text".
_ROUTE = re.compile(r"(?:(?P<method>[A-Z]+(?:-[A-Z]+)*) )?(?P<path>/[!$-;=@-_a-z|~]*)")
_EXAMPLE = "routes={'GET /search/*': '30/min'}"


@dataclass(frozen=True, slots=True)
class Route:
    """Which requests it matches, and their limits. Without a method it matches all."""

    method: str | None
    path: re.Pattern[bytes]
    limits: tuple[Limit, ...]

    def matches(self, method: str, path: bytes) -> bool:
        return self.method in (None, method) and self.path.fullmatch(path) is not None


def routes_of(value: object) -> tuple[Route, ...]:
    """What users pass as `routes=`. Raises ValueError, and InvalidLimit for their limits."""
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise wrong("routes", value, "a mapping from routes to limits", _EXAMPLE)
    return tuple(
        _route(text, limit) for text, limit in cast(Mapping[object, object], value).items()
    )


def limits_on(routes: Iterable[Route], method: str, target: bytes) -> tuple[Limit, ...]:
    """The limits of all routes that a request matches; `target` is its path, with any query."""
    path = target.partition(b"?")[0]
    return tuple(limit for route in routes if route.matches(method, path) for limit in route.limits)


def _route(text: object, limit: object) -> Route:
    match = _ROUTE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            f"{shown(text)} in routes= is not a route: write a path as it is sent, escaped and"
            " without the query, with * for any text, and before it a method in capitals if only"
            f" that one is meant; for example {_EXAMPLE}"
        )
    try:
        limits = limits_of(limit)  # type: ignore[arg-type]  # it raises for what it cannot take
    except InvalidLimit as error:
        raise InvalidLimit(f"the limit of {shown(text)} in routes=: {error}") from None
    return Route(
        match["method"],
        _pattern(match["path"]),
        tuple(replace(limit, route=match[0]) for limit in limits),
    )


def _pattern(path: str) -> re.Pattern[bytes]:
    """A regular expression that takes the first place for each part, and never comes back to it.

    Where any later place would do the first does, too; with plain `.*` a path of many repetitions
    could take for ever.
    """
    first, *rest = map(re.escape, path.encode().split(b"*"))
    if not rest:
        return re.compile(first)
    *middle, last = rest
    between = b"".join(b"(?>.*?%b)" % part for part in middle)
    return re.compile(b"%b%b.*%b" % (first, between, last), re.DOTALL)
