"""The record of a bucket: it holds `burst` units and regains `count` in every `period`.

Seen from the other side it has a level, which every unit raises, and which falls steadily, down to
0. A unit granted for [at, by] may arrive anywhere in between. At worst all that may have arrived by
an instant s, and may do so as late as s, do so at s, and the rest did as late as it could:

    level(s) = units with at <= s < by, + the debt: it jumps by a run's units at its `by`,
               and falls by count / period a microsecond, down to 0

    Rule     At no unit's `at` is the level, with the unit, above the burst of the ask that books.

Between the `at`s it only falls. What lies behind is forgotten into one run, whose units are the
debt left, a fraction. The steps of lua/bucket.lua are the same, in the same order, so that their
fractions are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from quotaclient._core.limits import Limit
from quotaclient._core.window import Run, Window


class Change(NamedTuple):
    """What happens to a bucket at an instant; `starts`: that units may arrive from it on."""

    instant: int
    starts: bool
    flight: float
    debt: float


@dataclass(slots=True)
class Level:
    """A walk through the changes ahead: what is in flight, and the debt, at an instant."""

    changes: list[Change]
    count: int
    period: int
    instant: int
    flight: float = 0
    debt: float = 0.0
    place: int = 0  # of the next change

    @property
    def height(self) -> float:
        return self.flight + self.debt

    @property
    def next_at(self) -> int | None:
        """When something changes next."""
        return self.changes[self.place].instant if self.place < len(self.changes) else None

    def fall(self, instant: int) -> None:
        """Go on to an instant before which nothing changes."""
        passed = float(instant - self.instant)
        self.debt = max(0.0, self.debt - passed * self.count / self.period)
        self.instant = instant

    def step(self) -> Change:
        """Go on to the next change."""
        change = self.changes[self.place]
        self.fall(change.instant)
        self.flight += change.flight
        self.debt += change.debt
        self.place += 1
        return change

    def go_to(self, instant: int) -> None:
        """Go on to an instant, through all that changes until then."""
        while self.next_at is not None and self.next_at <= instant:
            self.step()
        self.fall(instant)

    def to_room(self, room: int) -> None:
        """Go on to the first instant at which the level is no higher than `room`."""
        while self.height > room:
            ready = None
            if self.flight <= room:
                above = self.debt - (room - self.flight)
                ready = self.instant + ceil(above * self.period / self.count)
            if self.next_at is None or (ready is not None and ready < self.next_at):
                assert ready is not None  # after the last change nothing is in flight
                self.fall(ready)
                return  # it may be above by a rounding
            self.step()

    def peak_with(self, cost: int, limit: int, by: int) -> tuple[float, int | None]:
        """The highest level there will be at an `at`, not counting a unit that may go from here to
        `by`, and the first `at` at which with it that is above the limit.
        """
        ahead, peak = replace(self), self.height
        ahead.flight += cost
        landed = False
        while ahead.next_at is not None:
            if not landed and by <= ahead.next_at:
                ahead.fall(by)
                ahead.flight, ahead.debt, landed = ahead.flight - cost, ahead.debt + cost, True
            change = ahead.step()
            if change.starts:
                if ahead.height > limit:
                    return peak, change.instant
                peak = max(peak, ahead.height - cost)
        return peak, None


@dataclass(slots=True)
class BucketWindow(Window):
    """The record of one bucket under one key. `count` is that of the last ask, `fill` how long its
    bucket takes from empty to full.
    """

    count: int = 1
    fill: int = 0

    def open(self, limit: Limit, now: int, epoch: int) -> None:  # noqa: ARG002 - needs no clock
        self.count, self.fill = limit.count, limit.reach_us
        self.forget(now)

    def is_over(self, now: int) -> bool:
        return self.last_by + ceil(self.total * self.period / self.count) <= now

    def matters(self, by: int, now: int) -> bool:
        return by >= now  # what landed before is one debt

    def forget(self, now: int) -> None:
        """Make one run of all that has landed; when nothing is left, this life ends."""
        level = self._level(now)
        level.go_to(now)
        self.runs = [run for run in self.runs if run.by > now]
        if level.debt > 0:
            place = sum(run.at <= now for run in self.runs)
            self.runs.insert(place, Run(now, now, level.debt))
            self.last_by = max(self.last_by, now)
        self.total = 0
        for run in self.runs:  # one by one: sum() would round in another way than Lua
            self.total += run.units
        if not self.runs:
            self.generation = self.last_by = 0

    def first_fit(self, start: int, cost: int, limit: int, guard: int) -> tuple[int, int]:
        room = limit - cost
        if self.total <= room:
            return start, self.used
        level = self._level(start)
        level.go_to(start)
        while True:
            level.to_room(room)
            peak, clash = level.peak_with(cost, limit, level.instant + guard)
            if clash is None:
                return level.instant, min(ceil(peak), room)  # it may be above by a rounding
            level.go_to(clash)

    def book_late(self, at: int, by: int, units: float, now: int) -> None:
        # Whether it would have drained until now depends on what is forgotten: it counts in full.
        if by + self.fill > now:
            at, by = (now, now) if by <= now else (at, by)
            self.book(at, by, units, now)

    def _level(self, start: int) -> Level:
        """The level before all there is, not after `start`."""
        first = min([start, *(run.at for run in self.runs[:1])])
        return Level(self._changes(), self.count, self.period, first)

    def _changes(self) -> list[Change]:
        """What happens at each instant at which anything does, in order."""
        found: dict[int, Change] = {}

        def add(instant: int, starts: bool, flight: float, debt: float) -> None:
            before = found.get(instant, Change(instant, False, 0, 0))
            found[instant] = Change(
                instant, before.starts or starts, before.flight + flight, before.debt + debt
            )

        for run in self.runs:
            flies = run.units if run.by > run.at else 0
            add(run.at, True, flies, 0)
            add(run.by, False, -flies, run.units)
        return sorted(found.values())
