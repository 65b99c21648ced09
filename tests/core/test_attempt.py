"""What an answer leads to."""

from __future__ import annotations

import pytest

from quotaclient._core.attempt import LONGEST_HOLD, Chances, Deliver, Resend, after
from quotaclient._core.feedback import Feedback

GOOD = Chances(sends_left=True, replayable=True, idempotent=True, backoff=2.0, patience=60.0)


def chances(**changed: object) -> Chances:
    """The good chances, but for what is changed."""
    values = {name: getattr(GOOD, name) for name in Chances.__slots__}
    return Chances(**{**values, **changed})


def test_a_success_is_delivered() -> None:
    """An answer that was not throttled is handed on and holds nobody."""
    assert after(Feedback(False), GOOD) == Deliver(None)


def test_a_stated_wait_is_kept() -> None:
    """The fleet holds as long as the upstream said, and the request goes again."""
    assert after(Feedback(True, wait=5.0), GOOD) == Resend(5.0)


@pytest.mark.parametrize("wait", [None, 0.0])
def test_without_a_time_the_policy_backs_off(wait: float | None) -> None:
    """0, past and none become the back-off: nothing ever spins."""
    assert after(Feedback(True, wait=wait), GOOD) == Resend(2.0)


def test_terminal_is_not_sent_again() -> None:
    """What will never be served is handed on; only a stated wait is held."""
    assert after(Feedback(True, terminal=True), GOOD) == Deliver(None)
    assert after(Feedback(True, terminal=True, wait=7.0), GOOD) == Deliver(7.0)


@pytest.mark.parametrize("why", ["sends_left", "replayable"])
def test_without_another_send_the_answer_is_delivered(why: str) -> None:
    """The upstream's own answer comes back when it cannot be asked again; the hold stands."""
    assert after(Feedback(True, wait=5.0), chances(**{why: False})) == Deliver(5.0)


def test_overload_is_for_what_may_be_done_twice() -> None:
    """503 and 529 may strike in mid-work: only idempotent requests go again."""
    overload = Feedback(True, wait=5.0, overload=True)
    assert after(overload, GOOD) == Resend(5.0)
    assert after(overload, chances(idempotent=False)) == Deliver(5.0)
    assert after(Feedback(True, wait=5.0), chances(idempotent=False)) == Resend(5.0)


def test_patience_decides_at_once() -> None:
    """A wait beyond the patience is never sat out in part, and never cut short."""
    assert after(Feedback(True, wait=60.5), GOOD) == Deliver(60.5)
    assert after(Feedback(True, wait=60.5), chances(patience=None)) == Resend(60.5)


def test_the_longest_hold() -> None:
    """A hold lasts a day at most: longer ones are asked about again."""
    assert after(Feedback(True, wait=10**6), GOOD) == Deliver(LONGEST_HOLD)
