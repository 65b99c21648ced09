"""After an answer: hand it on, or send the request again, and what the fleet is to be told.

Pure: the shell brings the feedback, what may be resent and how long the retry policy backs off.
"""

from __future__ import annotations

from dataclasses import dataclass

from quotaclient._core.feedback import Feedback

LONGEST_HOLD = 86_400.0  # seconds: longer ones are asked about once a day

# RFC 9110 section 9.2.2: sending these twice means the same as sending them once.
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand the answer on. `hold`: seconds that nobody is to send, None for no hold."""

    hold: float | None


@dataclass(frozen=True, slots=True)
class Resend:
    """Close the answer and send again, with a new permit, after the hold."""

    hold: float


@dataclass(frozen=True, slots=True)
class Chances:
    """What speaks for sending a request again.

    `backoff` and `patience` are seconds: what the retry policy waits when the upstream names no
    time, and what is left of max_wait (None: unbounded).
    """

    sends_left: bool
    replayable: bool
    idempotent: bool
    backoff: float
    patience: float | None


def after_success(feedback: Feedback) -> Deliver:
    """It is handed over; with nothing left, the next ones wait."""
    ahead = feedback.hold_after
    return Deliver(None if ahead is None else min(ahead, LONGEST_HOLD))


def after(feedback: Feedback, chances: Chances) -> Deliver | Resend:
    """What an answer leads to.

    A refusal (429, 420, 418) was not worked on, so any method may go again; an overload (503,
    529) may strike in mid-work, so only what means the same twice. A stated wait is kept as it
    is; 0, past or none becomes the back-off, so that nothing ever spins. A wait longer than the
    patience hands the answer over at once, and never retries early.
    """
    if not feedback.throttled:
        return after_success(feedback)
    wait = feedback.wait or (None if feedback.terminal else chances.backoff)
    hold = None if wait is None else min(wait, LONGEST_HOLD)
    if (
        hold is None
        or feedback.terminal
        or not (chances.sends_left and chances.replayable)
        or (feedback.overload and not chances.idempotent)
        or (chances.patience is not None and hold > chances.patience)
    ):
        return Deliver(hold)
    return Resend(hold)
