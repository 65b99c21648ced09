"""What a lane has in hand: permits in order of time, reservations mostly; and what goes back."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter

from quotaclient._core.ask import NEVER, Answer, GiveBack, Permit, set_right
from quotaclient._core.queue import Waiter, WaitQueue, covers

_by_time = attrgetter("at")


class Hand:
    """Permits in order of time."""

    def __init__(self) -> None:
        self._permits: list[Permit] = []

    def __len__(self) -> int:
        return len(self._permits)

    def __iter__(self) -> Iterator[Permit]:
        return iter(self._permits)

    def __getitem__(self, place: int) -> Permit:
        return self._permits[place]

    def add(self, permits: Iterable[Permit]) -> None:
        for permit in permits:
            insort(self._permits, permit, key=_by_time)

    def set_right(self, answer: Answer) -> None:
        """Go by what the store says now of its clock and ours, where it granted them."""
        told = (
            one if one.ticket.source != answer.source else set_right(one, answer) for one in self
        )
        self._permits = sorted(told, key=_by_time)

    def pop_first(self) -> Permit:
        return self._permits.pop(0)

    def units(self, windows: int) -> tuple[int, ...]:
        """What they are worth, per window."""
        columns = zip(*(permit.costs for permit in self._permits), strict=True)
        return tuple(map(sum, columns)) or (0,) * windows

    def take_before(self, instant: int) -> list[Permit]:
        """Take out those that depart before an instant."""
        taken = [permit for permit in self._permits if permit.at < instant]
        del self._permits[: len(taken)]
        return taken

    def take_after(self, instant: int) -> list[Permit]:
        """Take out those that depart after an instant."""
        taken = [permit for permit in self._permits if permit.at > instant]
        del self._permits[len(self._permits) - len(taken) :]
        return taken

    def take_surplus(self, queue: WaitQueue) -> list[Permit]:
        """Take out those that nobody in line is going to get."""
        _, surplus = self._match(queue, 0)
        if surplus:
            gone = set(map(id, surplus))
            self._permits = [permit for permit in self._permits if id(permit) not in gone]
        return surplus

    def uncovered(self, queue: WaitQueue, most: int) -> list[Waiter]:
        """The first in line, up to so many, who are going to get none of them."""
        uncovered, _ = self._match(queue, most)
        return uncovered

    def _match(self, queue: WaitQueue, most: int) -> tuple[list[Waiter], list[Permit]]:
        """Who will get nothing, and what nobody will get, if each takes the first that covers."""
        costs = queue.only_costs
        if all(permit.costs == costs for permit in self._permits):  # mostly all are alike
            return list(islice(queue, len(self), len(self) + most)), self._permits[len(queue) :]
        left = list(self._permits)
        uncovered: list[Waiter] = []
        for waiter in queue:
            mine = next((i for i, one in enumerate(left) if covers(one.costs, waiter.costs)), None)
            if mine is not None:
                del left[mine]
            elif len(uncovered) < most:
                uncovered.append(waiter)
            if not left and len(uncovered) >= most:
                break
        return uncovered, left


class Returns:
    """Units that go back with the next ask, or alone when they are `due`."""

    def __init__(self) -> None:
        self._units: list[GiveBack] = []
        self.due = NEVER

    def __len__(self) -> int:
        return len(self._units)

    @property
    def sums(self) -> tuple[int, ...]:
        """The units, per window; there are some."""
        return tuple(map(sum, zip(*(costs for _, costs in self._units), strict=True)))

    def add(self, returned: GiveBack, due: int) -> None:
        self._units.append(returned)
        self.due = min(self.due, due)

    def take(self) -> tuple[GiveBack, ...]:
        """Take out all: an ask takes them along."""
        units, self._units, self.due = tuple(self._units), [], NEVER
        return units
