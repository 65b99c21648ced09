"""A limit to be kept without HTTP, and what the transports draw on: lanes and their store."""

from __future__ import annotations

import asyncio
import os
import reprlib
from collections import Counter
from collections.abc import Callable
from inspect import isawaitable
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack
from weakref import WeakKeyDictionary, WeakSet

from quotaclient._async_lane import AsyncLane
from quotaclient._core.ask import SECOND, Answer, Ask, Permit, Refusal, Source
from quotaclient._core.lane import Lane
from quotaclient._core.limits import Limit
from quotaclient._core.options import UNSET, Cost, Unset, checked_cost, checked_priority
from quotaclient._core.queue import Closed, Outcome, Refused, Undecided
from quotaclient._decision import Booking, Decision, Usage
from quotaclient._lanes import Lanes
from quotaclient._loops import Tasks, closed_with_the_loop, on_asyncio, running_loop
from quotaclient._settings import Limits, Parameters, Settings
from quotaclient._stores import AsyncStore, Store, hashed
from quotaclient._stores.memory import MemoryStore, clock
from quotaclient._stores.outage import AsyncOutageStore, OutageStore
from quotaclient._stores.redis import AsyncRedisStore, RedisStore, ThreadedRedisStore
from quotaclient._sync_lane import SyncLane


class _Quota:
    """What both colours have in common: settings in, outcomes out."""

    _exceeded: ClassVar[Callable[..., Exception]]  # the error classes of one HTTP library
    _unavailable: ClassVar[Callable[..., Exception]]
    _all: ClassVar[WeakSet[_Quota]] = WeakSet()

    def __init__(self, key: str | None, limit: Limits, **parameters: Unpack[Parameters]) -> None:
        self._set_up(Settings(key, limit, **parameters))

    @classmethod
    def _of(cls, settings: Settings) -> Self:
        """The quota of a client, which has routes besides."""
        quota = cls.__new__(cls)
        quota._set_up(settings)
        return quota

    def _set_up(self, settings: Settings) -> None:
        self._settings = settings
        self.degraded = 0
        self._closed = False
        self._start_afresh()
        _Quota._all.add(self)

    def __repr__(self) -> str:
        limits = "; ".join(map(str, self.limits))
        connections = self._settings.connections
        where = connections.server if connections else "this process"
        return f"<{type(self).__name__} {self._settings.key!r} {limits} in {where}>"

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits, in the order in which they were given."""
        return self._settings.limits

    def _start_afresh(self) -> None:
        raise NotImplementedError

    def _permit(self, lane: Lane, key: str, outcome: Outcome) -> Permit:
        """The permit of an outcome, or the error that it is."""
        match outcome:
            case Permit():
                self.degraded += outcome.ticket.source == "share"
                return outcome
            case Undecided(reason):
                raise type(self)._unavailable(reason)
            case Closed():
                raise RuntimeError(f"this quota was closed while {key!r} waited for a permit")
            case Refused(refusal, source):
                raise self._refusal(lane, key, refusal, source)

    def _refusal(self, lane: Lane, key: str, refusal: Refusal, source: Source) -> Exception:
        wait = max(0, refusal.at - clock()) / SECOND
        limit = None if refusal.window is None else lane.limits[refusal.window]
        why = "the upstream asked to hold" if limit is None else f"{limit} is used up"
        return type(self)._exceeded(
            f"no permit for {reprlib.repr(key)} within max_wait: {why}, try again in {wait:.3f} s"
            " or wait longer with max_wait=",
            retry_after=wait,
            limit=limit,
            source=source,
        )

    def _decision(self, shell: SyncLane | AsyncLane, permit: Permit, since: int) -> Decision:
        lane, waited = shell.lane, (clock() - since) / SECOND
        booking = Booking(lane.limits, permit, shell.settle)
        source = permit.ticket.source
        return Decision(lane.remaining(permit.costs), waited, source, _booking=booking)

    def _usage(self, answer: Answer, spare: Counter[Limit]) -> Usage:
        """What an answer says of the windows; permits in hand that nobody used are not used."""
        if answer.outage is not None:
            raise type(self)._unavailable(answer.outage)
        rows = zip(self._settings.all_limits, answer.used, strict=True)
        used = {limit: max(0, units - spare[limit]) for limit, units in rows}
        return Usage(
            remaining=min(max(0, limit.most - used[limit]) for limit in self.limits),
            used=used,
            hold=(answer.hold - clock()) / SECOND if answer.hold else None,
            source=answer.source,
        )

    def _look(self, key: str | None) -> Ask:
        """An ask that only looks: for a user who wants to know, not for a lane."""
        settings = self._settings
        return Ask(hashed(settings.key_or(key)), settings.all_limits, "", 0)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this quota is closed; make a new one")


# A fork copies lanes with permits in hand, and open connections: they stay the parent's.
def _start_all_afresh() -> None:
    for quota in list(_Quota._all):
        quota._start_afresh()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_start_all_afresh)


class BaseQuota(_Quota):
    """`Quota` without the error classes of an HTTP library."""

    def _start_afresh(self) -> None:
        settings = self._settings
        if settings.connections is None:
            self._store: Store = MemoryStore(settings.prefix)
        else:
            self._store = OutageStore(
                RedisStore(settings.connections, settings.prefix),
                settings.fallback(settings.connections.server),
            )
        self._lanes = Lanes(settings, lambda lane: SyncLane(lane, self._store))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def acquire(
        self,
        cost: Cost = 1,
        *,
        key: str | None = None,
        max_wait: float | Unset | None = UNSET,
        priority: int = 0,
    ) -> Decision:
        """Wait until `cost` units may be spent; they are spent when this returns.

        `max_wait`: seconds, None for however long, by default the quota's own.
        Raises QuotaExceeded at once when it cannot be in time, StoreUnavailable when Redis is
        away and nothing may decide in its place, ValueError for what cannot be.
        """
        since = clock()
        costs = checked_cost(cost, self.limits)
        deadline = self._settings.deadline(max_wait, since)
        key = self._settings.key_or(key)
        shell, permit = self._draw(key, self.limits, costs, deadline, checked_priority(priority))
        return self._decision(shell, permit, since)

    def try_acquire(self, cost: Cost = 1, *, key: str | None = None) -> Decision | None:
        """Spend `cost` units if that is possible now, without waiting; None if it is not."""
        since = clock()
        key = self._settings.key_or(key)
        self._check_open()
        costs = checked_cost(cost, self.limits)
        shell = self._lanes.of(key, self.limits, costs)
        outcome = shell.acquire(costs, since, 0)
        if isinstance(outcome, Refused):
            return None
        return self._decision(shell, self._permit(shell.lane, key, outcome), since)

    def peek(self, *, key: str | None = None) -> Usage:
        """See what is used and left, spending nothing."""
        self._check_open()
        answer = self._store.reserve(self._look(key))
        return self._usage(answer, self._lanes.spare(self._settings.key_or(key)))

    def reset(self, *, key: str | None = None) -> None:
        """Forget what was sent under a key, for the whole fleet. Holds of the upstream stay.

        While Redis is away this process forgets at once, and Redis when it is asked again.
        """
        self._check_open()
        key = self._settings.key_or(key)
        self._lanes.forget(key)
        self._store.reset(hashed(key), self._settings.all_limits)

    def close(self) -> None:
        """Give back what is reserved and close the connections. Windows outlive this."""
        if self._closed:
            return
        self._closed = True
        for lane in self._lanes.empty():
            lane.close()
        self._store.close()

    def _draw(
        self,
        key: str,
        limits: tuple[Limit, ...],
        costs: tuple[int, ...],
        deadline: int | None,
        priority: int,
        in_front: bool = False,
    ) -> tuple[SyncLane, Permit]:
        self._check_open()
        shell = self._lanes.of(key, limits, costs)
        outcome = shell.acquire(costs, deadline, priority, in_front=in_front)
        return shell, self._permit(shell.lane, key, outcome)


class _Here:
    """An AsyncQuota on one event loop: connections cannot leave theirs, nor can lanes."""

    def __init__(self, settings: Settings) -> None:
        tasks = Tasks()
        self.store = self._open(settings)
        self.end = closed_with_the_loop(self._close)
        self.lanes = Lanes(settings, lambda lane: AsyncLane(lane, self.store, tasks.spawn))

    async def _close(self) -> None:
        try:
            for lane in self.lanes.empty():
                await lane.close()
        finally:
            done = self.store.close()
            if done is not None:
                await done

    @staticmethod
    def _open(settings: Settings) -> AsyncStore:
        if settings.connections is None:
            return MemoryStore(settings.prefix)
        kind = AsyncRedisStore if on_asyncio() else ThreadedRedisStore
        store = kind(settings.connections, settings.prefix)
        return AsyncOutageStore(store, settings.fallback(settings.connections.server))


class BaseAsyncQuota(_Quota):
    """`AsyncQuota` without the error classes of an HTTP library."""

    def _start_afresh(self) -> None:
        self._by_loop: WeakKeyDictionary[Any, _Here] = WeakKeyDictionary()

    @property
    def _here(self) -> _Here:
        loop = running_loop()
        here = self._by_loop.get(loop)
        if here is None:
            self._drop_closed_loops()
            here = self._by_loop[loop] = _Here(self._settings)
        return here

    def _drop_closed_loops(self) -> None:
        """Connections know their loop, so the weak keys alone would keep loops that ended."""
        for loop in list(self._by_loop):
            if isinstance(loop, asyncio.AbstractEventLoop) and loop.is_closed():
                del self._by_loop[loop]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def acquire(
        self,
        cost: Cost = 1,
        *,
        key: str | None = None,
        max_wait: float | Unset | None = UNSET,
        priority: int = 0,
    ) -> Decision:
        """Wait until `cost` units may be spent; they are spent when this returns.

        `max_wait`: seconds, None for however long, by default the quota's own.
        Raises QuotaExceeded at once when it cannot be in time, StoreUnavailable when Redis is
        away and nothing may decide in its place, ValueError for what cannot be.
        """
        since = clock()
        costs = checked_cost(cost, self.limits)
        deadline = self._settings.deadline(max_wait, since)
        key = self._settings.key_or(key)
        shell, permit = await self._draw(
            key, self.limits, costs, deadline, checked_priority(priority)
        )
        return self._decision(shell, permit, since)

    async def try_acquire(self, cost: Cost = 1, *, key: str | None = None) -> Decision | None:
        """Spend `cost` units if that is possible now, without waiting; None if it is not."""
        since = clock()
        key = self._settings.key_or(key)
        self._check_open()
        costs = checked_cost(cost, self.limits)
        shell = self._here.lanes.of(key, self.limits, costs)
        outcome = await shell.acquire(costs, since, 0)
        if isinstance(outcome, Refused):
            return None
        return self._decision(shell, self._permit(shell.lane, key, outcome), since)

    async def peek(self, *, key: str | None = None) -> Usage:
        """See what is used and left, spending nothing."""
        self._check_open()
        here = self._here
        answer = here.store.reserve(self._look(key))
        if isawaitable(answer):
            answer = await answer
        return self._usage(answer, here.lanes.spare(self._settings.key_or(key)))

    async def reset(self, *, key: str | None = None) -> None:
        """Forget what was sent under a key, for the whole fleet. Holds of the upstream stay.

        While Redis is away this process forgets at once, and Redis when it is asked again.
        """
        self._check_open()
        key = self._settings.key_or(key)
        self._here.lanes.forget(key)
        done = self._here.store.reset(hashed(key), self._settings.all_limits)
        if done is not None:
            await done

    async def aclose(self) -> None:
        """Give back what is reserved and close this loop's connections. Windows outlive this."""
        self._closed = True
        here = self._by_loop.pop(running_loop(), None)
        if here is not None:
            await here.end.aclose()

    async def _draw(
        self,
        key: str,
        limits: tuple[Limit, ...],
        costs: tuple[int, ...],
        deadline: int | None,
        priority: int,
        in_front: bool = False,
    ) -> tuple[AsyncLane, Permit]:
        self._check_open()
        shell = self._here.lanes.of(key, limits, costs)
        outcome = await shell.acquire(costs, deadline, priority, in_front=in_front)
        return shell, self._permit(shell.lane, key, outcome)
