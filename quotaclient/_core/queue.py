"""Who waits in a lane: in order of arrival within a priority, the higher priority first."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, count, groupby
from operator import add, attrgetter, sub

from quotaclient._core.ask import Group, Permit, Refusal, Source

SLACK = 64  # entries of waiters that are gone, tolerated before a rebuild is worth its time


@dataclass(frozen=True, slots=True)
class Refused:
    """Turned away: no permit before `refusal.at` (caller's clock)."""

    refusal: Refusal
    source: Source


@dataclass(frozen=True, slots=True)
class Undecided:
    """Redis is away and nothing may decide in its place."""

    reason: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The client was closed while the request waited."""


Outcome = Permit | Refused | Undecided | Closed


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits for a permit: `deadline` None means however long.

    `outcome` is None while it waits; one that leaves is `gone` and gets none. `wake` tells its
    shell to look.
    """

    costs: tuple[int, ...]
    deadline: int | None
    priority: int
    wake: Callable[[], object]
    outcome: Outcome | None = None
    gone: bool = False
    ahead: tuple[int, ...] = ()  # requests, then units per window, that ever stood before it
    hears: int = 0  # the round of answers from which on the store has been asked for it

    @property
    def waiting(self) -> bool:
        return self.outcome is None and not self.gone


class WaitQueue:
    """The waiters of a lane. Entries of those who are settled or gone are dropped when met."""

    def __init__(self, windows: int) -> None:
        self._windows = windows
        self._lines: dict[int, _Line] = {}  # by priority, highest first
        self._deadlines: list[tuple[int, int, Waiter]] = []
        self._arrivals = count()
        self._length = 0
        self._removed = [0] * (windows + 1)  # requests, then units per window, that went
        self._kinds: Counter[tuple[int, ...]] = Counter()  # how many wait at which costs

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Waiter]:
        return (
            waiter
            for line in self._lines.values()
            for waiter in chain(line.front, line.waiters)
            if waiter.waiting
        )

    def append(self, waiter: Waiter, *, in_front: bool = False) -> None:
        """Take a place at the end of its priority, or in front: one who stood there before."""
        line = self._lines.get(waiter.priority)
        if line is None:
            line = self._lines[waiter.priority] = _Line(self._windows)
            self._lines = dict(sorted(self._lines.items(), reverse=True))
        before = [0] * len(self._removed) if in_front else self._before(waiter.priority)
        waiter.ahead = tuple(map(add, self._removed, before))
        line.add(waiter, in_front)
        self._length += 1
        self._kinds[waiter.costs] += 1
        if waiter.deadline is not None:
            heappush(self._deadlines, (waiter.deadline, next(self._arrivals), waiter))

    def remove(self, waiter: Waiter) -> None:
        """Note that a waiter has just been settled, or has just left."""
        line = self._lines[waiter.priority]
        line.remove(waiter)
        self._removed = list(map(add, self._removed, (1, *waiter.costs)))
        if not line.length:
            del self._lines[waiter.priority]
        self._length -= 1
        self._kinds[waiter.costs] -= 1
        if not self._kinds[waiter.costs]:
            del self._kinds[waiter.costs]
        if len(self._deadlines) > 2 * self._length + SLACK:
            self._deadlines = [entry for entry in self._deadlines if entry[2].waiting]
            heapify(self._deadlines)

    @property
    def only_costs(self) -> tuple[int, ...] | None:
        """What all who wait cost, if all cost the same."""
        return next(iter(self._kinds)) if len(self._kinds) == 1 else None

    def first(self) -> Waiter | None:
        return next(iter(self), None)

    def first_covered(self, costs: tuple[int, ...]) -> Waiter | None:
        """The first waiter that a permit of these costs is enough for."""
        return next((waiter for waiter in self if covers(costs, waiter.costs)), None)

    def ahead_of(self, waiter: Waiter) -> tuple[int, ...]:
        """At least so many requests, and units per window, are still before a waiter."""
        return tuple(map(sub, waiter.ahead, self._removed))

    def _before(self, priority: int) -> list[int]:
        before = [0] * (self._windows + 1)
        for level, line in self._lines.items():
            if level >= priority:
                before = list(map(add, before, line.sums))
        return before

    def next_deadline(self) -> int | None:
        while self._deadlines and not self._deadlines[0][2].waiting:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def past(self, now: int) -> Waiter | None:
        """A waiter whose deadline has passed, if any."""
        deadline = self.next_deadline()
        return self._deadlines[0][2] if deadline is not None and deadline < now else None


class _Line:
    """The waiters of one priority."""

    def __init__(self, windows: int) -> None:
        self.front: deque[Waiter] = deque()  # who stood here before
        self.waiters: deque[Waiter] = deque()
        self.sums = [0] * (windows + 1)  # requests, then units per window

    @property
    def length(self) -> int:
        return self.sums[0]

    def add(self, waiter: Waiter, in_front: bool) -> None:
        (self.front if in_front else self.waiters).append(waiter)
        self.sums = list(map(add, self.sums, (1, *waiter.costs)))

    def remove(self, waiter: Waiter) -> None:
        self.sums = list(map(sub, self.sums, (1, *waiter.costs)))
        self.front = self._without_gone(self.front)
        self.waiters = self._without_gone(self.waiters)

    def _without_gone(self, line: deque[Waiter]) -> deque[Waiter]:
        """Without those at its head that are gone; without all, when they have become many."""
        while line and not line[0].waiting:
            line.popleft()
        if len(line) > 2 * self.length + SLACK:
            return deque(waiter for waiter in line if waiter.waiting)
        return line


_costs = attrgetter("costs")


def groups_of(waiters: list[Waiter], after: int) -> tuple[Group, ...]:
    """Their requests, equal neighbours taken together, not to go before now + after."""
    return tuple(
        Group(sum(1 for _ in same), costs, after) for costs, same in groupby(waiters, _costs)
    )


def patience_of(waiters: list[Waiter], now: int) -> int | None:
    """The longest wait that any of them would accept; None: however long."""
    longest = 0
    for waiter in waiters:
        if waiter.deadline is None:
            return None
        longest = max(longest, waiter.deadline - now)
    return longest


def covers(permit: tuple[int, ...], costs: tuple[int, ...]) -> bool:
    """Whether a permit is enough for a request."""
    return all(have >= need for have, need in zip(permit, costs, strict=True))
