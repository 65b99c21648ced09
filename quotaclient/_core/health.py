"""Whether the store is asked at all: a circuit with one prober.

    closed    every ask goes to the store
    open      no ask does, until the back-off has passed
    probing   one ask does, the others still do not

Time and chance are arguments. Times are whole microseconds on the caller's clock.
"""

from __future__ import annotations

from quotaclient._core.ask import SECOND

FIRST_BACKOFF = SECOND // 4
LONGEST_BACKOFF = 2 * SECOND


class Circuit:
    """`back_at` is when the store last came back from an outage, None if it never was away.

    `admits` hands out a ticket, which its holder shows when it knows how the ask ended. Only a
    ticket of the present state changes it: what was under way when others failed, or came back,
    says nothing new.
    """

    def __init__(self) -> None:
        self.back_at: int | None = None
        self._state = 0  # counts the changes
        self._failures = 0
        self._probe_at = 0
        self._probing = False

    def __repr__(self) -> str:
        state = "probing" if self._probing else "open" if self._failures else "closed"
        return f"<Circuit {state} failures={self._failures} probe_at={self._probe_at}>"

    @property
    def closed(self) -> bool:
        return not self._failures

    def admits(self, now: int) -> int | None:
        """A ticket for an ask that may go to the store; while open its holder is the prober."""
        if self.closed:
            return self._state
        if self._probing or now < self._probe_at:
            return None
        self._probing = True
        return self._changed()

    def succeeded(self, ticket: int, now: int) -> bool:
        """The store answered; True when this ends an outage."""
        if self.closed or ticket != self._state:
            return False
        self._failures, self._probing = 0, False
        self.back_at = now
        self._changed()
        return True

    def failed(self, ticket: int, now: int, chance: float) -> bool:
        """The store did not answer; True when this begins an outage.

        The back-off doubles from 0.25 to 2 s; `chance` in [0, 1) takes up to half of it away, so
        that a fleet does not probe in step.
        """
        if ticket != self._state:
            return False
        begins = self.closed
        longest = min(LONGEST_BACKOFF, FIRST_BACKOFF << min(self._failures + 1, 8))
        self._failures += 1
        self._probing = False
        self._probe_at = now + int(longest * (1 - chance / 2))
        self._changed()
        return begins

    def gave_up(self, ticket: int) -> None:
        """An ask was interrupted before its end was known: if it was the probe, the next is."""
        if ticket == self._state and self._probing:
            self._probing = False
            self._changed()

    def _changed(self) -> int:
        self._state += 1
        return self._state
