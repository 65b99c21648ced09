from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotaclient._core.feedback import Feedback, read_feedback

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases" / "feedback.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DAY = 86_400
READ = {"retry-after", "retry-after-ms", "x-should-retry", "date", "content-type", "location"}


def concerns_retry_after(case: dict[str, Any]) -> bool:
    """Whether the case can be told by status and Retry-After alone.

    The others need what is not read yet: RateLimit fields and their vendor forms, and bodies, which
    are evidence only where the host has a profile (api.example.com has none).
    """
    body_matters = case["body"] is not None and urlsplit(case["url"]).hostname != "api.example.com"
    return not body_matters and READ.issuperset(name.lower() for name, _ in case["headers"])


COVERED = [case for case in CASES if concerns_retry_after(case)]


def wait_for(
    *values: str, name: str = "Retry-After", date: str | None = None, now: datetime = NOW
) -> float | None:
    """The wait that a 429 with these lines states."""
    headers = [(name, value) for value in values]
    if date is not None:
        headers.append(("Date", date))
    return read_feedback(429, headers, now=now).wait


@pytest.mark.parametrize("case", COVERED, ids=[case["id"] for case in COVERED])
def test_case(case: dict[str, Any]) -> None:
    """Each dialect of Retry-After is read as the table of cases says."""
    feedback = read_feedback(
        case["status"],
        [(name, value) for name, value in case["headers"]],
        now=datetime.fromisoformat(case["now"]),
    )
    expected = dict(case["expect"])
    assert feedback.throttled is expected.pop("throttled")
    assert feedback.terminal is expected.pop("terminal", False)
    if "wait" in expected:
        wait = expected.pop("wait")
        if wait is None:
            assert feedback.wait is None
        else:
            assert feedback.wait is not None
            assert wait[0] <= feedback.wait <= wait[1]
    assert not expected


def test_cases_covered() -> None:
    """The table of cases is whole, and the part read here is not thinned out by accident."""
    assert len(CASES) == 84
    assert len(COVERED) == 38


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (200, [("Retry-After", "5")], Feedback(throttled=False)),
        (404, [("x-should-retry", "false")], Feedback(throttled=False)),
        (403, [("Retry-After", "5")], Feedback(throttled=False)),
        (413, [], Feedback(throttled=False)),
        (413, [("Retry-After", "5")], Feedback(throttled=True, wait=5.0)),
        (418, [], Feedback(throttled=True)),
        (420, [], Feedback(throttled=True)),
        (429, [], Feedback(throttled=True)),
        (503, [("Retry-After", "soon")], Feedback(throttled=False)),
        (503, [("retry-after-ms", "0")], Feedback(throttled=False)),
        (503, [("retry-after-ms", "9")], Feedback(throttled=True, wait=0.009, overload=True)),
        (503, [("Retry-After", "0")], Feedback(throttled=True, wait=0.0, overload=True)),
        (529, [], Feedback(throttled=True, overload=True)),
        (429, [("X-Should-Retry", " False ")], Feedback(throttled=True, terminal=True)),
        (429, [("x-should-retry", "true")], Feedback(throttled=True)),
        (
            429,
            [("x-should-retry", "false"), ("RETRY-AFTER", "\t20 ")],
            Feedback(throttled=True, terminal=True, wait=20.0),
        ),
    ],
)
def test_status(status: int, headers: list[tuple[str, str]], expected: Feedback) -> None:
    """418, 420, 429 and 529 always refuse for the quota's sake, 503 and 413 with Retry-After."""
    assert read_feedback(status, headers, now=NOW) == expected


def test_success_costs_nothing() -> None:
    """An answer that cannot be throttling is told by its status: its headers are not looked at."""

    class Untouchable(list[tuple[str, str]]):
        def __iter__(self) -> NoReturn:
            raise AssertionError

    first = read_feedback(200, Untouchable(), now=NOW)
    assert first is read_feedback(500, Untouchable(), now=NOW)


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("0.001", 0.001),
        ("0030", 30.0),
        (str(32 * DAY), 32.0 * DAY),
        (str(32 * DAY + 1), 32.0 * DAY),
        ("1796039990", 0.0),
        ("1796039999", 0.0),
        ("1796040000", 1.0),
        ("1796040059999.5", 60.0005),
        (str(1_796_040_000 + 32 * DAY), 32.0 * DAY),
        (str(1_796_040_000 + 33 * DAY), 32.0 * DAY),
        ("9" * 128, 32.0 * DAY),
        ("9" * 129, None),
        ("90s", 90.0),
        ("1h2m3.5s", 3723.5),
        ("250ms", 0.25),
        ("1m250ms", 60.25),
        ("5us", 5e-6),
        ("5ns", 5e-9),
        ("9999h", 32.0 * DAY),
        ("1m" * 65, None),
        ("1m 0s", None),
        ("m", None),
        ("1d", None),
        (".5", None),
        ("5.", None),
        ("0x10", None),
        ("Mon, 30 Nov 2026 12:02:00", 121.0),
        ("Mon, 30 Nov 2026 12:02:00 UTC", 121.0),
        ("Mon, 30 Nov 2026 12:02:00 -0000", 121.0),
        ("Mon, 30 Nov 2026 12:02:60 GMT", 181.0),
        ("Mon, 30 Nov 2026 12:02:61 GMT", None),
        ("Mon, 30 Nov 2026 24:00:00 GMT", None),
        ("Mon, 30 Nov 2026 12:02:00 CET", None),
        ("Mon, 30 Now 2026 12:02:00 GMT", None),
        ("Mon, 30 Nov 0000 12:02:00 GMT", None),
        ("Thu, 31 Dec 9999 23:59:60 GMT", 32.0 * DAY),
        ("Tue Dec  1 12:00:00 2026", DAY + 1.0),
        ("Tuesday, 01-Dec-26 12:00:00 GMT", DAY + 1.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
        ("Saturday, 30-Nov-75 12:00:00 GMT", 32.0 * DAY),
        ("Monday, 30-Nov-76 12:00:00 GMT", 32.0 * DAY),
        ("Tuesday, 30-Nov-77 12:00:00 GMT", 0.0),
    ],
)
def test_retry_after(value: str, wait: float | None) -> None:
    """A valid Retry-After is 0 to 32 days, a stamp counts to its own end, all else is ignored."""
    assert wait_for(value) == (None if wait is None else pytest.approx(wait, abs=1e-6))


@pytest.mark.parametrize(
    ("values", "wait"),
    [
        (["1500"], 1.5),
        (["1500", "-1", "2500"], 2.5),
        (["0.5"], 0.0005),
        (["9" * 100], 32.0 * DAY),
        (["1s"], None),
        (["0"], None),
    ],
)
def test_retry_after_ms(values: list[str], wait: float | None) -> None:
    """Of several positive retry-after-ms the largest counts; none of them is ever a stamp."""
    assert wait_for(*values, name="Retry-After-Ms") == wait


@pytest.mark.parametrize(
    ("date", "wait"),
    [
        ("Mon, 30 Nov 2026 11:59:00 GMT", 181.0),
        ("Mon, 30 Nov 2026 12:01:00 GMT", 61.0),
        ("Sun, 29 Nov 2026 12:00:00 GMT", DAY + 121.0),
        ("Sun, 29 Nov 2026 11:59:59 GMT", 121.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 121.0),
        ("yesterday", 121.0),
    ],
)
def test_skewed_clock(date: str, wait: float) -> None:
    """Stamps are read against the answer's own Date, unless that is malformed or a day off."""
    assert wait_for("Mon, 30 Nov 2026 12:02:00 GMT", date=date) == wait
    assert wait_for("1796040120", date=date) == wait
    assert wait_for("120", date=date) == 120.0


def test_zone_of_now() -> None:
    """`now` may be in any zone, and is UTC without one, whatever the zone of the machine."""
    stamp = "Mon, 30 Nov 2026 12:02:00 GMT"
    assert wait_for(stamp, now=NOW.astimezone(timezone(timedelta(hours=-7)))) == 121.0
    assert wait_for(stamp, now=NOW.replace(tzinfo=None)) == 121.0


def test_bounded_time() -> None:
    """Absurd headers are read in time that grows with their length, no faster."""
    absurd = ["1m" * 50_000, "1" * 100_000 + "m", "9" * 100_000, "Mon, " * 20_000, " " * 100_000]
    start = time.perf_counter()
    assert wait_for(*absurd, date="Mon" * 30_000) is None
    assert time.perf_counter() - start < 1.0


dates = st.builds(
    "{}, {:02} {} {} {:02}:{:02}:{:02} GMT".format,
    st.sampled_from(["Mon", "Tue"]),
    st.integers(0, 32),
    st.sampled_from(["Jan", "Feb", "Nov", "Dec", "Xyz"]),
    st.integers(0, 10_000),
    st.integers(0, 25),
    st.integers(0, 61),
    st.integers(0, 61),
)
values = st.one_of(
    st.text(),
    st.text(alphabet="0123456789.hmsnu-+eE_ ", max_size=140),
    st.floats().map(str),
    st.integers().map(str),
    dates,
)
headers = st.lists(
    st.tuples(
        st.one_of(
            st.sampled_from(["Retry-After", "retry-after-ms", "Date", "x-should-retry"]), st.text()
        ),
        values,
    )
)


@given(st.integers(), headers, st.datetimes(timezones=st.none() | st.just(UTC)))
@example(
    429,
    [("Date", "Fri, 31 Dec 9999 23:59:60 GMT"), ("Retry-After", "Friday, 31-Dec-99 23:59:60 GMT")],
    datetime.max,
)
@example(429, [("Retry-After", "Friday, 31-Dec-00 23:59:60 GMT")], datetime.min)
def test_any_answer(status: int, headers: list[tuple[str, str]], now: datetime) -> None:
    """Whatever the answer holds, it is read: nothing raises, and a wait is 0 to 32 days."""
    for each in (status, 429, 503):
        feedback = read_feedback(each, headers, now=now)
        assert feedback.wait is None or 0 <= feedback.wait <= 32 * DAY
        assert feedback.throttled or feedback == Feedback(throttled=False)
