"""Numbers, spans and instants in tables; what is read at all is bounded."""

from __future__ import annotations

import pytest

from quotaclient._core.scalars import DAY, MOST, instant, number, reset, span

NOW = 1_796_040_000.0  # 30 Nov 2026 12:00:00 UTC


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("007", 7), ("1.5", 1.5), ("9" * 128, float("9" * 128)), ("9" * 129, None)]
    + [
        (text, None)
        for text in ("", "-1", "+1", "1e3", "1_0", "nan", "inf", "\u0665", " 1", "1.", ".5")
    ],
)
def test_number(text: str, value: float | None) -> None:
    """Digits, and a point between digits: nothing else that float() would read."""
    assert number(text) == value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360),
        ("250ms", 0.25),
        ("1h1m1s", 3_661),
        ("17.5s", 17.5),
        ("5µs", 5e-6),
        ("8h0m0s", 28_800),
        ("800h", MOST),
        ("00:01:30", 90),
        ("1:00:00", 3_600),
        ("999:59:59", MOST),
        ("1:60:00", None),
        ("1m" * 65, None),
        ("soon", None),
        ("", None),
    ],
)
def test_span(text: str, seconds: float | None) -> None:
    """Go's notation, in which "ms" is no minute, and hh:mm:ss; 32 days at most."""
    assert span(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("2026-11-30T12:00:45Z", 45),
        ("2026-11-30T12:00:45.999Z", 45),
        ("2026-11-30 12:00:45", 45),
        ("2026-11-30 12:00:45 UTC", 45),
        ("2026-11-30T12:02", 120),
        ("2026-11-30T14:00:45+02:00", 45),
        ("2026-11-30T04:00:45-0800", 45),
        ("2026-11-31T12:00:00Z", None),
        ("2026-13-01T12:00:00Z", None),
        ("Mon Nov 30 2026 13:00:45 GMT+0100 (Central European Standard Time)", 45),
        ("Mon Nov 30 2026 12:00:45 GMT", 45),
        ("Mon, 30 Nov 2026 12:00:45 GMT", 45),
        ("Mon Nov 30 12:00:45 2026", 45),
        ("Monday, 30-Nov-26 12:00:45 GMT", 45),
        ("Mon, 30 Nov 2026 12:00:45 GMT" + " " * 128, None),
        ("tomorrow", None),
    ],
)
def test_instant(text: str, after: float | None) -> None:
    """ISO, the three forms of HTTP and JavaScript's; without a zone they are UTC."""
    assert instant(text, NOW) == (None if after is None else NOW + after)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45", 45),
        ("0", 0),
        ("45.5", 45.5),
        (str(32 * 86_400), MOST),
        ("1796040045", 46),
        ("1796040045000", 45.001),
        ("1796040045000000", 45.000001),
        ("1796040045000000000", 45),
        ("1796039400", 0),
        (str(int(NOW - DAY)), 0),
        (str(int(NOW - DAY) - 1), None),
        (str(int(NOW + MOST)), MOST),
        (str(int(NOW + MOST) + 1), None),
        ("99999999", None),
        ("6m0s", 360),
        ("2026-11-30T12:00:45Z", 46),
        ("never", None),
    ],
)
def test_reset(text: str, seconds: float | None) -> None:
    """A span, a date or a stamp in any unit, near enough to be one; else it says nothing."""
    assert reset(text, NOW) == (None if seconds is None else pytest.approx(seconds, abs=1e-4))
