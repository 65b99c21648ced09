"""A lane at work in threads: waits, asks the store and wakes; what to do a `Lane` decides.

Whoever comes along takes the lane's next step, one ask is under way at a time, and of those who
wait one thread sleeps until the lane's next instant.
"""

from __future__ import annotations

import logging
import threading

from quotaclient._core.ask import SECOND, Ask, Permit
from quotaclient._core.lane import Lane, Sleep
from quotaclient._core.queue import Outcome, Waiter
from quotaclient._stores import Store
from quotaclient._stores.memory import clock
from quotaclient._timekeeper import timekeeper

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
        warning = self.lane.take_warning()
        if warning is not None:
            log.warning("%s", warning)

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
