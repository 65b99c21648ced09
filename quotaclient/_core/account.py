"""The account: all windows under one key, their hold, and the lanes that draw on them.

`Account.reserve` is what every store does with an ask. In Redis `lua/reserve.lua` does it, step
for step: a change here is a change there. Times are whole microseconds; nothing reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from quotaclient._core.ask import SECOND, Ask, GiveBack, Grant, Group, Refusal, Reply
from quotaclient._core.bucket import BucketWindow
from quotaclient._core.fixed import FixedWindow
from quotaclient._core.limits import Kind, Limit
from quotaclient._core.window import Window

RECOVERY = 60 * SECOND  # at most so long after a hold nobody leaves in a burst; hold.lua knows it

_RECORDS: dict[Kind, type[Window]] = {
    "sliding": Window,
    "fixed": FixedWindow,
    "bucket": BucketWindow,
}


def window_name(limit: Limit) -> str:
    """What names a limit's record under its key.

    The count is no part of it: when a deploy raises a limit from 100 to 200 the record stays, for
    else 300 would pass. Each ask brings its own count. A route is hashed, for paths may tell what
    is nobody's business.
    """
    name = f"{limit.name}:{limit.kind}:{limit.period_us}"
    if limit.zone:
        name = f"{name}:{limit.zone}"
    if not limit.route:
        return name
    return (
        f"{blake2b(limit.route.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}:{name}"
    )


def new_record(limit: Limit) -> Window:
    """An empty record of the kind of this limit."""
    return _RECORDS[limit.kind](limit.period_us)


@dataclass(slots=True)
class Account:
    """All that a store keeps under one key.

    `epoch` is what to add to the clock of those who ask to get UTC, as the last of them said.
    """

    windows: dict[str, Window] = field(default_factory=dict[str, Window])
    hold: int = 0
    lanes: dict[str, int] = field(default_factory=dict[str, int])
    epoch: int = 0

    def window(self, limit: Limit) -> Window:
        """The record that this limit books in."""
        name = window_name(limit)
        if name not in self.windows:
            self.windows[name] = new_record(limit)
        return self.windows[name]

    def opened(self, limit: Limit, now: int) -> Window:
        """The record that this limit books in, as it is now."""
        window = self.window(limit)
        window.open(limit, now, self.epoch)
        return window

    def is_empty(self, now: int) -> bool:
        """Whether forgetting this account would change no answer."""
        held = self.hold and self.hold + RECOVERY > now
        return not held and all(window.is_over(now) for window in self.windows.values())

    def raise_hold(self, until: int) -> None:
        """Nobody sends before `until`. Holds merge by maximum and are never shortened."""
        self.hold = max(self.hold, until)

    def reserve(self, ask: Ask, now: int, epoch: int = 0) -> Reply:
        """Take back, count what was sent elsewhere, book what is asked: in one step.

        `now + epoch` is the time in UTC.
        """
        self.epoch = epoch
        windows = [self.opened(limit, now) for limit in ask.limits]
        for returned in ask.returns:
            _take_back(windows, returned, now)
        for sent in ask.sent:
            window = windows[sent.window]
            window.book_late(now - sent.ago, now - sent.until, sent.units, now)
        booking = _Booking(ask, windows, now, self.hold)
        if ask.groups:
            tight = not booking.has_room_for(len(self.lanes) + 1)
            if ask.greets:
                self._greet(ask, now, now)
            booking.book_all(self._active(now) if tight else 1)
            if tight and booking.grants and booking.grants[-1].at > now + ask.idle // 2:
                self._greet(ask, now, booking.grants[-1].at)
        return Reply(
            now=now,
            hold=self.hold if self.hold > now else 0,
            generations=tuple(window.generation for window in windows),
            used=tuple(window.used for window in windows),
            grants=tuple(booking.grants),
            refusal=booking.refusal,
        )

    def _greet(self, ask: Ask, now: int, seen: int) -> None:
        """Note that a lane asks, or will send at an instant."""
        self.lanes = {lane: until for lane, until in self.lanes.items() if until > now}
        self.lanes[ask.lane] = max(self.lanes.get(ask.lane, 0), seen + ask.idle)

    def _active(self, now: int) -> int:
        """How many lanes share what is free: those that asked lately, or have reservations."""
        return max(1, sum(until > now for until in self.lanes.values()))


def _take_back(windows: list[Window], returned: GiveBack, now: int) -> None:
    ticket = returned.ticket
    for window, generation, units in zip(windows, ticket.generations, returned.costs, strict=True):
        if units:
            window.give_back(generation, ticket.at, ticket.by, units, now)


class _Booking:
    """One pass through the groups of an ask, in line order.

    Of what is free now, and of what will be within the horizon, a call gets at most its part (all
    of it divided by the active lanes, rounded up); beyond the horizon exactly one place in line.
    But its first request is always served: no reply is empty-handed.
    """

    def __init__(self, ask: Ask, windows: list[Window], now: int, hold: int) -> None:
        self.ask = ask
        self.windows = windows
        self.now = now
        self.active = 1
        self.start = max(now, hold)
        self.hold = hold  # its end, also when that has passed: 0 if there never was one
        self.grants: list[Grant] = []
        self.refusal: Refusal | None = None
        self._pressing: int | None = None  # the window that moved the start last; None: a hold
        self._part_of_now: dict[int, int] = {}
        self._part_of_horizon: dict[int, int] = {}

    def has_room_for(self, lanes: int) -> bool:
        """Whether so many such asks would fit now: then nobody need know how many there are."""
        if self.start > self.now or any(group.after for group in self.ask.groups):
            return False
        if any(self._recovers_until(limit) > self.now for limit in self.ask.limits):
            return False
        return all(
            window.total + lanes * sum(group.requests * group.costs[i] for group in self.ask.groups)
            <= limit.most
            for i, (window, limit) in enumerate(zip(self.windows, self.ask.limits, strict=True))
        )

    def book_all(self, active: int) -> None:
        """Book as much as one of so many active lanes may have."""
        self.active = active
        for group in self.ask.groups:
            self.start = max(self.start, self.now + group.after)
            left = group.requests
            while left:
                booked = 0 if self._has_place_in_line() else self._book_some(left, group)
                if not booked:
                    return
                left -= booked

    def _has_place_in_line(self) -> bool:
        return bool(self.grants) and self.grants[-1].at > self.now + self.ask.horizon

    def _book_some(self, wanted: int, group: Group) -> int:
        """Book up to `wanted` requests at the next instant that suits; 0 when the pass is over."""
        drawn = [i for i, cost in enumerate(group.costs) if cost]
        rooms = self._agree(drawn, group.costs)
        wait = self.start - self.now
        if self.ask.max_wait is not None and wait > self.ask.max_wait:
            self.refusal = Refusal(self.start, self._pressing)
            return 0
        if wait > self.ask.horizon:
            count = 1
        else:
            part = self._part_of_horizon if wait else self._part_of_now
            for i in drawn:
                if i not in part:
                    free = self._free_within_horizon(i) if wait else rooms[i]
                    part[i] = -(-free // self.active)
            count = min([wanted, *(min(rooms[i], part[i]) // group.costs[i] for i in drawn)])
            if count < 1 and self.grants:
                return 0
            count = max(count, 1)
            for i in drawn:
                part[i] -= count * group.costs[i]
        for i in drawn:
            self.windows[i].book(
                self.start, self.start + self.ask.guard, count * group.costs[i], self.now
            )
        self.grants.append(Grant(count, self.start, group.costs))
        return count

    def _free_within_horizon(self, i: int) -> int:
        """What all lanes together may book, but for what they have: it is theirs already."""
        stays = self.windows[i].stays(self.now, self.now + self.ask.horizon)
        return self.ask.limits[i].most - stays

    def _agree(self, drawn: list[int], costs: tuple[int, ...]) -> dict[int, int]:
        """Move the start to where all windows agree; what each then has room for, in units."""
        rooms: dict[int, int] = {}
        while len(rooms) < len(drawn):
            for i in drawn:
                at, room = self._fit(i, costs[i])
                if at > self.start:
                    self.start, self._pressing = at, i
                    rooms.clear()
                rooms[i] = room
        return rooms

    def _fit(self, i: int, cost: int) -> tuple[int, int]:
        """Where one window allows a request of this cost, and its room there.

        Whoever waited for a hold's end would leave at once: for a while a tenth of the limit goes
        in a tenth of the period, but room there is for this request.
        """
        window, limit, guard = self.windows[i], self.ask.limits[i], self.ask.guard
        at, peak = window.first_fit(self.start, cost, limit.most, guard)
        recovers_until = self._recovers_until(limit)
        tenth = max(-(-limit.most // 10), cost)
        recovery = window.since(self.hold, limit.period_us // 10)
        while at < recovers_until:
            later, height = recovery.first_fit(at, cost, tenth, guard)
            if later == at:
                return at, min(limit.most - peak, tenth - height)
            at, peak = window.first_fit(min(later, recovers_until), cost, limit.most, guard)
        return at, limit.most - peak

    def _recovers_until(self, limit: Limit) -> int:
        """Until when the end of a hold is felt under a limit."""
        if not self.hold or limit.kind != "sliding":
            return 0
        return self.hold + min(limit.period_us, RECOVERY)
