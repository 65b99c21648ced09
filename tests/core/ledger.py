"""An account of what was really granted, kept beside the store's and apart from its code.

The store may join runs and forget what is whose; here every grant stands alone, and what comes
back is taken off. Whatever the store books must fit into this, by the limit of who asks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from quotaclient._core.ask import Ask, Permit, Reply


def most_at_once(spans: Iterable[tuple[int, int, int]], begin: int = 0, end: int = 2**62) -> int:
    """The most units at any instant of [begin, end), of spans (from, to, units)."""
    changes: dict[int, int] = defaultdict(int)
    for start, stop, units in spans:
        if start < end and stop > max(begin, start):
            changes[max(start, begin)] += units
            changes[stop] -= units
    most = occupied = 0
    for instant in sorted(changes):
        occupied += changes[instant]
        most = max(most, occupied)
    return most


class Entry(NamedTuple):
    """A lane's units in a window that may arrive from `at` to `by`."""

    lane: str
    window: int
    at: int
    by: int


@dataclass
class Ledger:
    """Units by entry: granted, given back, sent, and settled (given back after sending)."""

    granted: Counter[Entry] = field(default_factory=Counter)
    returned: Counter[Entry] = field(default_factory=Counter)
    sent: Counter[Entry] = field(default_factory=Counter)
    settled: Counter[Entry] = field(default_factory=Counter)

    def note(self, ask: Ask, reply: Reply) -> None:
        """The store answered. P1: what it granted fits into the limits of this ask."""
        for ticket, costs in ask.returns:
            for window, units in enumerate(costs):
                self.returned[Entry(ask.lane, window, ticket.at, ticket.by)] += units
        for grant in reply.grants:
            assert max(reply.now, reply.hold) <= grant.at
            for window, cost in enumerate(grant.costs):
                entry = Entry(ask.lane, window, grant.at, grant.at + ask.guard)
                self.granted[entry] += grant.requests * cost
        for window, limit in enumerate(ask.limits):
            spans = list(self.spans(window, limit.period_us))
            for grant in reply.grants:
                if grant.costs[window]:
                    end = grant.at + ask.guard + limit.period_us
                    assert most_at_once(spans, grant.at, end) <= limit.count

    def note_sent(self, lane: str, permit: Permit) -> None:
        """A request went out."""
        _count(self.sent, lane, permit, permit.costs)

    def note_unused(self, lane: str, permit: Permit, unused: tuple[int, ...]) -> None:
        """A request that went out used less; the rest is about to come back."""
        _count(self.settled, lane, permit, unused)

    def spans(self, window: int, period: int) -> Iterable[tuple[int, int, int]]:
        """What occupies a window, and when."""
        for entry, units in self.granted.items():
            left = units - self.returned[entry]
            if entry.window == window and left > 0:
                yield entry.at, entry.by + period, left

    def unbalanced(self, lane: str) -> dict[Entry, int]:
        """Units of a lane that were neither sent nor given back (or below 0: that were twice)."""
        rows = {
            entry: units - self.sent[entry] - self.returned[entry] + self.settled[entry]
            for entry, units in self.granted.items()
            if entry.lane == lane
        }
        return {entry: units for entry, units in rows.items() if units}


def _count(counts: Counter[Entry], lane: str, permit: Permit, costs: tuple[int, ...]) -> None:
    for window, units in enumerate(costs):
        counts[Entry(lane, window, permit.ticket.at, permit.ticket.by)] += units
