"""Lanes at work: these shells wait, ask the store and wake; what to do a `Lane` decides.

In both colours whoever comes along takes the lane's next step, one ask is under way at a time,
and one clock runs for all who wait: of threads, one sleeps until the lane's next instant; on an
event loop, a task does while anybody waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Generic, TypeVar
from uuid import uuid4

import anyio

from quotaclient._core.ask import SECOND, Answer, Ask, Permit
from quotaclient._core.lane import Lane, Sleep
from quotaclient._core.queue import Outcome, Waiter
from quotaclient._loops import Spawn
from quotaclient._settings import Settings
from quotaclient._stores import AsyncStore, Store, hashed
from quotaclient._stores.memory import clock

LANES_KEPT = 1024  # keys whose lanes are remembered while nobody uses them

log = logging.getLogger("quotaclient")


class SyncLane:
    """A lane that threads share. Its lock is never held over a wait or a call."""

    def __init__(self, lane: Lane, store: Store) -> None:
        self.lane = lane
        self._store = store
        self._lock = threading.Lock()
        self._sleeper: Waiter | None = None  # who sleeps until the lane's next instant
        self._wakes_at = 0

    def acquire(
        self,
        costs: tuple[int, ...],
        deadline: int | None,
        priority: int,
        *,
        in_front: bool = False,
    ) -> Outcome:
        """Wait for a permit; `in_front` for who had one that expired."""
        event = threading.Event()
        with self._lock:
            waiter = self.lane.enter(costs, deadline, priority, wake=event.set, in_front=in_front)
        try:
            while waiter.outcome is None:
                self._take_step(waiter, event)
        except BaseException:
            with self._lock:
                self.lane.leave(waiter, clock())
            raise
        finally:
            self._step_aside(waiter)
        return waiter.outcome

    def give_back(self, permit: Permit) -> None:
        """A permit expired: the next ask, which its holder is about to cause, takes it along."""
        with self._lock:
            self.lane.give_back(permit)

    def pass_on(self, permit: Permit) -> None:
        """A permit was not used."""
        with self._lock:
            self.lane.pass_on(permit, clock())
        self._step_aside(None)

    def hold(self, wait: int) -> None:
        """The upstream said that nobody sends for so long: tell the fleet."""
        with self._lock:
            self.lane.hold(clock() + wait)
        self._store.hold(self.lane.key, wait)

    def close(self) -> None:
        """Turn away who waits and give back what is in hand."""
        with self._lock:
            ask = self.lane.close(clock())
        if ask is not None:
            self._ask(ask)

    def _take_step(self, waiter: Waiter, event: threading.Event) -> None:
        with self._lock:
            now = clock()
            self.lane.settle(now)
            if waiter.outcome is not None:
                return
            step = self.lane.act(now)
            if isinstance(step, Ask):
                watch = self.lane.first_waiting if self.lane.has_reservations else None
                if watch is not None and watch is not waiter and self._sleeper is None:
                    watch.wake()  # to look at the clock while this thread asks
            elif isinstance(step, Sleep) and self._should_watch_for(step.until):
                self._sleeper, self._wakes_at = waiter, step.until or 0
            timeout = (self._wakes_at - now) / SECOND if self._sleeper is waiter else None
        if isinstance(step, Ask):
            self._ask(step)
            return
        event.wait(timeout)
        event.clear()
        with self._lock:
            if self._sleeper is waiter:
                self._sleeper = None

    def _should_watch_for(self, until: int | None) -> bool:
        return until is not None and (self._sleeper is None or until < self._wakes_at)

    def _ask(self, ask: Ask) -> None:
        try:
            answer = self._store.reserve(ask)
        except BaseException:
            with self._lock:
                self.lane.lost()
            raise
        with self._lock:
            self.lane.told(answer, clock())

    def _step_aside(self, waiter: Waiter | None) -> None:
        """Leave the lane to the next who waits; with nobody there, give back what is left over."""
        while True:
            with self._lock:
                if waiter is not None and self._sleeper is waiter:
                    self._sleeper = None
                heir = self.lane.first_waiting
                if heir is not None:
                    heir.wake()
                    return
                self.lane.settle(clock())
                step = self.lane.act(clock())
            if not isinstance(step, Ask):
                return
            self._ask(step)  # what others give back meanwhile is left for the next turn


class AsyncLane:
    """A lane on one event loop.

    Asks run in tasks of their own: the waiter that happens to make one may be cancelled, also by
    asyncio itself, and its permits still reach the others.
    """

    def __init__(self, lane: Lane, store: AsyncStore, spawn: Spawn) -> None:
        self.lane = lane
        self._store = store
        self._spawn = spawn
        self._wakes_at: int | None = None  # when the lane's next instant is, if anybody waits
        self._sleeps_until = 0
        self._poke: anyio.Event | None = None  # there while the clock's task runs
        self._heard: anyio.Event | None = None  # there while the store is asked

    async def acquire(
        self,
        costs: tuple[int, ...],
        deadline: int | None,
        priority: int,
        *,
        in_front: bool = False,
    ) -> Outcome:
        """Wait for a permit; `in_front` for who had one that expired."""
        waiter = self.lane.enter(costs, deadline, priority, in_front=in_front)
        self._advance()
        try:
            while waiter.outcome is None:
                event = anyio.Event()
                waiter.wake = event.set
                await event.wait()
        except BaseException:
            self.lane.leave(waiter, clock())
            self._advance()
            raise
        return waiter.outcome

    def give_back(self, permit: Permit) -> None:
        """A permit expired: the next ask, which its holder is about to cause, takes it along."""
        self.lane.give_back(permit)

    def pass_on(self, permit: Permit) -> None:
        """A permit was not used."""
        self.lane.pass_on(permit, clock())
        self._advance()

    async def hold(self, wait: int) -> None:
        """The upstream said that nobody sends for so long: tell the fleet."""
        self.lane.hold(clock() + wait)
        self._advance()
        told = self._store.hold(self.lane.key, wait)
        if told is not None:
            await told

    async def close(self) -> None:
        """Turn away who waits and give back what is in hand."""
        if self._heard is not None:
            await self._heard.wait()
        ask = self.lane.close(clock())
        if ask is not None:
            answer = self._store.reserve(ask)
            if isawaitable(answer):
                await self._hear(answer)
            else:
                self.lane.told(answer, clock())

    def _advance(self) -> None:
        """Take the lane's steps up to the next that takes time."""
        while True:
            now = clock()
            self.lane.settle(now)
            step = self.lane.act(now)
            if not isinstance(step, Ask):
                break
            answer = self._store.reserve(step)
            if isinstance(answer, Answer):
                self.lane.told(answer, clock())
            else:
                self._heard = anyio.Event()
                self._spawn(self._hear_and_advance, answer, self._heard)
        self._wakes_at = step.until if isinstance(step, Sleep) else None
        if self._poke is not None:
            if self._wakes_at is None or self._wakes_at < self._sleeps_until:
                self._poke.set()
        elif self._wakes_at is not None:
            self._poke = anyio.Event()
            self._spawn(self._keep_time)

    async def _hear(self, answer: Awaitable[Answer]) -> None:
        try:
            told = await answer
        except Exception as error:  # a fault of ours: nobody is to wait for ever because of it
            log.exception("asking for permits failed")
            told = Answer("share", clock(), outage=f"asking failed: {error!r}")
        except BaseException:
            self.lane.lost()
            raise
        self.lane.told(told, clock())

    async def _hear_and_advance(self, answer: Awaitable[Answer], heard: anyio.Event) -> None:
        try:
            await self._hear(answer)
        finally:
            self._heard = None
            heard.set()
        self._advance()

    async def _keep_time(self) -> None:
        try:
            while self._wakes_at is not None:
                self._sleeps_until = self._wakes_at
                self._poke = anyio.Event()
                with anyio.move_on_after((self._sleeps_until - clock()) / SECOND):
                    await self._poke.wait()
                self._advance()
        finally:
            self._poke = None


AnyLane = TypeVar("AnyLane", SyncLane, AsyncLane)


class Lanes(Generic[AnyLane]):
    """The lanes of one client on one loop (or in its threads), by key."""

    def __init__(self, settings: Settings, shell: Callable[[Lane], AnyLane]) -> None:
        self._settings = settings
        self._shell: Callable[[Lane], AnyLane] = shell
        self._name = uuid4().hex[:16]
        self._by_key: dict[str, AnyLane] = {}
        self._lock = threading.Lock()

    def __getitem__(self, key: str) -> AnyLane:
        lane = self._by_key.get(key)
        return lane if lane is not None else self._make(key)

    def _make(self, key: str) -> AnyLane:
        with self._lock:
            if len(self._by_key) >= LANES_KEPT:
                self._by_key = {
                    key: shell for key, shell in self._by_key.items() if not shell.lane.idle
                }
            settings = self._settings
            lane = Lane(hashed(key), settings.limits, self._name, settings.guard)
            return self._by_key.setdefault(key, self._shell(lane))

    def empty(self) -> list[AnyLane]:
        """All lanes, to be closed."""
        with self._lock:
            lanes, self._by_key = list(self._by_key.values()), {}
        return lanes
