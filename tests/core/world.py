"""Lanes, a store and virtual time: what shells do, without their clocks and sockets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from quotaclient._core.account import Account
from quotaclient._core.ask import Answer, Ask, Permit, localize
from quotaclient._core.guard import Guard
from quotaclient._core.lane import Lane, Sleep
from quotaclient._core.limits import Limit
from quotaclient._core.queue import Waiter

SECOND = 1_000_000


@dataclass
class World:
    """Events in order of time. `trip`: how long a way to the store or back takes, at most."""

    limits: tuple[Limit, ...]
    seed: int = 0
    trip: int = 500
    late: int = 0  # how late a request departs after its permit was handed out, at most
    guard: int | None = None
    now: int = 10 * SECOND
    account: Account = field(default_factory=Account)
    departures: list[tuple[int, int, tuple[int, ...], str]] = field(default_factory=list)
    asks: int = 0  # those that want permits
    checks: int = 0  # those that only look or give back

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = count()

    def at(self, instant: int, event: Callable[[], object]) -> None:
        """Let something happen at an instant."""
        heappush(self._events, (max(instant, self.now), next(self._numbers), event))

    def run(self, until: int) -> None:
        """Let time go on."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heappop(self._events)
            event()
        self.now = until

    def lane(self, name: str) -> Shell:
        """A client of this world."""
        return Shell(self, Lane("key", self.limits, name, Guard(self.limits, self.guard)))

    def most_in_any_window(self, window: int, jitter: int = 0) -> int:
        """The most units of a window that can arrive within a period, up to `jitter` late."""
        period = self.limits[window].period_us
        spans = [(at, at + jitter, costs[window]) for at, _, costs, _ in self.departures]
        return max(
            (
                sum(units for at, by, units in spans if at <= instant < by + period)
                for instant, _, _ in spans
            ),
            default=0,
        )


class Shell:
    """A lane at work in virtual time."""

    def __init__(self, world: World, lane: Lane) -> None:
        self.world = world
        self.lane = lane
        self.dead = False
        self.refused: list[tuple[int, Waiter]] = []
        self.over: set[Waiter] = set()  # who departed, was cancelled or goes by another name now

    def request(
        self,
        costs: tuple[int, ...] = (1,),
        max_wait: int | None = None,
        priority: int = 0,
        done: Callable[[], object] = bool,
    ) -> Waiter:
        """A request that departs when it may."""
        deadline = None if max_wait is None else self.world.now + max_wait
        spare = self.lane.take(costs, self.world.now)
        if spare is not None:
            waiter = Waiter(costs, deadline, priority, bool, spare)
            self.settled(waiter, done)
            return waiter
        waiter = self.lane.enter(costs, deadline, priority)
        waiter.wake = lambda: self.settled(waiter, done)
        self.advance()
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """A request is cancelled: while it waits, or with a permit before it departs."""
        if waiter not in self.over:
            self.over.add(waiter)
            self.lane.leave(waiter, self.world.now)
            self.advance()

    def settled(self, waiter: Waiter, done: Callable[[], object]) -> None:
        """A permit is used after a while, by an expired one another is asked for."""
        permit = waiter.outcome
        if not isinstance(permit, Permit):
            self.refused.append((self.world.now, waiter))
            self.world.at(self.world.now, done)
            return
        delay = self.world.random.randint(0, self.world.late) if self.world.late else 0
        self.world.at(self.world.now + delay, lambda: self.depart(waiter, permit, done))

    def depart(self, waiter: Waiter, permit: Permit, done: Callable[[], object]) -> None:
        """Headers are about to be written."""
        now = self.world.now
        if self.dead or waiter in self.over:
            return
        self.over.add(waiter)
        if now > permit.expires:
            self.lane.exchange(permit, 1, now)
            again = self.lane.enter(waiter.costs, waiter.deadline, waiter.priority, in_front=True)
            again.wake = lambda: self.settled(again, done)
            self.advance()
            return
        assert now >= permit.at
        self.world.departures.append((now, permit.at, waiter.costs, self.lane.name))
        done()

    def advance(self) -> None:
        """Take the lane's steps."""
        if self.dead:
            return
        now = self.world.now
        self.lane.settle(now)
        step = self.lane.act(now)
        if isinstance(step, Ask):
            self.world.asks += bool(step.groups)
            self.world.checks += not step.groups
            self.world.at(now + self.trip(), lambda: self.arrive(step, now))
            self.advance()
        elif isinstance(step, Sleep) and step.until is not None:
            self.world.at(step.until, self.advance)

    def trip(self) -> int:
        """How long this way takes."""
        longest = self.world.random.choice([self.world.trip, self.world.trip // 10])
        return self.world.random.randint(0, longest)

    def arrive(self, ask: Ask, asked: int) -> None:
        """The store decides, and its reply is on its way."""
        reply = self.world.account.reserve(ask, self.world.now)
        self.world.at(
            self.world.now + self.trip(),
            lambda: self.told(localize(ask, reply, "store", asked, self.world.now)),
        )

    def told(self, answer: Answer) -> None:
        """The reply is here."""
        self.lane.told(answer, self.world.now)
        self.advance()
