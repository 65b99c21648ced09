"""How often and after what back-off a throttled request is sent again, as tenacity says it.

Of a tenacity object its stop and its wait are used: whether an answer is worth a resend is for
the feedback to say, and the waiting is done in the lane.
"""

from __future__ import annotations

from typing import Any

import tenacity

from quotaclient._core.options import wrong

Policy = tenacity.BaseRetrying

LONGEST_BACKOFF = 60.0  # seconds
LEAST_BACKOFF = 0.001  # seconds: what a policy means by 0, by less, or by nan, is not to spin


def checked_retry(value: object) -> Policy:
    """The number of resends after a throttled answer (>= 0), or a tenacity Retrying."""
    if isinstance(value, Policy):
        return value
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise wrong("retry", value, "a whole number >= 0 or a tenacity.Retrying", "retry=2")
    return tenacity.Retrying(
        stop=tenacity.stop_after_attempt(value + 1),
        wait=tenacity.wait_exponential(multiplier=1, max=LONGEST_BACKOFF),
    )


class Attempts:
    """The sends of one request, as its retry policy sees them.

    Made when one of them was throttled: most requests need no state of tenacity's.
    """

    def __init__(self, policy: Policy, started: float) -> None:
        self._policy = policy
        self._state = tenacity.RetryCallState(policy, None, (), {})
        self._state.start_time = started

    def answered(self, response: Any, sends: int) -> tuple[bool, float]:
        """Whether the policy allows another send after so many, and its back-off in seconds."""
        state = self._state
        state.attempt_number = sends
        state.set_result(response)
        backoff = float(self._policy.wait(state))
        backoff = backoff if backoff > LEAST_BACKOFF else LEAST_BACKOFF
        state.upcoming_sleep = backoff
        return not self._policy.stop(state), backoff
