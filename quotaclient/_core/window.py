"""The window: what was sent under one limit, and when the next request may go.

A unit granted at `at` with guard g departs, and arrives, somewhere in [at, by] with by = at + g.
It therefore occupies its window over [at, by + period). Records of other kinds of limits are
records like this one, with other rules where they need them.

    Rule 1   Occupancy never exceeds the limit of the ask that books, at any instant.
    Rule 2   A request of cost c goes at the first instant from which occupancy stays at or below
             limit - c for guard + period.
    Rule 3   Whatever is forgotten about a unit makes it count longer, never shorter.

`lua/record.lua` and `fit.lua` keep it in Redis by the same rules, step for step: a change here
is a change there. Times are whole microseconds on one clock; nothing here reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, starmap
from math import ceil

from quotaclient._core.limits import Limit

MAX_RUNS = 128  # what a packed record of 4 KB holds at 24 bytes a run, with room to spare


@dataclass(slots=True)
class Run:
    """Units that may arrive anywhere in [at, by]; a bucket's may be a fraction."""

    at: int
    by: int
    units: float


@dataclass(slots=True)
class Window:
    """The record of one limit under one key.

    `generation` names this life of the record (the time of its first booking; 0 before): a
    give-back that speaks of an earlier life is none of its business. `epoch` is what to add to the
    clock of those who ask to get the clock of the runs.
    """

    period: int
    generation: int = 0
    total: float = 0
    last_by: int = 0
    runs: list[Run] = field(default_factory=list[Run])
    epoch: int = 0

    @property
    def used(self) -> int:
        """The units that count, all of them together."""
        return ceil(self.total)

    def open(self, limit: Limit, now: int, epoch: int) -> None:  # noqa: ARG002 - others use them
        """Begin with an ask: with what its limit says, and what `now + epoch` is in UTC."""
        self.forget(now)

    def covered(self, at: int, by: int) -> tuple[int, int]:
        """The run that units count as which may arrive anywhere in [at, by], on its clock."""
        return at, by

    def matters(self, at: int, by: int, now: int) -> bool:  # noqa: ARG002 - others use it
        """Whether units of [at, by] still count as such."""
        return self._until(by + self.epoch) > now + self.epoch

    def is_over(self, now: int) -> bool:
        """Whether nothing occupies the window any more."""
        return self.last_by + self.period <= now + self.epoch

    def sends(self, now: int) -> list[tuple[int, int, int]]:
        """What counts, as how long ago it might first depart, and had to, and how much it is."""
        return [(now - run.at, now - run.by, ceil(run.units)) for run in self.runs]

    def forget(self, now: int) -> None:
        """Drop what no longer occupies the window; with the last of it, this life ends."""
        now += self.epoch
        if self.last_by + self.period <= now:
            self.runs.clear()
            self.generation = self.total = self.last_by = 0
        gone = 0
        while gone < len(self.runs) and self.runs[gone].by + self.period <= now:
            self.total -= self.runs[gone].units
            gone += 1
        del self.runs[:gone]

    def first_fit(self, start: int, cost: int, limit: int, guard: int) -> tuple[int, int]:
        """The first instant >= start that Rule 2 allows, and the most that is occupied from it on.

        `cost` must not exceed `limit`: no instant would ever do.
        """
        room = limit - cost
        if self.total <= room:
            return start, self.used
        start += self.epoch
        occupied, changes = self._changes_after(start)
        fit, peak = (start, occupied) if occupied <= room else (None, 0)
        until = self._until(start + guard)
        for instant, difference in changes:
            if fit is not None and instant >= until:
                break
            occupied += difference
            if occupied > room:
                fit = None
            elif fit is None:
                fit, peak, until = instant, occupied, self._until(instant + guard)
            else:
                peak = max(peak, occupied)
        assert fit is not None  # after the last change nothing is occupied
        return fit - self.epoch, ceil(peak)

    def since(self, instant: int, period: int) -> Window:
        """A record of what departs from an instant on, as if it counted for this period."""
        runs = [run for run in self.runs if run.at >= instant + self.epoch]
        total = sum(run.units for run in runs)
        return Window(period, total=total, runs=runs, epoch=self.epoch)

    def _until(self, by: int) -> int:
        """Until when units occupy the window that may arrive as late as that."""
        return self.covered(by, by)[1] + self.period

    def _changes_after(self, start: int) -> tuple[float, list[tuple[int, float]]]:
        """Occupancy at `start`, and its later changes: one per instant, in order."""
        occupied: float = 0
        changes: dict[int, float] = {}
        for run in self.runs:
            end = run.by + self.period
            if end <= start:
                continue
            if run.at <= start:
                occupied += run.units
            else:
                changes[run.at] = changes.get(run.at, 0) + run.units
            changes[end] = changes.get(end, 0) - run.units
        return occupied, sorted(changes.items())

    def stays(self, now: int, until: int) -> int:
        """The units of those that have departed by now which count until then."""
        now, until = now + self.epoch, until + self.epoch
        return ceil(
            sum(run.units for run in self.runs if run.at <= now and run.by + self.period > until)
        )

    def book(self, at: int, by: int, units: float, now: int) -> None:
        """Count `units` that may arrive anywhere in [at, by]."""
        at, by = self.covered(at + self.epoch, by + self.epoch)
        self.generation = self.generation or now
        self.total += units
        self.last_by = max(self.last_by, by)
        place = len(self.runs)
        while place and self.runs[place - 1].at > at:
            place -= 1
        same = place - 1
        while same >= 0 and self.runs[same].at == at:
            if self.runs[same].by == by:
                self.runs[same].units += units
                return
            same -= 1
        self.runs.insert(place, Run(at, by, units))
        if len(self.runs) > MAX_RUNS:
            self._thin_out()

    def book_late(self, at: int, by: int, units: float, now: int) -> None:
        """Count units that were sent without having been booked, while they matter."""
        if self.matters(at, by, now):
            self.book(at, by, units, now)

    def _thin_out(self) -> None:
        """Make one run each of neighbours that begin and end nearly together (Rule 3).

        A third of them at least are meant, so that this is done once in many bookings: fewer
        than two in three can be farther apart than one and a half times the mean.
        """
        runs, self.runs = self.runs, []
        farthest = sum(starmap(_apart, pairwise(runs))) / MAX_RUNS * 1.5
        place = 0
        while place < len(runs):
            run, place = runs[place], place + 1
            other = runs[place] if place < len(runs) else None
            if other is not None and _apart(run, other) <= farthest:
                run = Run(run.at, max(run.by, other.by), ceil(run.units + other.units))
                place += 1
            self.runs.append(run)

    def give_back(self, generation: int, at: int, by: int, units: int, now: int) -> None:
        """Take back units that were granted for [at, by] and will not be sent.

        When runs were joined several may hold them: from now on all of those count as long as the
        one that ends first and starts last, or longer, so that one gives (Rule 3). Units below 0
        are what was sent on top of what was granted: they count in whichever life. Generation 0:
        there was no record yet, so that what comes back is a part of what was sent on top.
        """
        if units < 0:
            self.book_late(at, by, -units, now)
            return
        if generation not in (0, self.generation) or not self.matters(at, by, now):
            return
        run = self._holder(*self.covered(at + self.epoch, by + self.epoch), now + self.epoch)
        if run is None:
            return
        taken = min(units, run.units)
        run.units -= taken
        self.total -= taken
        if not run.units:
            self.runs.remove(run)

    def _holder(self, at: int, by: int, now: int) -> Run | None:
        """The run to take units of [at, by] from, if there is one that may be."""
        holder, latest = None, now
        for run in self.runs:
            if run.at == at and run.by == by:
                return run
            if run.at <= at and by <= run.by:
                latest = max(latest, run.at)
                # They are in order of `at`: of those that end together the last starts last.
                if holder is None or run.by <= holder.by:
                    holder = run
        return holder if holder is not None and max(holder.at, now) >= latest else None

    def reset(self) -> None:
        """Empty the record; its life goes on, so that nobody takes this for a loss of data."""
        self.runs.clear()
        self.total = 0


def _apart(run: Run, other: Run) -> int:
    """How far a run and the next are apart."""
    return other.at - run.at + abs(other.by - run.by)
