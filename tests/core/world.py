"""Lanes, a store and virtual time: what shells do, without their clocks and sockets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import ceil
from operator import sub

from quotaclient._core.account import Account
from quotaclient._core.ask import Answer, Ask, Permit, Reply, localize
from quotaclient._core.guard import Guard
from quotaclient._core.lane import FRESH, Lane, Sleep
from quotaclient._core.limits import Limit
from quotaclient._core.queue import Waiter
from tests.core.ledger import Ledger, most_at_once

SECOND = 1_000_000
COMMAND_TIMEOUT = SECOND // 4


@dataclass(slots=True)
class Departure:
    """A request went out. `costs`: what it really used."""

    when: int
    costs: tuple[int, ...]
    shell: Shell
    permit: Permit

    @property
    def slack(self) -> int:
        """How late it may arrive, by the guard of its permit."""
        return (self.permit.ticket.by - self.permit.ticket.at) // 2


@dataclass
class World:
    """Events in order of time. `trip`: how long a way to the store or back takes, at most."""

    limits: tuple[Limit, ...]
    seed: int = 0
    trip: int = 500
    late: int = 0  # how late a request departs after its permit was handed out, at most
    fixed_trip: int | None = None  # or exactly so long
    guard: int | None = None
    losses: float = 0  # the part of asks that get no reply in time: on the way there, or back
    ledger: Ledger | None = None
    now: int = 10 * SECOND
    account: Account = field(default_factory=Account)
    departures: list[Departure] = field(default_factory=list)
    holds: list[tuple[int, int]] = field(default_factory=list)  # when told to the store, until when
    requests: int = 0
    exchanges: int = 0
    asks: int = 0  # those that want permits
    checks: int = 0  # those that only look or give back
    lost: int = 0

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

    def lane(
        self,
        name: str,
        limits: tuple[Limit, ...] | None = None,
        clock: int = 0,
        drift: float = 0,
    ) -> Shell:
        """A client of this world; its clock is ahead by `clock`, and goes ahead by `drift`."""
        limits = limits or self.limits
        lane = Lane("key", limits, name, Guard(limits, self.guard))
        exchange = lane.exchange

        def counted(permit: Permit, times: int, now: int) -> None:
            self.exchanges += 1
            exchange(permit, times, now)

        lane.exchange = counted  # type: ignore[method-assign]
        return Shell(self, lane, clock, drift)

    def hold(self, until: int) -> None:
        """The store hears a hold."""
        self.account.raise_hold(until)
        self.holds.append((self.now, until))

    def reserve(self, ask: Ask) -> Reply:
        """The store decides."""
        reply = self.account.reserve(ask, self.now)
        if self.ledger is not None:
            self.ledger.note(ask, reply)
        return reply

    def most_in_any_window(self, window: int, jitter: int | None = None) -> int:
        """The most units of a window that can arrive within a period, each up to `jitter` late.

        None: as late as the guard of its permit allows.
        """
        period = self.limits[window].period_us
        return most_at_once(
            (one.when, one.when + (one.slack if jitter is None else jitter) + period, units)
            for one in self.departures
            if (units := one.costs[window])
        )


class Shell:
    """A lane at work in virtual time."""

    def __init__(self, world: World, lane: Lane, clock: int, drift: float) -> None:
        self.world = world
        self.lane = lane
        self.clock = clock
        self.drift = drift
        self.dead = self.closed = False
        self.asking: Ask | None = None
        self.refused: list[tuple[int, Waiter]] = []
        self.entered: dict[Waiter, int] = {}  # when each joined the line, or came back to it
        self.over: set[Waiter] = set()  # who departed, was cancelled or goes by another name now

    @property
    def now(self) -> int:
        """What this lane's clock shows."""
        return self.world.now + self.clock + round(self.world.now * self.drift)

    def when(self, instant: int) -> int:
        """When this lane's clock shows an instant."""
        return ceil((instant - self.clock) / (1 + self.drift))

    def request(
        self,
        costs: tuple[int, ...] = (1,),
        max_wait: int | None = None,
        priority: int = 0,
        done: Callable[[], object] = bool,
    ) -> Waiter:
        """A request that departs when it may."""
        self.world.requests += 1
        deadline = None if max_wait is None else self.now + max_wait
        spare = self.lane.take(costs, self.now)
        if spare is not None:
            waiter = Waiter(costs, deadline, priority, bool, spare)
            self.settled(waiter, done)
            return waiter
        return self.enter(Waiter(costs, deadline, priority, bool), done, 0)

    def enter(self, like: Waiter, done: Callable[[], object], times: int) -> Waiter:
        """Wait in line; in front, for who lost so many permits to time."""
        front = times > 0
        waiter = self.lane.enter(like.costs, like.deadline, like.priority, in_front=front)
        waiter.wake = lambda: self.settled(waiter, done, times)
        self.entered[waiter] = self.now
        self.advance()
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """A request is cancelled: while it waits, or with a permit before it departs."""
        if waiter not in self.over and not self.dead:
            self.over.add(waiter)
            self.lane.leave(waiter, self.now)
            self.advance()

    def settled(self, waiter: Waiter, done: Callable[[], object], times: int = 0) -> None:
        """A permit is used after a while, by an expired one another is asked for."""
        permit = waiter.outcome
        if not isinstance(permit, Permit):
            self.refused.append((self.now, waiter))
            if not self.closed:  # whoever asks a closed client again and again gets an error
                self.world.at(self.world.now, done)
            return
        delay = self.world.random.randint(0, self.world.late) if self.world.late else 0
        self.world.at(self.world.now + delay, lambda: self.depart(waiter, permit, done, times))

    def depart(
        self, waiter: Waiter, permit: Permit, done: Callable[[], object], times: int
    ) -> None:
        """Headers are about to be written."""
        if self.dead or waiter in self.over:
            return
        self.over.add(waiter)
        if self.now > permit.expires:
            self.lane.exchange(permit, times + 1, self.now)
            if not self.closed:
                self.enter(waiter, done, times + 1)
            return
        ticket = permit.ticket
        assert waiter.costs == permit.costs
        unseen = abs(self.drift) * FRESH  # what clocks may have moved since the last check
        assert ticket.at <= self.world.now + unseen  # by the store's clock, too
        assert ticket.at == ticket.by or self.world.now <= (ticket.at + ticket.by) // 2 + unseen
        if self.world.ledger is not None:
            self.world.ledger.note_sent(self.lane.name, permit)
        self.world.departures.append(Departure(self.world.now, permit.costs, self, permit))
        done()

    def correct(self, sent: Departure, unused: tuple[int, ...]) -> None:
        """A request used less than its permit allowed."""
        sent.costs = tuple(map(sub, sent.costs, unused))
        if self.world.ledger is not None:
            self.world.ledger.note_unused(self.lane.name, sent.permit, unused)
        self.lane.correct(sent.permit, unused, self.now)
        self.advance()

    def close(self) -> None:
        """Turn away who waits, and give back what is in hand when no ask is under way."""
        self.closed = True
        self.lane.close()
        self.surrender()

    def surrender(self) -> None:
        """What closing does last."""
        if self.asking is None and not self.dead:
            ask = self.lane.surrender(self.now)
            if ask is not None:
                self.send(ask)

    def advance(self) -> None:
        """Take the lane's steps."""
        if self.dead:
            return
        self.lane.settle(self.now)
        step = self.lane.act(self.now)
        if isinstance(step, Ask):
            self.send(step)
            self.advance()
        elif isinstance(step, Sleep) and step.until is not None:
            self.world.at(self.when(step.until), self.advance)

    def send(self, ask: Ask) -> None:
        """An ask is on its way; that one may be lost, there or on the way back, or be late."""
        assert self.asking is None  # Rule 1: one at a time
        self.asking = ask
        world = self.world
        world.asks += bool(ask.groups)
        world.checks += not ask.groups
        asked = self.now
        if world.losses and world.random.random() < world.losses:
            world.lost += 1
            late = world.random.choice([0, COMMAND_TIMEOUT, 4 * COMMAND_TIMEOUT, None])
            if late is not None:
                world.at(world.now + late + self.trip(), lambda: world.reserve(ask))
            world.at(world.now + COMMAND_TIMEOUT, self.unanswered)
            return
        world.at(world.now + self.trip(), lambda: self.arrive(ask, asked))

    def trip(self) -> int:
        """How long this way takes."""
        if self.world.fixed_trip is not None:
            return self.world.fixed_trip
        longest = self.world.random.choice([self.world.trip, self.world.trip // 10])
        return self.world.random.randint(0, longest)

    def arrive(self, ask: Ask, asked: int) -> None:
        """The store decides, and its reply is on its way."""
        reply = self.world.reserve(ask)
        self.world.at(
            self.world.now + self.trip(),
            lambda: self.told(localize(ask, reply, "store", asked, self.now)),
        )

    def unanswered(self) -> None:
        """No reply came in time."""
        if not self.dead:
            self.asking = None
            self.lane.lost()
            self.advance()
            if self.closed:
                self.surrender()

    def told(self, answer: Answer) -> None:
        """The reply is here."""
        if self.dead:
            return
        self.asking = None
        self.lane.told(answer, self.now)
        self.advance()
        if self.closed:
            self.surrender()
