from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotaclient._core.feedback import Feedback, read_feedback, says_something
from quotaclient._core.profiles import GENERIC, PROFILES, profile_of
from quotaclient._feedback import read_feedback as read_any

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases" / "feedback.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DAY = 86_400


def wait_for(
    *values: str, name: str = "Retry-After", date: str | None = None, now: datetime = NOW
) -> float | None:
    """The wait that a 429 with these lines states."""
    headers = [(name, value) for value in values]
    if date is not None:
        headers.append(("Date", date))
    return read_feedback(429, headers, now=now).wait


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    """Each dialect is read as the table of cases says: a bound of least and most seconds."""
    body = case["body"]
    feedback = read_any(
        case["status"],
        [(name, value) for name, value in case["headers"]],
        body if body is None or isinstance(body, str) else json.dumps(body),
        url=case["url"],
        method=case["method"],
        now=datetime.fromisoformat(case["now"]),
    )
    expected = dict(case["expect"])
    assert feedback.throttled is expected.pop("throttled")
    assert feedback.terminal is expected.pop("terminal", False)
    for name, seconds in (("wait", feedback.wait), ("hold", feedback.hold_after)):
        bounds = expected.pop(name, (seconds, seconds))
        if bounds is None or seconds is None:
            assert seconds is bounds is None or bounds == (None, None)
        else:
            assert bounds[0] <= seconds <= bounds[1]
    announced = [[limit.count, limit.period] for limit in feedback.limits]
    assert announced == expected.pop("limits", announced)
    assert not expected


def test_cases_are_whole() -> None:
    """None of the table of cases was lost."""
    assert len(CASES) == 84


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


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "0", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, 9),
        ({"retry-after": "0", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "0"}, 0),
        ({"ratelimit": '"a";r=0;t=5', "x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, 5),
        ({"ratelimit": '"a";r=0;t=5, "b";r=0;t=7'}, 7),
        ({"x-ratelimit-reset-a": "5", "x-ratelimit-remaining-a": "0", "x-ratelimit-reset": "9"}, 5),
        ({"x-ratelimit-reset-a": "5"}, None),
        ({"x-ratelimit-reset": "9"}, 9),
        ({"x-ratelimit-reset": "9", "age": "5"}, None),
        ({"x-ratelimit-reset": "9", "age": "0"}, 9),
        ({"retry-after": "9", "age": "5"}, 9),
    ],
)
def test_what_says_how_long(headers: dict[str, str], wait: float | None) -> None:
    """The first that names a time ahead, of all that are used up in one dialect the longest."""
    assert read_feedback(429, headers.items(), now=NOW).wait == wait


@pytest.mark.parametrize(
    ("status", "headers", "hold"),
    [
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, 9),
        (404, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, 9),
        (200, {"x-ratelimit-remaining": "0"}, None),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "0"}, None),
        (200, {"x-ratelimit-remaining": "1", "x-ratelimit-reset": "9"}, None),
        (200, {"x-ratelimit-reset": "9"}, None),
        (200, {"ratelimit": '"a";r=0;t=5, "b";r=0;t=7, "c";r=1;t=9'}, 7),
        (
            200,
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9", "x-cache": "Hit from x"},
            None,
        ),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9", "x-cache": "MISS"}, 9),
    ],
)
def test_a_success_with_nothing_left(
    status: int, headers: dict[str, str], hold: float | None
) -> None:
    """It is one, and says how long those that come next must wait; what is cached does not."""
    assert read_feedback(status, headers.items(), now=NOW) == Feedback(False, hold_after=hold)


def test_what_says_nothing() -> None:
    """Nearly no success says anything, which is told by the names of its fields."""
    names = "Content-Type Date Server"
    assert not says_something(200, names, GENERIC)
    assert says_something(200, f"{names} X-RateLimit-Remaining", GENERIC)
    assert says_something(429, names, GENERIC)
    assert says_something(503, names, GENERIC)
    assert says_something(403, names, profile_of("api.github.com"))
    assert not says_something(404, names, profile_of("api.github.com"))


hosts = st.sampled_from(["", *(host for profile in PROFILES for host in profile.hosts)])
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "errors", "code", "message", "details", "retry_after"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=9,
)
bodies = st.none() | st.binary(max_size=50) | st.text(max_size=50) | documents.map(json.dumps)
quota_headers = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "RateLimit",
                "RateLimit-Policy",
                "X-RateLimit-Remaining",
                "X-RateLimit-Limit",
                "X-RateLimit-Reset",
                "X-RateLimit-Reset-After",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens",
                "X-Rate-Limit-Interval",
                "Age",
                "X-Cache",
                "Content-Type",
            ]
        ),
        values | st.text(alphabet='"abrtqw=;,0123456789 ', max_size=40),
    ),
    max_size=6,
)


@given(
    st.sampled_from([200, 400, 403, 429, 503]),
    quota_headers,
    bodies,
    hosts,
    st.datetimes(timezones=st.none() | st.just(UTC)),
)
def test_any_answer_of_any_host(
    status: int,
    headers: list[tuple[str, str]],
    body: bytes | str | None,
    host: str,
    now: datetime,
) -> None:
    """Whatever fields and bodies hold: nothing raises, and spans are 0 to 32 days."""
    feedback = read_any(status, headers, body, url=f"https://{host}/graphql", now=now)
    for seconds in (feedback.wait, feedback.hold_after):
        assert seconds is None or 0 <= seconds <= 32 * DAY
    assert feedback.hold_after is None or not feedback.throttled


def test_bounded_time_of_fields() -> None:
    """Absurd lists, names and bodies are read in time that grows with their length, no faster."""
    absurd = [
        ("RateLimit", '"a";r=0, ' * 50_000),
        ("RateLimit", '"' + "\\\\" * 50_000),
        ("RateLimit", "a" * 4_000 + "=" * 90),
        ("X-RateLimit-Remaining", "0," * 50_000),
        ("X-RateLimit-Reset", "1" * 4_000),
        ("x-" * 20_000 + "ratelimit-reset", "5"),
        *((f"x-ratelimit-remaining-{number}", "0") for number in range(10_000)),
    ]
    start = time.perf_counter()
    assert read_any(429, absurd, b"[" * 16_384, url="https://api.telegram.org").throttled
    assert time.perf_counter() - start < 2.0
