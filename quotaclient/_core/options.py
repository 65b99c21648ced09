"""What users pass, checked: each error shows the value and a correct example."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeGuard, cast, get_args

from quotaclient._core.ask import SECOND
from quotaclient._core.limits import Limit
from quotaclient._core.profiles import GENERIC, PROFILES, Profile

OnOutage = Literal["share", "reject"]
Cost = int | Mapping[str, int]

LONGEST_WAIT = 10**9  # seconds, some thirty years: what timers can still count
MOST_UNITS = 10**12  # no limit is larger
MAX_KEY = 65_536  # characters: more is no name but a document handed in by mistake
_PREFIX = re.compile(r"[!-z|~]{1,128}")
_PER_REQUEST = ("cost", "key", "max_wait", "priority", "retry")


class Unset:
    """The type of UNSET: "as the client says"."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


def wrong(name: str, value: object, wanted: str, example: str) -> ValueError:
    """The error for a value that cannot be."""
    return ValueError(f"{name}={shown(value)} is not {wanted}; for example {example}")


def shown(value: object) -> str:
    """A value for a message, cut where it is long."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python prints no number of more than some thousand digits
        return f"<{type(value).__name__} of too many digits>"


def checked_max_wait(value: object) -> float | None:
    """Seconds that a request may wait in all, 0 to 1e9; None is unbounded."""
    if value is None:
        return None
    if not _is_number(value) or not 0 <= value <= LONGEST_WAIT:
        wanted = f"None or seconds from 0 to {LONGEST_WAIT}"
        raise wrong("max_wait", value, wanted, "max_wait=30.0")
    return float(value)


def checked_profile(value: object) -> Profile | None:
    """A profile, or the name of one; None: that of each host."""
    if value is None or isinstance(value, Profile):
        return value
    for profile in (GENERIC, *PROFILES):
        if profile.name == value:
            return profile
    names = ", ".join(profile.name for profile in (GENERIC, *PROFILES))
    raise wrong("profile", value, f"a Profile or one of {names}", "profile='github'")


def checked_guard(value: object, limits: tuple[Limit, ...]) -> int | None:
    """Seconds as microseconds: 0 to half the shortest period, for the window widens by it."""
    if value is None:
        return None
    most = min(limit.period for limit in limits) / 2
    if not _is_number(value) or not 0 <= value <= most:
        wanted = f"None or seconds from 0 to {most:g} (half the shortest period)"
        raise wrong("guard", value, wanted, "guard=0.05")
    return round(value * SECOND)


def checked_replicas(value: object) -> int | None:
    """How many processes share the limit; None: not known."""
    if value is not None and (not _is_whole(value) or value < 1):
        raise wrong("replicas", value, "None or a whole number >= 1", "replicas=12")
    return value


def checked_on_outage(value: object) -> OnOutage:
    if value not in get_args(OnOutage):
        raise wrong("on_outage", value, "'share' or 'reject'", "on_outage='share'")
    return value  # type: ignore[return-value]  # it is one of them


def checked_prefix(value: object) -> str:
    """What all Redis keys begin with; braces would move the hash tag of a cluster."""
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        wanted = "a text of 1 to 128 ASCII characters without blanks and braces"
        raise wrong("prefix", value, wanted, "prefix='quota'")
    return value


def checked_key(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY:
        wanted = f"a text of 1 to {MAX_KEY} characters"
        raise wrong("key", value, wanted, "key='tenant-7'")
    return value


def checked_key_or_function(value: object) -> None:
    """A client's key: a text, a function of the request, or None for the origin."""
    if value is not None and not callable(value):
        checked_key(value)


def checked_priority(value: object) -> int:
    """Higher goes first."""
    if not _is_whole(value):
        raise wrong("priority", value, "a whole number", "priority=1")
    return value


def checked_cost(value: object, limits: tuple[Limit, ...]) -> tuple[int, ...]:
    """Units per window: a number draws on every window, a mapping on those it names."""
    if isinstance(value, Mapping):
        named = _named(cast(Mapping[object, object], value), {limit.name for limit in limits})
        costs = tuple(_checked_units(named.get(limit.name, 0)) for limit in limits)
    else:
        costs = (_checked_units(value),) * len(limits)
    for cost, limit in zip(costs, limits, strict=True):
        if cost > limit.most:
            raise ValueError(
                f"cost={shown(cost)} can never be met by the limit {limit}; split the work"
            )
    return costs


def checked_use(
    value: object, limits: tuple[Limit, ...], booked: tuple[int, ...]
) -> tuple[int, ...]:
    """What was really used, per window: those that a mapping does not name stay as booked."""
    names = {limit.name for limit in limits}
    if isinstance(value, Mapping):
        named = _named(cast(Mapping[object, object], value), names)
        use = tuple(
            named.get(limit.name, units) for limit, units in zip(limits, booked, strict=True)
        )
    elif len(names) > 1:
        wanted = f"about one of the windows there are ({_listed(names)})"
        raise wrong("cost", value, wanted, f"settle({{{max(names)!r}: 812}})")
    else:
        use = (value,) * len(limits)
    return tuple(map(_checked_units, use))


def _named(value: Mapping[object, object], names: set[str]) -> dict[object, object]:
    """A mapping of costs, if it names only windows that there are."""
    named = dict(value)
    if not names.issuperset(named):
        wanted = (
            f"about the windows that it draws on ({_listed(names)}; a route's where it matches)"
        )
        raise wrong("cost", named, wanted, "cost=1")
    return named


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names))


def _checked_units(value: object) -> int:
    if not _is_whole(value) or not 0 <= value <= MOST_UNITS:
        wanted = f"a whole number from 0 to {MOST_UNITS:,}, or a mapping of such"
        raise wrong("cost", value, wanted, "cost=5")
    return value


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What one request says of itself in `extensions={"quota": {...}}`.

    `retry` is as it was given: whoever sends again checks it.
    """

    costs: tuple[int, ...]
    key: str | None
    max_wait: float | None
    priority: int
    retry: object = UNSET

    @classmethod
    def read(
        cls, value: object, limits: tuple[Limit, ...], max_wait: float | None
    ) -> RequestOptions:
        """Check them; unknown ones are errors, for a misspelt cost would pass for 1."""
        example = "extensions={'quota': {'cost': 5}}"
        if not isinstance(value, Mapping):
            raise wrong("extensions['quota']", value, "a mapping", example)
        options = dict(cast(Mapping[object, object], value))
        unknown = options.keys() - set(_PER_REQUEST)
        if unknown:
            wanted = f"made of {', '.join(_PER_REQUEST)}"
            raise wrong("extensions['quota']", options, wanted, example)
        return cls(
            costs=checked_cost(options.get("cost", 1), limits),
            key=checked_key(options["key"]) if "key" in options else None,
            max_wait=checked_max_wait(options.get("max_wait", max_wait)),
            priority=checked_priority(options.get("priority", 0)),
            retry=options.get("retry", UNSET),
        )


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
