"""Limits of each kind, and all together, on each colour and store."""

from __future__ import annotations

import pytest

from quotaclient import Limit, QuotaExceeded
from tests.shells.colours import Colour, stopwatch

DAILY = Limit(10, 86_400, kind="fixed", zone="America/Los_Angeles")


def test_a_paced_limit_does_not_go_at_once(any_colour: Colour, redis: str | None, key: str) -> None:
    """Of a hundred a minute ten go in six seconds, and what is full is told."""
    quota = any_colour.quota(key, "100/min pace", redis=redis)
    assert quota.acquire(10).remaining == 0
    with pytest.raises(QuotaExceeded) as caught:
        quota.acquire(max_wait=1)
    assert caught.value.limit == Limit(10, 6)
    assert 5 < caught.value.retry_after <= 6.5


def test_a_bucket_gives_its_burst_and_then_its_rate(
    any_colour: Colour, redis: str | None, key: str
) -> None:
    """Forty go at once; after that one goes each tenth of a second."""
    quota = any_colour.quota(key, "10/s bucket 40", redis=redis)
    with stopwatch() as burst:
        quota.acquire(40)
    with stopwatch() as rate:
        for _ in range(5):
            quota.acquire()
    assert burst.seconds < 0.3
    assert 0.3 < rate.seconds < 1.5
    with pytest.raises(ValueError, match="can never be met"):
        quota.acquire(41)


def test_a_fixed_limit_waits_for_its_midnight(
    any_colour: Colour, redis: str | None, key: str
) -> None:
    """What a day has no room for may come after its end, which is at most 25 hours away."""
    quota = any_colour.quota(key, DAILY, redis=redis)
    assert quota.acquire(10).remaining in (0, 10)  # a day may begin just now
    if quota.peek().remaining == 0:
        with pytest.raises(QuotaExceeded) as caught:
            quota.acquire(10, max_wait=0)
        assert 0 < caught.value.retry_after <= 25 * 3600


def test_a_period_is_over_at_its_end(any_colour: Colour, redis: str | None, key: str) -> None:
    """All of a period goes at once, and all of the next one as soon as it begins."""
    quota = any_colour.quota(key, "20/s fixed", redis=redis)
    with stopwatch() as took:
        for _ in range(41):
            quota.acquire()
    assert 1 <= took.seconds < 3


def test_kinds_mix(any_colour: Colour, redis: str | None, key: str) -> None:
    """Each has its count, one refuses for all, and what is given back is given back to each."""
    quota = any_colour.quota(
        key, "100/min; 50/h fixed; 1/h bucket 30; 500 tokens/h bucket 1000", redis=redis
    )
    quota.acquire({"requests": 20, "tokens": 900})
    assert list(quota.peek().used.values()) == [20, 20, 20, 900]
    with pytest.raises(QuotaExceeded) as caught:
        quota.acquire({"requests": 11}, max_wait=0)
    assert caught.value.limit == Limit(1, 3600, kind="bucket", burst=30)
    quota.reset()
    assert list(quota.peek().used.values()) == [0, 0, 0, 0]
