"""A lane at work on an event loop: waits, asks the store and wakes; a `Lane` decides.

Whoever comes along takes the lane's next step, one ask is under way at a time, and one task keeps
the time while anybody waits.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from functools import partial
from inspect import isawaitable, iscoroutine
from weakref import ref

import anyio

from quotaclient._core.ask import SECOND, Answer, Ask, Permit
from quotaclient._core.lane import Lane, Sleep
from quotaclient._core.queue import Outcome
from quotaclient._loops import Spawn, running_loop, runs_here
from quotaclient._stores import AsyncStore
from quotaclient._stores.memory import clock

log = logging.getLogger("quotaclient")


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
        if in_front:
            self._wake_at(clock())  # others may be late, too: whose turn it is asks for all of them
        elif not self.lane.is_told_next:
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
        self._wake_at(step.until if isinstance(step, Sleep) else None)

    def _wake_at(self, instant: int | None) -> None:
        self._wakes_at = instant
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
        warning = self.lane.take_warning()
        if warning is not None:
            log.warning("%s", warning)

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
