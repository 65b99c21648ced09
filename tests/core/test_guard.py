"""The guard: what it is at first, and what makes it grow."""

from __future__ import annotations

import pytest

from quotaclient._core.guard import CALM, ENOUGH, TRIPS, Guard, default_guard
from quotaclient._core.limits import Limit

SECOND = 1_000_000
MS = 1_000


@pytest.mark.parametrize(
    ("limits", "guard"),
    [
        ((Limit(1, 2), Limit(1, 60)), 50 * MS),
        ((Limit(1, 20),), 200 * MS),
        ((Limit(1, 86_400),), 500 * MS),
        ((Limit(1, 0.1),), 10 * MS),
        ((Limit(60, 60, kind="bucket", burst=1),), 50 * MS),
        ((Limit(2, 1, kind="bucket", burst=40),), 50 * MS),
        ((Limit(100, 1, kind="bucket", burst=5),), 5 * MS),
    ],
)
def test_default_guard(limits: tuple[Limit, ...], guard: int) -> None:
    """1 % of the shortest period, or of filling, within 50 and 500 ms, at most a tenth of it."""
    assert default_guard(limits) == Guard(limits).value == guard


def test_four_round_trips() -> None:
    """An automatic guard is at least four round trips, whatever its own bounds say."""
    guard = Guard((Limit(100, 1),))
    for _ in range(ENOUGH):
        guard.took(60 * MS)
    assert guard.value == 240 * MS


def test_the_first_trips_say_little() -> None:
    """Connections are made on them, and all that begins with a process is slow."""
    guard = Guard((Limit(100, 1),))
    for _ in range(ENOUGH - 1):
        guard.took(400 * MS)
    assert guard.value == 50 * MS
    guard.took(MS)
    assert guard.value == 50 * MS


def test_a_busy_moment_is_not_the_network() -> None:
    """The shortest of the last trips counts, so that it grows only when all are long."""
    guard = Guard((Limit(100, 1),))
    guard.took(MS)
    for _ in range(TRIPS - 1):
        guard.took(100 * MS)
    assert guard.value == 50 * MS
    guard.took(100 * MS)
    assert guard.value == 400 * MS


def test_it_shrinks_with_the_trips() -> None:
    """A network that has become quick again needs no wide windows."""
    guard = Guard((Limit(100, 1),))
    for _ in range(TRIPS):
        guard.took(60 * MS)
    guard.took(MS)
    assert guard.value == 50 * MS


def test_half_the_period_at_most() -> None:
    """Neither trips nor expired permits widen it beyond half the shortest period."""
    guard = Guard((Limit(100, 1), Limit(1000, 60)))
    for _ in range(ENOUGH):
        guard.took(300 * MS)
    assert guard.value == 500 * MS
    given = Guard((Limit(100, 1),), 200 * MS)
    for _ in range(5):
        given.widen()
    assert given.value == 500 * MS


def test_what_a_user_gave_is_kept_on_long_trips() -> None:
    """Trips do not change a guard that the user chose; only permits that expire do."""
    guard = Guard((Limit(100, 1),), 20 * MS)
    for _ in range(TRIPS):
        guard.took(60 * MS)
    assert guard.value == 20 * MS
    guard.widen()
    assert guard.value == 40 * MS


def test_without_a_guard_nothing_expires_and_nothing_grows() -> None:
    """`guard=0` stays 0."""
    guard = Guard((Limit(100, 1),), 0)
    guard.widen()
    assert guard.value == 0
    assert guard.take_warning() is None


def test_one_warning() -> None:
    """That it grew is worth a warning once, with the new value and what to do."""
    guard = Guard((Limit(100, 1),))
    for _ in range(ENOUGH + 1):
        guard.took(60 * MS)
    warning = guard.take_warning()
    assert warning is not None
    assert "0.060 s" in warning
    assert "100/s is 0.240 s" in warning
    guard.widen()
    assert guard.value == 480 * MS
    assert guard.take_warning() is None


def test_a_bad_moment_is_forgotten() -> None:
    """Without late permits it halves again, in steps, after a time that each doubling doubles."""
    guard = Guard((Limit(100, 1),))
    guard.widen()
    guard.widen()
    for value in (100 * MS, 50 * MS, 50 * MS):
        for _ in range(4 * CALM - 1):
            guard.took(MS)
        assert guard.value > value or guard.value == 50 * MS
        guard.took(MS)
        assert guard.value == value
    guard.widen()
    for _ in range(4 * CALM):
        guard.took(MS)
    assert guard.value == 100 * MS


def test_a_late_permit_begins_the_calm_time_anew() -> None:
    """What was needed a moment ago is not given up yet."""
    guard = Guard((Limit(100, 1),), 400 * MS)
    guard.widen()
    for _ in range(3):
        for _ in range(2 * CALM - 1):
            guard.took(MS)
        guard.widen()
    assert guard.value == 500 * MS
