"""Lanes at work: these shells wait, ask the store and wake; what to do a `Lane` decides.

In both colours whoever comes along takes the lane's next step, one ask is under way at a time,
and one clock runs for all who wait: of threads, one sleeps until the lane's next instant; on an
event loop, a task does while anybody waits.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable, iscoroutine
from typing import Generic, TypeVar
from uuid import uuid4
from weakref import ref

import anyio

from quotaclient._core.ask import SECOND, Answer, Ask, Permit
from quotaclient._core.guard import Guard
from quotaclient._core.lane import Lane, Sleep
from quotaclient._core.limits import Limit
from quotaclient._core.queue import Outcome, Waiter
from quotaclient._loops import Spawn, running_loop, runs_here
from quotaclient._settings import Settings
from quotaclient._stores import AsyncStore, Store, hashed
from quotaclient._stores.memory import clock
from quotaclient._timekeeper import timekeeper

LANES_KEPT = 1024  # lanes that are remembered while nobody uses them
LONGEST_ASK = 1.0  # seconds: some command deadlines

log = logging.getLogger("quotaclient")


class SyncLane:
    """A lane that threads share. Its lock is never held over a wait or a call."""

    def __init__(self, lane: Lane, store: Store) -> None:
        self.lane = lane
        self._store = store
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        self._sleeper: Waiter | None = None  # who sleeps until the lane's next instant
        self._wakes_at = 0
        self._comes_back = 0  # when the timekeeper looks after this lane next

    def acquire(
        self,
        costs: tuple[int, ...],
        deadline: int | None,
        priority: int,
        *,
        in_front: bool = False,
    ) -> Outcome:
        """Wait for a permit that has not expired; `in_front` for who had one that did."""
        with self._lock:
            spare = self.lane.take(costs, clock())
        if spare is not None:
            return spare
        times = 0
        while True:
            outcome = self._wait(costs, deadline, priority, in_front or times > 0)
            if not isinstance(outcome, Permit) or clock() <= outcome.expires:
                return outcome
            times += 1
            self.exchange(outcome, times)  # this thread was late to hear of it

    def _wait(
        self, costs: tuple[int, ...], deadline: int | None, priority: int, in_front: bool
    ) -> Outcome:
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

    def exchange(self, permit: Permit, times: int) -> None:
        """A permit expired: the next ask, which its holder is about to cause, takes it along."""
        with self._lock:
            self.lane.exchange(permit, times, clock())

    def pass_on(self, permit: Permit) -> None:
        """A permit was not used."""
        with self._lock:
            self.lane.pass_on(permit, clock())
        self._step_aside(None)

    def settle(self, permit: Permit, unused: tuple[int, ...]) -> None:
        """What a request did not use of its permit (or used beyond it: below 0)."""
        with self._lock:
            self.lane.correct(permit, unused, clock())
        self._look_after()

    def hold(self, wait: int) -> None:
        """The upstream said that nobody sends for so long: tell the fleet."""
        with self._lock:
            self.lane.hold(clock() + wait)
        self._store.hold(self.lane.key, wait)

    def close(self) -> None:
        """Turn away who waits and give back what is in hand."""
        with self._lock:
            self.lane.close()
            self._answered.wait_for(lambda: not self.lane.asking, timeout=LONGEST_ASK)
            ask = self.lane.surrender(clock())
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
                watch = self.lane.other_than(waiter) if self.lane.has_reservations else None
                if watch is not None and self._sleeper is None:
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
                self._answered.notify_all()
            raise
        with self._lock:
            self.lane.told(answer, clock())
            self._answered.notify_all()
        _log_warning(self.lane)

    def _step_aside(self, waiter: Waiter | None) -> None:
        """Leave the lane to the next who waits; with nobody there, look after it."""
        with self._lock:
            if waiter is not None and self._sleeper is waiter:
                self._sleeper = None
            heir = self.lane.first_waiting
            if heir is not None:
                heir.wake()
                return
        self._look_after()

    def _look_after(self) -> None:
        """With nobody there, give back what is due and see when more will be."""
        while True:
            with self._lock:
                if self.lane.first_waiting is not None:
                    return  # it looks after the lane
                now = clock()
                self.lane.settle(now)
                step = self.lane.act(now)
                if isinstance(step, Sleep) and step.until is not None:
                    self._come_back(step.until, now)
            if not isinstance(step, Ask):
                return
            self._ask(step)  # what others give back meanwhile is left for the next turn

    def _come_back(self, until: int, now: int) -> None:
        if until < self._comes_back or self._comes_back <= now:
            self._comes_back = until
            timekeeper.at(until, self._look_after)


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
        self._loop = ref(running_loop())

    async def acquire(
        self,
        costs: tuple[int, ...],
        deadline: int | None,
        priority: int,
        *,
        in_front: bool = False,
    ) -> Outcome:
        """Wait for a permit that has not expired; `in_front` for who had one that did."""
        spare = self.lane.take(costs, clock())
        if spare is not None:
            return spare
        times = 0
        while True:
            outcome = await self._wait(costs, deadline, priority, in_front or times > 0)
            if not isinstance(outcome, Permit) or clock() <= outcome.expires:
                return outcome
            times += 1
            self.exchange(outcome, times)  # the loop was late to run this task

    async def _wait(
        self, costs: tuple[int, ...], deadline: int | None, priority: int, in_front: bool
    ) -> Outcome:
        waiter = self.lane.enter(costs, deadline, priority, in_front=in_front)
        if not self.lane.is_told_next:
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

    def exchange(self, permit: Permit, times: int) -> None:
        """A permit expired: the next ask, which its holder is about to cause, takes it along."""
        self.lane.exchange(permit, times, clock())

    def pass_on(self, permit: Permit) -> None:
        """A permit was not used."""
        self.lane.pass_on(permit, clock())
        self._advance()

    def settle(self, permit: Permit, unused: tuple[int, ...]) -> None:
        """What a request did not use of its permit (or used beyond it: below 0)."""
        self.lane.correct(permit, unused, clock())
        if runs_here(self._loop()):  # else it travels with the next call
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
        self.lane.close()
        self._advance()
        while self._heard is not None:
            await self._heard.wait()
        ask = self.lane.surrender(clock())
        if ask is not None:
            await self._hear(self._store.reserve(ask))

    def _advance(self) -> None:
        """Take the lane's steps up to the next that takes time."""
        served = False
        while True:
            now = clock()
            self.lane.settle(now)
            if served and self.lane.first_waiting is not None:
                step: Ask | Sleep | None = Sleep(now)  # whom this served goes first, then the rest
                break
            step = self.lane.act(now)
            if not isinstance(step, Ask):
                break
            answer = self._store.reserve(step)
            if isinstance(answer, Answer):
                self.lane.told(answer, clock())
                served = bool(answer.permits)
            else:
                self._heard = heard = anyio.Event()
                self._spawn(self._hear(answer), partial(self._after_asking, answer, heard))
        self._wakes_at = step.until if isinstance(step, Sleep) else None
        if self._poke is not None:
            if self._wakes_at is None or self._wakes_at < self._sleeps_until:
                self._poke.set()
        elif self._wakes_at is not None:
            self._poke = anyio.Event()
            self._spawn(self._keep_time(), self._after_keeping_time)

    async def _hear(self, answer: Answer | Awaitable[Answer]) -> None:
        try:
            told = await answer if isawaitable(answer) else answer
        except Exception as error:  # a fault of ours: nobody is to wait for ever because of it
            log.exception("asking for permits failed")
            told = Answer("share", clock(), outage=f"asking failed: {error!r}")
        self.lane.told(told, clock())
        _log_warning(self.lane)

    def _after_asking(self, answer: Awaitable[Answer], heard: anyio.Event) -> None:
        """The task that asked is over, be it before it began: loops end by cancelling all."""
        if iscoroutine(answer):
            answer.close()
        heard.set()
        if self._heard is heard:  # else the next ask is under way already
            self._heard = None
            if self.lane.asking:
                self.lane.lost()
            self._advance()

    async def _keep_time(self) -> None:
        while self._wakes_at is not None:
            self._sleeps_until = self._wakes_at
            self._poke = anyio.Event()
            with anyio.move_on_after((self._sleeps_until - clock()) / SECOND):
                await self._poke.wait()
            self._advance()

    def _after_keeping_time(self) -> None:
        self._poke = None
        self._advance()


def _log_warning(lane: Lane) -> None:
    warning = lane.take_warning()
    if warning is not None:
        log.warning("%s", warning)


AnyLane = TypeVar("AnyLane", SyncLane, AsyncLane)


class Lanes(Generic[AnyLane]):
    """The lanes of one client on one loop (or in its threads).

    Requests share a lane when they draw on the same windows under the same key: who waits for
    one window does not keep back who does not draw on it.
    """

    def __init__(self, settings: Settings, shell: Callable[[Lane], AnyLane]) -> None:
        self._settings = settings
        self._shell: Callable[[Lane], AnyLane] = shell
        self._name = uuid4().hex[:16]
        self._lanes: dict[tuple[str, tuple[Limit, ...], tuple[bool, ...]], AnyLane] = {}
        self._guards: dict[tuple[Limit, ...], Guard] = {}
        self._sweep_at = LANES_KEPT
        self._lock = threading.Lock()

    def of(self, key: str, limits: tuple[Limit, ...], costs: tuple[int, ...]) -> AnyLane:
        """The lane for a request of these costs under these limits."""
        drawn = tuple(map(bool, costs))  # one that draws on nothing obeys holds, and nobody else
        lane = self._lanes.get((key, limits, drawn))
        return lane if lane is not None else self._make(key, limits, drawn)

    def forget(self, key: str) -> None:
        """The windows under a key were emptied."""
        for shell in self._under(key):
            shell.lane.forget()

    def spare(self, key: str) -> Counter[Limit]:
        """The units in hand that nobody waits for, and those that go back."""
        units: Counter[Limit] = Counter()
        for shell in self._under(key):
            units.update(dict(zip(shell.lane.limits, shell.lane.spare, strict=False)))
        return units

    def _under(self, key: str) -> list[AnyLane]:
        return [shell for (other, *_), shell in list(self._lanes.items()) if other == key]

    def empty(self) -> list[AnyLane]:
        """All lanes, to be closed."""
        with self._lock:
            lanes, self._lanes = list(self._lanes.values()), {}
        return lanes

    def _make(self, key: str, limits: tuple[Limit, ...], drawn: tuple[bool, ...]) -> AnyLane:
        with self._lock:
            if len(self._lanes) >= self._sweep_at:
                self._lanes = {at: one for at, one in self._lanes.items() if not one.lane.idle}
                self._sweep_at = max(LANES_KEPT, 2 * len(self._lanes))
            if limits not in self._guards:
                self._guards[limits] = Guard(limits, self._settings.guard)
            lane = Lane(hashed(key), limits, self._name, self._guards[limits])
            return self._lanes.setdefault((key, limits, drawn), self._shell(lane))
