"""Every parameter, with values that cannot be: our errors, showing the value and an example."""

from __future__ import annotations

from typing import Any

import pytest
import tenacity

from quotaclient import (
    AsyncQuota,
    AsyncQuotaClient,
    AsyncQuotaTransport,
    InvalidLimit,
    Quota,
    QuotaClient,
    QuotaTransport,
)
from tests.shells.colours import Colour

NAN, INF = float("nan"), float("inf")
HUGE = 10**400  # more than any float
LONGER = 10**5000  # more digits than Python is willing to print

MAKERS: dict[str, Any] = {
    "Quota": lambda **kw: Quota(kw.pop("key", "k"), kw.pop("limit", "5/min"), **kw),
    "AsyncQuota": lambda **kw: AsyncQuota(kw.pop("key", "k"), kw.pop("limit", "5/min"), **kw),
    "QuotaClient": lambda **kw: QuotaClient(**{"limit": "5/min", **kw}),
    "AsyncQuotaClient": lambda **kw: AsyncQuotaClient(**{"limit": "5/min", **kw}),
    "QuotaTransport": lambda **kw: QuotaTransport(**{"limit": "5/min", **kw}),
    "AsyncQuotaTransport": lambda **kw: AsyncQuotaTransport(**{"limit": "5/min", **kw}),
}

WRONG: dict[str, list[Any]] = {
    "limit": [
        "", " ", "100", "0/min", "-1/min", "nan/min", "1.5/min", "1/0s", "1/min; ", "1/min later",
        "1/fortnight", "9" * 50 + "/min", "1/min;1/min", "x" * 2000, "٣/min",
        5, 0, -1, NAN, INF, True, None, b"1/min", [], ["5/min"], [None], object(), HUGE, LONGER,
    ],
    "max_wait": [-1, -0.001, NAN, INF, -INF, True, False, "1", b"1", [], {}, HUGE, -HUGE, LONGER],
    "guard": [-1, -1e-9, NAN, INF, True, "0.1", [], 30.001, HUGE, -HUGE, LONGER],
    "replicas": [0, -1, 1.0, 1.5, NAN, INF, True, "3", [], -HUGE, -LONGER],
    "on_outage": ["", "Share", "ignore", None, True, 1, NAN, [], {}],
    "prefix": ["", " ", "a b", "a\n", "{x}", "x" * 200, "\ud800", 5, NAN, True, None, b"quota"],
    "key": ["", "k" * 100_000, 5, NAN, True, b"key", ["key"]],
    "redis": ["", "http://localhost", "localhost:6379", 5, True, NAN, b"redis://h", [], object()],
}  # fmt: skip
CASES = [(name, value) for name, values in WRONG.items() for value in values]
HTTP = [kind for kind in MAKERS if not kind.endswith("Quota")]
ROUTES: list[Any] = [
    "", "GET /search/*", "30/min", 5, 0, True, NAN, b"/a", [], ["/a"], [("/a", "1/min")], {"/a"},
    object(), HUGE, LONGER, {"": "1/min"}, {"a": "1/min"}, {"get /a": "1/min"}, {5: "1/min"},
    {None: "1/min"}, {b"/a": "1/min"}, {"GET  /a": "1/min"}, {"GET": "1/min"}, {"/a?b": "1/min"},
    {"/{id}": "1/min"}, {"/é": "1/min"}, {"\ud800": "1/min"}, {LONGER: "1/min"}, {"/a": ""},
    {"/a": "0/min"}, {"/a": 5}, {"/a": None}, {"/a": NAN}, {"/a": []}, {"/a": {"/b": "1/min"}},
    {"/a": "1/min; 2/min"}, {"/a": LONGER}, {"x" * 100_000: "1/min"},
]  # fmt: skip
RETRIES: list[Any] = [-1, 1.0, NAN, INF, True, "2", None, [], tenacity.Retrying, -HUGE, -LONGER]


def numbered(cases: list[tuple[str, Any]]) -> list[str]:
    """Names of tests that do not print their values: some cannot be printed."""
    return [f"{name}-{number}" for number, (name, _) in enumerate(cases)]


def complaint(kind: str, name: str, value: Any) -> str:
    """What making it with this value says."""
    with pytest.raises(ValueError, match=r".") as caught:
        MAKERS[kind](**{name: value})
    assert isinstance(caught.value, InvalidLimit) or name != "limit"
    return str(caught.value)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(("name", "value"), CASES, ids=numbered(CASES))
def test_a_parameter_that_cannot_be(kind: str, name: str, value: Any) -> None:
    """A ValueError (InvalidLimit for limits) at once, with the value and a correct example."""
    message = complaint(kind, name, value)
    hints = ("for example", "such as", "keep the smaller")
    assert any(hint in message for hint in hints), message
    assert len(message) < 1000
    if isinstance(value, str) and 0 < len(value) < 30 and value.isprintable():
        assert value.strip("; ").split(";")[0].strip() in message
    elif name == "redis" and not isinstance(value, str):
        assert type(value).__name__ in message  # not the value: it may hold a password
    elif isinstance(value, int | float) and value not in (HUGE, -HUGE, LONGER, -LONGER):
        assert repr(value) in message


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("value", ROUTES, ids=range(len(ROUTES)))
def test_routes_that_cannot_be(kind: str, value: Any) -> None:
    """No mapping, no route or no limit: a ValueError that shows the culprit and what would do."""
    message = complaint(kind, "routes", value)
    assert any(hint in message for hint in ("for example", "such as", "keep the smaller")), message
    assert "routes=" in message
    assert len(message) < 1000


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("value", RETRIES, ids=range(len(RETRIES)))
def test_a_retry_that_cannot_be(kind: str, value: Any) -> None:
    """Neither a number of resends nor a tenacity object: a ValueError that shows what would do."""
    message = complaint(kind, "retry", value)
    assert "retry=2" in message
    assert "Retrying" in message


@pytest.mark.parametrize("kind", MAKERS)
def test_unknown_parameters_are_type_errors(kind: str) -> None:
    """A misspelt parameter does not pass for a default."""
    with pytest.raises(TypeError):
        MAKERS[kind](max_weight=3)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_password_is_not_shown(kind: str) -> None:
    """A Redis URL that cannot be used is shown without its password."""
    assert "s3cret" not in complaint(kind, "redis", "http://me:s3cret@host/0")


ARGUMENTS: list[tuple[str, Any]] = [
        ("cost", -1), ("cost", 1.0), ("cost", NAN), ("cost", INF), ("cost", True), ("cost", "1"),
        ("cost", None), ("cost", [1]), ("cost", 6), ("cost", HUGE), ("cost", LONGER),
        ("cost", -LONGER), ("cost", {"tokens": 1}), ("cost", {"requests": -1}),
        ("cost", {"requests": True}), ("cost", {"requests": 1.5}), ("cost", {7: 1}),
        ("max_wait", -1), ("max_wait", NAN), ("max_wait", INF), ("max_wait", True),
        ("max_wait", "1"), ("max_wait", HUGE), ("max_wait", LONGER),
        ("priority", 1.0), ("priority", NAN), ("priority", True), ("priority", "1"),
        ("priority", None), ("key", ""), ("key", 5), ("key", b"k"), ("key", True),
        ("key", ["k"]), ("key", "k" * 65_537),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), ARGUMENTS, ids=numbered(ARGUMENTS))
def test_an_argument_of_acquire_that_cannot_be(
    colour: Colour, key: str, name: str, value: Any
) -> None:
    """acquire says so before anything is spent, showing the value and what would do."""
    quota = colour.quota(key, "5/min")
    with pytest.raises(ValueError, match=r"for example|split") as caught:
        quota.acquire(**{name: value})
    if isinstance(value, int | float) and value not in (HUGE, LONGER, -LONGER):
        assert repr(value) in str(caught.value)
    assert quota.used() == 0


@pytest.mark.parametrize(
    "priority", [-HUGE, HUGE, -1, 0], ids=["lowest", "highest", "low", "usual"]
)
def test_any_whole_number_is_a_priority(colour: Colour, key: str, priority: int) -> None:
    """Priorities have no bounds."""
    assert colour.quota(key, "5/min").acquire(priority=priority).remaining == 4


@pytest.mark.parametrize(
    "name",
    ["lone \ud800 surrogate", "naïve – 日本", "a\nb\x00c", "{x}:*", "x" * 65_000],
    ids=["surrogate", "unicode", "control", "glob", "long"],
)
def test_any_text_is_a_key(colour: Colour, key: str, redis: str | None, name: str) -> None:
    """Whatever a tenant is called, its name is a key."""
    quota = colour.quota(f"{key}{name}", "2/min", redis=redis)
    quota.acquire(2)
    assert quota.try_acquire() is None


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:99999/0", "redis://no such host/0", "redis://127.0.0.1:1/0"]
)
def test_a_redis_that_cannot_be_reached_is_an_outage(colour: Colour, key: str, url: str) -> None:
    """Whatever is wrong with the address, the quota's own errors and its share come of it."""
    try:
        quota = colour.quota(key, "4/min", redis=url, replicas=2)
    except ValueError:
        return  # said at once: as good
    assert quota.acquire().source == "share"
    assert quota.try_acquire() is not None
    assert quota.try_acquire() is None
