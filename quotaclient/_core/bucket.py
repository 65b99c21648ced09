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
from math import ceil, inf
from typing import NamedTuple

from quotaclient._core.limits import Limit
from quotaclient._core.window import Run, Window


class Change(NamedTuple):
    """What happens to a bucket at an instant; `starts`: that units may arrive from it on."""

    instant: int
    starts: bool
    flight: float
    debt: float

    def plus(self, other: Change) -> Change:
        """This change and another one at its instant."""
        starts = self.starts or other.starts
        return Change(self.instant, starts, self.flight + other.flight, self.debt + other.debt)


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

    def book(self, by: int, units: float) -> None:
        """Count units that may go from here to `by`."""
        if by <= self.instant:
            self.debt += units
            return
        self.flight += units
        landing, place = Change(by, False, -units, units), len(self.changes)
        while place > self.place and self.changes[place - 1].instant >= by:
            place -= 1
        if place < len(self.changes) and self.changes[place].instant == by:
            self.changes[place] = self.changes[place].plus(landing)
        else:
            self.changes.insert(place, landing)

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
    """The record of one bucket under one key. `count` is that of the last ask. Debt above `most` is
    forgotten.
    """

    count: int = 1
    most: float = inf
    level: Level | None = None  # at the last fit: who books there looks for the next from there on

    def open(self, limit: Limit, now: int, epoch: int) -> None:  # noqa: ARG002 - needs no clock
        self.count = limit.count
        self.forget(now)

    def is_over(self, now: int) -> bool:
        return self.last_by + ceil(self.total * self.period / self.count) <= now

    def matters(self, at: int, by: int, now: int) -> bool:
        return by > now or at == now  # all that has landed is one debt

    def forget(self, now: int) -> None:
        """Make one run of all that has landed; when nothing is left, this life ends."""
        self.level = None  # what was given back, or reset, is not in it
        level = self._level_at(now)
        self.runs = [run for run in self.runs if run.by > now]
        if level.debt > 0:
            place = sum(run.at <= now for run in self.runs)
            self.runs.insert(place, Run(now, now, min(level.debt, self.most)))
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
        level = self.level = self._level_at(start)
        while True:
            level.to_room(room)
            peak, clash = level.height, None
            if level.instant < self.runs[-1].at:
                peak, clash = level.peak_with(cost, limit, level.instant + guard)
            if clash is None:
                return level.instant, min(ceil(peak), room)  # it may be above by a rounding
            level.go_to(clash)

    def stays(self, now: int, until: int) -> int:
        debt = sum(run.units for run in self.runs if run.at <= now)
        return ceil(max(debt - (until - now) * self.count / self.period, 0))

    def book(self, at: int, by: int, units: float, now: int) -> None:
        # Not super(): it does not work in a dataclass with slots.
        Window.book(self, at, by, units, now)
        if self.level is not None and self.level.instant == at:
            self.level.book(by, units)
        else:
            self.level = None

    def book_late(self, at: int, by: int, units: float, now: int) -> None:
        # Whether it has drained since depends on what is forgotten: it counts in full.
        at, by = (now, now) if by <= now else (at, by)
        self.book(at, by, units, now)

    def _level_at(self, start: int) -> Level:
        """The level at an instant."""
        level = self.level
        if level is None or level.instant > start:
            first = min([start, *(run.at for run in self.runs[:1])])
            level = Level(self._changes(), self.count, self.period, first)
        level.go_to(start)
        return level

    def _thin_out(self) -> None:
        Window._thin_out(self)
        self.level = None

    def _changes(self) -> list[Change]:
        """What happens at each instant at which anything does, in order."""
        found: dict[int, Change] = {}

        for run in self.runs:
            flies = run.units if run.by > run.at else 0
            for change in (
                Change(run.at, True, flies, 0),
                Change(run.by, False, -flies, run.units),
            ):
                before = found.get(change.instant)
                found[change.instant] = before.plus(change) if before else change
        return sorted(found.values())
