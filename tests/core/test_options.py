"""What users pass: each error shows the value and a correct example."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from quotaclient._core.limits import Limit
from quotaclient._core.options import (
    MAX_KEY,
    UNSET,
    RequestOptions,
    checked_cost,
    checked_guard,
    checked_key,
    checked_key_or_function,
    checked_max_wait,
    checked_on_outage,
    checked_prefix,
    checked_priority,
    checked_replicas,
    checked_use,
)

LIMITS = (Limit(10, 60), Limit(500, 60, name="tokens"))


def guard(value: object) -> int | None:
    """A guard for LIMITS."""
    return checked_guard(value, LIMITS)


def cost(value: object) -> tuple[int, ...]:
    """A cost for LIMITS."""
    return checked_cost(value, LIMITS)


def per_request(value: object) -> RequestOptions:
    """Options of a request under LIMITS."""
    return RequestOptions.read(value, LIMITS, 60.0)


@pytest.mark.parametrize(
    ("check", "value", "result"),
    [
        (checked_max_wait, None, None),
        (checked_max_wait, 0, 0.0),
        (checked_max_wait, 2.5, 2.5),
        (guard, None, None),
        (guard, 0, 0),
        (guard, 0.05, 50_000),
        (guard, 30, 30_000_000),
        (checked_replicas, None, None),
        (checked_replicas, 12, 12),
        (checked_on_outage, "reject", "reject"),
        (checked_prefix, "quota", "quota"),
        (checked_key, "tenant-7", "tenant-7"),
        (checked_key_or_function, "tenant-7", None),
        (checked_key_or_function, None, None),
        (checked_key_or_function, str, None),
        (checked_priority, -3, -3),
        (cost, 1, (1, 1)),
        (cost, 0, (0, 0)),
        (cost, {"tokens": 400}, (0, 400)),
        (cost, {}, (0, 0)),
    ],
)
def test_what_is_right(check: Callable[[object], object], value: object, result: object) -> None:
    """Valid values come back in the form that the rest works with."""
    assert check(value) == result


@pytest.mark.parametrize(
    ("check", "value"),
    [
        *((checked_max_wait, value) for value in (-1, math.nan, math.inf, True, "5", -math.inf)),
        *((guard, value) for value in (-0.1, 31, math.nan, math.inf, False, "0.1")),
        *((checked_replicas, value) for value in (0, -1, 2.0, True, "12", 10**6 * 1.0)),
        *((checked_on_outage, value) for value in ("Share", None, 1, "")),
        *((checked_prefix, value) for value in ("", "a b", "a{b", "}", None, 7, "x" * 129, "a\n")),
        *((checked_key, value) for value in ("", None, b"bytes", 7, "x" * (MAX_KEY + 1))),
        *((checked_key_or_function, value) for value in ("", 7, b"bytes")),
        *((checked_priority, value) for value in (1.0, "1", None, True, math.nan)),
        *((cost, value) for value in (-1, 1.5, math.nan, True, "5", None, [1], 11, 10**30)),
        *((cost, value) for value in ({"token": 1}, {"tokens": -1}, {7: 1}, {"tokens": 501})),
        *((per_request, value) for value in (None, 5, "cost", {"costs": 5}, {"cost": -1})),
        *((per_request, value) for value in ({"key": ""}, {"key": None}, {"max_wait": -1})),
        (per_request, {"priority": "high"}),
    ],
)
def test_what_is_wrong(check: Callable[[Any], object], value: Any) -> None:
    """Anything else is a ValueError, short, with the value and a way out."""
    with pytest.raises(ValueError, match=r"for example|split the work") as caught:
        check(value)
    assert len(str(caught.value)) < 400
    shown = list(value.values())[-1] if isinstance(value, dict) and value else value
    assert str(shown).strip()[:10] in str(caught.value)


def test_what_one_request_says() -> None:
    """A request's own options come before the client's."""
    assert per_request({}) == RequestOptions((1, 1), None, 60.0, 0)
    given = {"cost": {"requests": 2}, "key": "a", "max_wait": None, "priority": 4}
    assert per_request(given) == RequestOptions((2, 0), "a", None, 4)


def test_numbers_that_python_does_not_print() -> None:
    """A number of thousands of digits is named, for printing it is an error of its own."""
    with pytest.raises(ValueError, match=r"replicas=<int of too many digits> is not"):
        checked_replicas(-(10**5000))


def test_unset_has_a_name() -> None:
    """The default of max_wait reads well in a signature."""
    assert repr(UNSET) == "UNSET"


TOKENS = (Limit(10, 60), Limit(90, 60, name="tokens"))


def test_what_was_really_used() -> None:
    """A mapping names the windows that it settles, a number settles all that count the same."""
    assert checked_use({"tokens": 812}, TOKENS, (1, 50)) == (1, 812)
    assert checked_use({}, TOKENS, (1, 50)) == (1, 50)
    assert checked_use(7, (Limit(10, 60), Limit(90, 3600)), (1, 1)) == (7, 7)
    assert checked_use(10**12, TOKENS[:1], (1,)) == (10**12,)


@pytest.mark.parametrize("value", [-1, 1.5, True, "5", None, float("nan"), 10**12 + 1])
def test_what_cannot_have_been_used(value: object) -> None:
    """Uses are whole, from 0 to the largest limit there is."""
    with pytest.raises(ValueError, match="whole number from 0"):
        checked_use(value, TOKENS[:1], (1,))
    with pytest.raises(ValueError, match="whole number from 0"):
        checked_use({"tokens": value}, TOKENS, (1, 1))


def test_a_use_names_its_window() -> None:
    """Where windows count different things, a bare number is ambiguous, and unknown names wrong."""
    with pytest.raises(ValueError, match=r"requests and tokens.*settle\(\{'tokens': 812\}\)"):
        checked_use(812, TOKENS, (1, 50))
    with pytest.raises(ValueError, match="about the windows"):
        checked_use({"words": 1}, TOKENS, (1, 50))
