"""What lanes and stores say to each other.

An `Ask` is one call to a store; a `Reply` is its answer on the store's clock, an `Answer` the same
on the clock of the caller. Times are whole microseconds; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from quotaclient._core.limits import Limit

SECOND = 1_000_000

Source = Literal["store", "local", "share"]
"""Who granted a permit: Redis, the windows of this process, or this replica's share."""

NEVER = 2**62  # later than any clock this code will see


class Ticket(NamedTuple):
    """How a permit is known again: [at, by] by the store that granted it, `here` by the caller.

    `generations` are the lives of the store's records, one per window, in which it was booked.
    """

    source: Source
    generations: tuple[int, ...]
    at: int
    by: int
    here: int


@dataclass(frozen=True, slots=True, eq=False)
class Permit:
    """Leave for one request to depart not before `at` and not after `expires` (caller's clock)."""

    at: int
    expires: int
    costs: tuple[int, ...]
    ticket: Ticket


class GiveBack(NamedTuple):
    """Units of a permit that will not be sent; below 0, that were sent on top of it."""

    ticket: Ticket
    costs: tuple[int, ...]


class Sent(NamedTuple):
    """Units that this replica sent by its share, told to the store when it is back.

    `ago` is how long ago they might first depart, `until` how long ago they had to; below 0,
    they still may.
    """

    window: int
    ago: int
    until: int
    units: int


class Group(NamedTuple):
    """Requests of the same costs, next to each other in line, not to go before now + after."""

    requests: int
    costs: tuple[int, ...]
    after: int = 0


class Grant(NamedTuple):
    """Leave for so many `requests` of `costs` at `at` (the store's clock)."""

    requests: int
    at: int
    costs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a lane asks of a store: permits for all that wait in it, in their order.

    `max_wait` is None for "however long". An ask without groups only looks (and gives back).
    `greets`: that this lane is here is to be noted, which it was not in the last quarter of `idle`.
    """

    key: str
    limits: tuple[Limit, ...]
    lane: str
    guard: int
    groups: tuple[Group, ...] = ()
    max_wait: int | None = None
    returns: tuple[GiveBack, ...] = ()
    sent: tuple[Sent, ...] = ()
    greets: bool = True

    @property
    def horizon(self) -> int:
        """How far ahead one call may reserve more than one place: W/4 within 0.25-1 s."""
        return min(max(self.shortest // 4, SECOND // 4), SECOND)

    @property
    def idle(self) -> int:
        """How long a lane counts as active after it asked: W/10, at least 1 s."""
        return max(SECOND, self.shortest // 10)

    @property
    def shortest(self) -> int:
        """The shortest period: the pace at which this key's affairs change."""
        return min(limit.period_us for limit in self.limits)


class Refusal(NamedTuple):
    """No permit before `at`: later than the asker would wait. `window` is None for a hold."""

    at: int
    window: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A store's answer to an ask, on the store's clock.

    `hold` is 0 when there is none. Fewer grants than requests without a refusal: this lane has
    had its part of what is free; the rest may ask again when the last grant has left.
    """

    now: int
    hold: int
    generations: tuple[int, ...]
    used: tuple[int, ...]
    grants: tuple[Grant, ...] = ()
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply on the caller's clock. `left` is what each limit of the ask has left, in units.

    `returned` are permits that the answer holds back and the lane is to give back with its next
    ask. `outage` says why nobody could decide, when nobody could. `trip` is how long the way to
    the store and back took, `now` what the store's clock showed in between.
    """

    source: Source
    asked: int
    trip: int = 0
    now: int = 0
    used: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    generations: tuple[int, ...] = ()
    hold: int = 0
    permits: tuple[Permit, ...] = ()
    returned: tuple[GiveBack, ...] = ()
    refusal: Refusal | None = None
    outage: str | None = None


def localize(ask: Ask, reply: Reply, source: Source, asked: int, received: int) -> Answer:
    """Bring a reply to the clock of the caller, who asked and received at these instants.

    A told wait counts from the receipt (late is safe, early is not), an expiry from the asking
    (the store's `now` cannot be earlier). A permit lasts half its guard, for the other half is
    the network's; without a guard it is checked at admission only and does not expire.
    """

    def permit(grant: Grant) -> Permit:
        here = received + grant.at - reply.now
        return Permit(
            at=here,
            expires=asked + grant.at - reply.now + ask.guard // 2 if ask.guard else NEVER,
            costs=grant.costs,
            ticket=Ticket(source, reply.generations, grant.at, grant.at + ask.guard, here),
        )

    refusal = reply.refusal
    return Answer(
        source=source,
        asked=asked,
        trip=received - asked,
        now=reply.now,
        used=reply.used,
        left=tuple(
            max(0, limit.most - used) for limit, used in zip(ask.limits, reply.used, strict=True)
        ),
        generations=reply.generations,
        hold=received + reply.hold - reply.now if reply.hold else 0,
        permits=tuple(permit(grant) for grant in reply.grants for _ in range(grant.requests)),
        refusal=refusal and Refusal(received + refusal.at - reply.now, refusal.window),
    )


def set_right(permit: Permit, answer: Answer) -> Permit:
    """A permit that was told before, by what a later answer of its store says of both clocks.

    The clock of a host drifts: by some ten seconds in a day, which is more than a guard.
    """
    early = answer.asked + permit.ticket.at - answer.now
    late = early + answer.trip
    if early <= permit.at <= late:
        return permit
    guard = permit.ticket.by - permit.ticket.at
    return replace(permit, at=late, expires=early + guard // 2 if guard else NEVER)
