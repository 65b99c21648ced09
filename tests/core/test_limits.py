from __future__ import annotations

import copy
import math
import pickle
import re
from collections.abc import Callable, Iterable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotaclient._core.limits import (
    InvalidLimit,
    Limit,
    Unit,
    day,
    hour,
    limits_of,
    minute,
    second,
)

# Python prints no integer of so many digits, and neither may pytest.
HUGE = pytest.param(10**5000, id="huge")
YEAR_US = 366 * 86_400 * 1_000_000

counts = st.integers(1, 10**12)
periods = st.one_of(
    st.integers(1_000, YEAR_US).map(lambda us: us / 1e6),
    st.integers(1, 366 * 24).map(lambda hours: hours * 3_600.0),
    st.floats(0.001, 366 * 86_400),
)
names = st.one_of(
    st.sampled_from(["requests", "per", "s", "tokens"]),
    st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,63}", fullmatch=True),
)
sliding = st.builds(lambda c, p, n: Limit(c, p, name=n), counts, periods, names)
fixed = st.builds(
    lambda c, part, n, zone: Limit(c, 86_400 / part, name=n, kind="fixed", zone=zone),
    counts,
    st.sampled_from([1, 2, 3, 24, 1440, 2700, 86_400, 864_000]),
    names,
    st.sampled_from([None, "UTC", "America/Los_Angeles", "Asia/Kolkata", "Etc/GMT+5", "EST5EDT"]),
)
buckets = st.builds(
    lambda c, p, n, burst: Limit(c, p, name=n, kind="bucket", burst=burst),
    counts,
    periods,
    names,
    counts,
)
limits = sliding | fixed | buckets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100/min", [Limit(100, 60)]),
        ("200/10s", [Limit(200, 10)]),
        ("10/s; 1000/h", [Limit(10, 1), Limit(1000, 3600)]),
        ("5 per 2 minutes", [Limit(5, 120)]),
        (
            "500/min; 90000 tokens/min",
            [Limit(500, 60), Limit(90_000, 60, name="tokens")],
        ),
        ("1/0.5s", [Limit(1, 0.5)]),
        ("10000/day", [Limit(10_000, 86_400)]),
        ("3 Tokens PER 1.5 Hours", [Limit(3, 5400, name="Tokens")]),
        (" \t7\n/\n2   MIN ;8/d ", [Limit(7, 120), Limit(8, 86_400)]),
        ("007/007s", [Limit(7, 7)]),
        ("100 requests per second", [Limit(100, 1)]),
        ("5 per per h", [Limit(5, 3600, name="per")]),
        ("5 per/h", [Limit(5, 3600, name="per")]),
        ("1000000000000/366d", [Limit(10**12, 366 * 86_400)]),
        ("100/min pace", [Limit(100, 60), Limit(10, 6)]),
        ("100/min Pace 5; 9/s", [Limit(100, 60), Limit(5, 3), Limit(9, 1)]),
        ("95 tokens/s pace", [Limit(95, 1, name="tokens"), Limit(10, 0.105264, name="tokens")]),
        ("10000/day fixed", [Limit(10_000, 86_400, kind="fixed")]),
        ("5 a per 6 h FIXED UTC", [Limit(5, 21_600, name="a", kind="fixed", zone="UTC")]),
        (
            "9/d fixed America/Los_Angeles; 9/d fixed Asia/Kolkata; 9/d",
            [
                Limit(9, 86_400, kind="fixed", zone="America/Los_Angeles"),
                Limit(9, 86_400, kind="fixed", zone="Asia/Kolkata"),
                Limit(9, 86_400),
            ],
        ),
        ("2/s bucket 40", [Limit(2, 1, kind="bucket", burst=40)]),
        ("40 Burst , 2 tokens/s", [Limit(2, 1, name="tokens", kind="bucket", burst=40)]),
        ("5 burst/h", [Limit(5, 3600, name="burst")]),
    ],
)
def test_text(text: str, expected: list[Limit]) -> None:
    """Text names limits, with blanks and letters of either case wherever they do no harm."""
    assert Limit.parse(text) == tuple(expected)
    assert limits_of(text) == tuple(expected)


@pytest.mark.parametrize(
    ("units", "seconds"),
    [
        ("s sec secs second seconds", 1),
        ("m min mins minute minutes", 60),
        ("h hr hrs hour hours", 3600),
        ("d day days", 86_400),
    ],
)
def test_unit_names(units: str, seconds: int) -> None:
    """Each unit goes by its letter, its short forms, its singular and its plural."""
    for unit in units.split():
        assert Limit.parse(f"3/{unit}") == (Limit(3, seconds),)
        assert Limit.parse(f"3 per 2 {unit.upper()}") == (Limit(3, 2 * seconds),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ";",
        "100",
        "100/",
        "/min",
        "min",
        "100/10",
        "10/s;",
        "10/s;;1000/h",
        "10/s, 1000/h",
        "100/min please",
        "100/min/s",
        "100//min",
        "100permin",
        "10 paper h",
        "0/min",
        "-5/min",
        "+5/min",
        "1.5/min",
        "1e3/min",
        "1_000/min",
        "1,000/min",
        "100k/min",
        "nan/min",
        "inf/min",
        "\N{ARABIC-INDIC DIGIT FIVE}/min",
        "5/\N{ARABIC-INDIC DIGIT FIVE}s",
        "5\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}s",
        "1/0s",
        "1/0.0000001s",
        "1/-1s",
        "1/nan s",
        "1/1e3s",
        "1/.5s",
        "1/5.s",
        "1/367d",
        pytest.param("1/" + "9" * 900 + "s", id="long period"),
        pytest.param("9" * 900 + "/s", id="long count"),
        "1000000000001/s",
        "100/fortnight",
        "100/ms",
        "100/month",
        "5 2tokens/min",
        "100/minpace",
        "1/min pace",
        "100/min pace 0",
        "100/min pace 100",
        "100/min pace five",
        "100/min pace fixed",
        "10/2ms pace 1",
        "100/7d fixed",
        "100/7h fixed",
        "100/d fixed Los Angeles",
        "100/d fixed Mars/Olympus",
        "100/d fixed America",
        "100/d fixed ../UTC",
        "100/d fixed 5",
        "2/s bucket",
        "2/s bucket 0",
        "2/s bucket -1",
        "2/s bucket 1.5",
        "40 burst 2/s",
        "40 burst, 2/s bucket 40",
        "40 burst, 100/min pace",
        "40 burst, 100/min fixed",
        "5 to.kens/min",
        f"5 {'x' * 65}/min",
        pytest.param("10/s" + " " * 1000, id="blanks"),
        pytest.param("9" * 100_000, id="long text"),
    ],
)
def test_bad_text(text: str) -> None:
    """Text that is no limit is refused, and the refusal shows it and a correct example."""
    with pytest.raises(InvalidLimit) as caught:
        Limit.parse(text)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 500
    assert any(is_valid(quoted) for quoted in re.findall(r'"(.*?)"', message))
    assert text[:10] in message or "\N{NO-BREAK SPACE}" in text  # shown escaped


def is_valid(text: str) -> bool:
    """Whether the text is a limit."""
    try:
        return bool(Limit.parse(text))
    except InvalidLimit:
        return False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "100/fortnight",
            "'100/fortnight' has the unknown unit 'fortnight':"
            ' use s, min, h or d, for example "100/min"',
        ),
        (
            "0/min",
            "'0/min' is not a limit: the count must be a whole number from 1 to"
            ' 1,000,000,000,000, not 0; for example Limit(100, 60) or "100/min"',
        ),
        (
            "1/min pace",
            '\'1/min pace\' is not a limit: "1/min" with a burst of 1 is not paced: leave "pace"'
            ' out; for example "100/min pace 5"',
        ),
        (
            "10/s; 20/s",
            '"10/s" and "20/s" are limits on one window: keep the smaller, or give each its'
            ' own period or name, for example "10/s; 1000/h; 90000 tokens/h"',
        ),
    ],
)
def test_message(text: str, message: str) -> None:
    """A refusal says what is wrong and what would be right."""
    with pytest.raises(InvalidLimit) as caught:
        Limit.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", [None, 100, b"100/min", ["100/min"]])
def test_text_of_wrong_type(text: object) -> None:
    """What is not text is not parsed."""
    with pytest.raises(InvalidLimit, match="100/min"):
        Limit.parse(text)  # type: ignore[arg-type]


@given(st.text(alphabet="0159 /;.permintokshd-_\tE", max_size=40) | st.text())
@example("1/s;1 requests/1.0s")
def test_any_text(text: str) -> None:
    """Any text at all is either limits or an InvalidLimit."""
    if is_valid(text):
        parsed = Limit.parse(text)
        assert Limit.parse("; ".join(map(str, parsed))) == parsed


@given(limits)
@example(Limit(1, 59.999999))
@example(Limit(1, 1 / 3))
@example(Limit(1, 31_622_399.999999))
def test_text_round_trip(limit: Limit) -> None:
    """The text of a limit reads back as an equal limit."""
    assert Limit.parse(str(limit)) == (limit,)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(100, 60), "100/min"),
        (Limit(200, 10), "200/10s"),
        (Limit(5, 120), "5/2min"),
        (Limit(5, 90), "5/90s"),
        (Limit(10, 1), "10/s"),
        (Limit(1, 0.5), "1/0.5s"),
        (Limit(1, 0.001), "1/0.001s"),
        (Limit(1000, 3600), "1000/h"),
        (Limit(1000, 7 * 86_400), "1000/7d"),
        (Limit(90_000, 60, name="tokens"), "90000 tokens/min"),
        (Limit(9, 86_400, kind="fixed"), "9/d fixed"),
        (Limit(9, 86_400, kind="fixed", zone="Asia/Kolkata"), "9/d fixed Asia/Kolkata"),
        (Limit(2, 1, kind="bucket", burst=40), "2/s bucket 40"),
    ],
)
def test_shortest_text(limit: Limit, text: str) -> None:
    """A limit prints as people write it."""
    assert str(limit) == text


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (100 / minute, Limit(100, 60)),
        (200 / (10 * second), Limit(200, 10)),
        (200 / (second * 10), Limit(200, 10)),
        (1 / (0.5 * second), Limit(1, 0.5)),
        (5 / hour, Limit(5, 3600)),
        (5 / day, Limit(5, 86_400)),
        (Limit(5, 2 * minute), Limit(5, 120)),
    ],
)
def test_units(limit: Limit, expected: Limit) -> None:
    """A count divided by a unit is a limit, and a unit stands for its seconds."""
    assert limit == expected
    assert type(limit.period) is float


@pytest.mark.parametrize("count", [0, -1, 1.5, True, math.nan, 10**12 + 1, HUGE, "5", None, []])
def test_bad_count(count: object) -> None:
    """A count is a whole number from 1 to 10**12, whichever way the limit is made."""
    with pytest.raises(InvalidLimit, match=r"count must be .* not .*100/min"):
        Limit(count, 60)  # type: ignore[arg-type]
    with pytest.raises(InvalidLimit, match=r"count must be .* not .*100/min"):
        count / minute  # type: ignore[operator]


@pytest.mark.parametrize(
    "period",
    [
        0,
        0.0009,
        -60,
        math.nan,
        math.inf,
        367 * 86_400,
        10**400,
        -(10**400),
        HUGE,
        True,
        "60",
        None,
        [],
    ],
)
def test_bad_period(period: Any) -> None:
    """A period is 0.001 seconds to 366 days, whichever way it is made."""
    makers: list[Callable[[Any], object]] = [
        lambda period: Limit(1, period),
        lambda period: period * second,
        lambda period: second * period,
        Unit,
    ]
    for make in makers:
        with pytest.raises(InvalidLimit, match=r"period must be .* not .*200/10s"):
            make(period)


@pytest.mark.parametrize("name", ["", "1st", "a b", "a/b", "a;b", "ä", "a\n", "x" * 65, None, 5])
def test_bad_name(name: object) -> None:
    """A name is a letter and up to 63 letters, digits, "_" or "-"."""
    with pytest.raises(InvalidLimit, match=r"name must be .* not .*tokens"):
        Limit(1, 60, name=name)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["fixed window", "", None, [], 1])
def test_bad_kind(kind: object) -> None:
    """A kind that does not exist is refused."""
    with pytest.raises(InvalidLimit, match="sliding"):
        Limit(1, 60, kind=kind)  # type: ignore[arg-type]


def test_pace_is_no_kind() -> None:
    """The error for the kind "pace" shows how to write it."""
    with pytest.raises(InvalidLimit, match=r'"100/min pace".*\.pace\(\)'):
        Limit(100, 60, kind="pace")  # type: ignore[arg-type]


@given(sliding)
def test_pace_spreads_the_same_rate(limit: Limit) -> None:
    """The second of a pace is a tenth of the units, in a tenth of the time or a little more."""
    if limit.count > 1 and limit.period >= 0.02:
        same, spread = limit.pace()
        assert same == limit
        assert 0 <= 10 * spread.count - limit.count < 10
        exact = spread.count * limit.period_us / limit.count
        assert exact * (1 - 1e-12) <= spread.period_us <= exact + 1
        assert (spread.name, spread.kind) == (limit.name, "sliding")


@pytest.mark.parametrize(
    "make",
    [
        lambda: (1 / minute).pace(),
        lambda: (100 / minute).pace(0),
        lambda: (100 / minute).pace(1.5),  # type: ignore[arg-type]
        lambda: (100 / minute).pace(100),
        lambda: Limit(2, 1, kind="bucket", burst=40).pace(),
        lambda: Limit(2, 1, kind="bucket"),
        lambda: Limit(2, 1, kind="bucket", burst=True),
        lambda: Limit(2, 1, kind="bucket", burst=4, zone="UTC"),
        lambda: Limit(2, 1, burst=4),
        lambda: Limit(2, 1, zone="UTC"),
        lambda: Limit(2, 7, kind="fixed"),
        lambda: Limit(2, 1, kind="fixed", burst=4),
        lambda: Limit(2, 1, kind="fixed", zone=5),  # type: ignore[arg-type]
        lambda: Limit(2, 1, kind="fixed", zone=""),
        lambda: Limit(2, 1, kind="fixed", zone="Mars/Olympus"),
    ],
)
def test_what_kinds_are_not_made_of(make: Callable[[], object]) -> None:
    """What a kind cannot be made of is refused, with an example of what it can."""
    with pytest.raises(InvalidLimit, match=r"for example|can:"):
        make()


@pytest.mark.parametrize(
    ("text", "most", "reach", "spans"),
    [
        ("10/s", 10, 1, {0: 0, 9: 0, 10: 1, 25: 2}),
        ("10/h fixed", 10, 3600, {0: 0, 19: 0, 20: 3600, 30: 7200}),
        ("10/6h fixed Antarctica/Troll", 10, 28_800, {19: 0, 20: 14_400}),
        ("10/15min fixed Asia/Kolkata", 10, 8100, {20: 0, 99: 0}),
        ("2/s bucket 40", 40, 20, {0: 0, 40: 0, 41: 0.5, 50: 5}),
        ("3/s bucket 1", 1, 0.333334, {1: 0, 2: 0.333333}),
    ],
)
def test_what_a_limit_means(text: str, most: int, reach: float, spans: dict[int, float]) -> None:
    """Each kind knows what goes at once, for how long a unit matters, how long more must wait."""
    (limit,) = Limit.parse(text)
    assert limit.most == most
    assert limit.reach_us == round(reach * 10**6)
    assert {units: limit.least_span(units) for units in spans} == {
        units: int(span * 10**6) for units, span in spans.items()
    }


@given(limits)
def test_whole_microseconds(limit: Limit) -> None:
    """A period is kept to the whole microsecond, so equal limits are equal windows."""
    assert limit.period == limit.period_us / 1e6
    assert 1_000 <= limit.period_us <= YEAR_US
    assert Limit(1, 0.1 + 0.2) == Limit(1, 0.3)


def test_value() -> None:
    """A limit is a value: it cannot change; it copies, hashes, pickles, compares by its parts."""
    limit = Limit(100, minute, name="tokens")
    assert limit == Limit(100, 60.0, name="tokens", kind="sliding")
    assert limit != replace(limit, count=200) == Limit(200, 60, name="tokens")
    assert {limit, copy.copy(limit), copy.deepcopy(limit)} == {limit}
    assert pickle.loads(pickle.dumps(limit)) == limit
    assert repr(limit) == (
        "Limit(count=100, period=60.0, name='tokens', kind='sliding', route=''"
        ", zone=None, burst=None)"
    )
    with pytest.raises(FrozenInstanceError):
        limit.count = 5  # type: ignore[misc]
    with pytest.raises(InvalidLimit):
        replace(limit, period=-1)


@pytest.mark.parametrize(
    "value",
    [
        "10/s; 1000/h",
        [10 / second, 1000 / hour],
        (10 / second, 1000 / hour),
        iter([10 / second, 1000 / hour]),
        {10 / second: 1, 1000 / hour: 2},
    ],
)
def test_limits_of_many(value: str | Iterable[Limit]) -> None:
    """Limits may be given as text or as any iterable, in their order."""
    assert limits_of(value) == (Limit(10, 1), Limit(1000, 3600))


def test_limits_of_one() -> None:
    """One limit may stand alone."""
    assert limits_of(100 / minute) == (Limit(100, 60),)


@pytest.mark.parametrize(
    "value",
    [
        None,
        100,
        100.0,
        b"100/min",
        [],
        (),
        ["100/min"],
        [10 / second, None],
        {"requests": 10 / second},
        minute,
        object(),
        [10 / second, Limit(20, 1)],
        [10 / second] * 2,
        "1/min; 2 requests/60s",
    ],
)
def test_bad_limits(value: object) -> None:
    """No limit, something else than limits, and two on the same window are refused."""
    with pytest.raises(InvalidLimit, match=r"/(min|h)"):
        limits_of(value)  # type: ignore[arg-type]
