"""What header fields say is left, in tables of all dialects."""

from __future__ import annotations

import pytest

from quotaclient._core.fields import Budget, Dialect, budgets, limits
from quotaclient._core.limits import Limit
from quotaclient._core.structured import Item, items, whole

NOW = 1_796_040_000.0
Said = list[tuple[Dialect, float | None, float | None]]


def of(*lines: str) -> dict[str, list[str]]:
    """Fields by name."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        fields.setdefault(name.lower(), []).append(value)
    return fields


def said(*lines: str) -> Said:
    """What is said of each budget: dialect, left, ends."""
    return [(one.dialect, one.left, one.ends) for one in budgets(of(*lines), NOW)]


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ('"a";r=0;t=12, "b"', [Item("a", {"r": "0", "t": "12"}), Item("b", {})]),
        ("default;r=0", [Item("default", {"r": "0"})]),
        ('100;w=60;comment="x, y"', [Item("100", {"w": "60", "comment": '"x, y"'})]),
        ('"say \\"hi\\"";p', [Item('say "hi"', {"p": "?1"})]),
        ('"a" ; r=1,\t"b"', [Item("a", {"r": "1"}), Item("b", {})]),
        ("1.5;x=:YWI=:", [Item("1.5", {"x": ":YWI=:"})]),
        ("", None),
        (",", None),
        ('"a",', None),
        ('"a" "b"', None),
        ('"unclosed', None),
        ('"a";"b"', None),
        ('"a";R=1', None),
        ("limit=100, remaining=0", None),
        ('"a"' + ", " * 3_000, None),
    ],
)
def test_items(text: str, members: list[Item] | None) -> None:
    """A list of items with parameters; what is no such list as a whole is none."""
    assert items(text) == members


@pytest.mark.parametrize(
    ("value", "count"), [("0", 0), ("12", 12), ("-1", None), ("1.0", None), ('"1"', None)]
)
def test_whole(value: str, count: int | None) -> None:
    """Parameters are counts where they are whole, and not text."""
    assert whole({"r": value}, "r") == count
    assert whole({}, "r") is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['RateLimit: "day";r=0;t=50'], [("standard", 0, 50)]),
        (['RateLimit: "day";r=7'], [("standard", 7, None)]),
        (['RateLimit: "day";t=50'], []),
        (['RateLimit: "day";r=0;t=99999999'], [("standard", 0, 32 * 86_400)]),
        (["RateLimit: limit=100, remaining=0, reset=30"], [("standard", 0, 30)]),
        (["RateLimit: limit=100, remaining=3"], [("standard", 3, None)]),
        (["RateLimit: limit=100"], []),
        (["RateLimit: remaining=0, " + " " * 5_000], []),
        (["RateLimit-Remaining: 0", "RateLimit-Reset: 30"], [("plain", 0, 30)]),
        (["X-RateLimit-Remaining: 0;w=9", "X-RateLimit-Reset: soon"], [("plain", 0, None)]),
        (["X-Rate-Limit-Remaining: 4", "X-Rate-Limit-Reset: 1796040017"], [("plain", 4, 18)]),
        (["X-RateLimit-Reset: 45"], [("plain", None, 45)]),
        (["X-RateLimit-Remaining: -1", "X-RateLimit-Reset: 0"], [("plain", None, 0)]),
        (
            ["X-RateLimit-Remaining: 0, 9", "X-RateLimit-Reset: 1, 99"],
            [("plain", 0, 1), ("plain", 9, 99)],
        ),
        (
            ["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1, 99"],
            [("plain", 0, 1), ("plain", None, 99)],
        ),
        (
            ["X-RateLimit-Remaining: 0", "X-RateLimit-Remaining: 9"],
            [("plain", 0, None), ("plain", 9, None)],
        ),
        (
            ["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Mon, 30 Nov 2026 12:00:33 GMT"],
            [("plain", 0, 34)],
        ),
        (
            [
                "X-RateLimit-Remaining: 0",
                "X-RateLimit-Reset: 1796040009",
                "X-RateLimit-Reset-After: 1.57",
            ],
            [("plain", 0, 1.57)],
        ),
        (
            ["x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 6m0s"],
            [("named", 0, 360)],
        ),
        (
            [
                "anthropic-ratelimit-input-tokens-remaining: 0",
                "anthropic-ratelimit-input-tokens-reset: 9",
            ],
            [("named", 0, 9)],
        ),
        (["X-ESI-Error-Limit-Remain: 0", "X-ESI-Error-Limit-Reset: 37"], [("named", 0, 37)]),
        (["X-RateLimit-Remaining: " + "0," * 3_000], []),
        (["X-RateLimit-Used: 5000", "X-RateLimit-Resource: core"], []),
        (["Retry-After: 5", "Content-Type: text/plain"], []),
    ],
)
def test_budgets(lines: list[str], expected: Said) -> None:
    """What is left and until when, by the dialect that says so."""
    assert said(*lines) == expected


def test_what_is_unread_is_not_unsaid() -> None:
    """A field that says what is left, though not how much, is not one that is missing."""
    known, unknown = (
        budgets(of("X-RateLimit-Reset: 45", *more), NOW)
        for more in ([], ["X-RateLimit-Remaining: -1"])
    )
    assert [one.silent for one in known] == [True]
    assert unknown == [Budget("ratelimit-x 0", "plain", None, 45)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ['RateLimit-Policy: "burst";q=100;w=60, "day";q=1000;w=86400'],
            [(100, 60), (1000, 86_400)],
        ),
        (['RateLimit-Policy: "bytes";q=9;w=60;qu="content-bytes"'], []),
        (['RateLimit-Policy: "a";q=9;w=60;qu="requests"'], [(9, 60)]),
        (["RateLimit-Limit: 100, 100;w=60"], [(100, 60)]),
        (["X-RateLimit-Policy: 1;w=1, 2000;w=2592000"], [(1, 1), (2000, 2_592_000)]),
        (["X-Rate-Limit-Limit: 50", "X-Rate-Limit-Interval: 1s"], [(50, 1)]),
        (["X-Rate-Limit-Limit: 50", "X-Rate-Limit-Interval: 10"], [(50, 10)]),
        (["X-Rate-Limit-Interval: 1s"], []),
        (["X-RateLimit-Limit-Minute: 60", "X-RateLimit-Limit-Day: 9"], [(60, 60), (9, 86_400)]),
        (["X-RateLimit-Limit: 5000", "Zendesk-RateLimit-Users: 5"], []),
        (['RateLimit-Policy: "none";q=0;w=60', 'X-RateLimit-Policy: "long";q=1;w=99999999'], []),
        (["X-RateLimit-Limit-Minute: 1.5"], []),
        (["X-RateLimit-Limit-Minute: many"], []),
        (["RateLimit-Policy: 10;w=60", "X-RateLimit-Policy: 10;w=60"], [(10, 60)]),
    ],
)
def test_limits(lines: list[str], expected: list[tuple[int, float]]) -> None:
    """Counts that are announced with their period, each once; what is no limit is left out."""
    assert limits(of(*lines)) == tuple(Limit(count, period) for count, period in expected)
