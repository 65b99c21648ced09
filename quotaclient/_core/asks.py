"""What a lane says to its store: one ask for all that have no permit in hand.

Times are whole microseconds on the caller's clock; nothing here reads it.
"""

from __future__ import annotations

from dataclasses import replace

from quotaclient._core.ask import Ask, GiveBack, Group
from quotaclient._core.guard import Guard
from quotaclient._core.limits import Limit
from quotaclient._core.queue import Waiter, patience_of


class Asks:
    """What a lane's asks have in common, and what the last one asked for."""

    def __init__(self, key: str, limits: tuple[Limit, ...], name: str, guard: Guard) -> None:
        self.key, self.name, self.guard = key, name, guard
        self._terms = Ask(key, limits, name, guard.value)
        self.horizon = self._terms.horizon
        self.wanted = 0  # the requests in the last one that wait
        self._groups: tuple[Group, ...] = ()
        self._greets_at = 0  # when the store is to note again that this lane is there

    def make(
        self,
        now: int,
        waiters: list[Waiter],
        groups: tuple[Group, ...],
        returns: tuple[GiveBack, ...],
    ) -> Ask:
        """One that asks for `groups`: these waiters' requests, and some ahead of need."""
        self._groups, self.wanted = groups, len(waiters)
        greets = bool(waiters) and now >= self._greets_at
        if greets:
            self._greets_at = now + self._terms.idle // 4
        if self._terms.guard != self.guard.value:
            self._terms = replace(self._terms, guard=self.guard.value)
        patience = patience_of(waiters, now)
        return replace(
            self._terms,
            groups=groups,
            max_wait=None if patience is None else max(patience, 0),
            returns=returns,
            greets=greets,
        )

    def told_in_time(self) -> bool:
        """Whether the last one asked for permits of no smaller guard than there is by now."""
        return self._terms.guard >= self.guard.value

    def refused_cost(self, served: int, window: int | None) -> int:
        """What the first request that was not served draws on the window that refused it."""
        for group in self._groups:
            if served < group.requests:
                return group.costs[window] if window is not None else 0
            served -= group.requests
        return 0
