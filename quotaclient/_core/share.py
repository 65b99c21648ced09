"""What one replica sent, and what it may send alone: its share of a limit while Redis is away.

The share is the same window with the limit divided by the replicas. It is warm from the start:
everything this replica was granted is in its own record, by whichever store. Times are whole
microseconds on the caller's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from quotaclient._core.account import Account, new_record, window_name
from quotaclient._core.ask import Answer, Ask, GiveBack, Group, Permit, Reply, Sent, localize
from quotaclient._core.bucket import BucketWindow
from quotaclient._core.limits import Limit
from quotaclient._core.window import Window


@dataclass(frozen=True, slots=True)
class NoShare:
    """Why a replica may send nothing alone."""

    reason: str


@lru_cache(maxsize=1024)
def share_of(limit: Limit, replicas: int) -> Limit | None:
    """The limit of one replica out of so many, rounded down: together they stay within."""
    count = limit.count // replicas
    burst = limit.burst and limit.burst // replicas
    return None if count == 0 or burst == 0 else replace(limit, count=count, burst=burst)


def divided(ask: Ask, replicas: int | None) -> tuple[Limit, ...] | NoShare:
    """The limits of one replica out of so many."""
    if replicas is None:
        return NoShare("how many replicas share the limit is not known: pass replicas=")
    shares: list[Limit] = []
    for i, limit in enumerate(ask.limits):
        share = share_of(limit, replicas)
        most = max((group.costs[i] for group in ask.groups), default=0)
        if share is None or share.most < most:
            return NoShare(
                f"one of {replicas} replicas may send {share.most if share else 0} of {limit}"
                f" without Redis, which does not allow a cost of {max(most, 1)}"
            )
        shares.append(share)
    return tuple(shares)


@dataclass(slots=True)
class OwnAccount(Account):
    """What this replica alone was granted under one key.

    `owed` is the part of it that the store does not know. `lives` are the generations of the
    store's records that know the rest, `told_at` when each was last asked, `kept` which of them
    were seen, after the last outage, to count ours still. `missed_reset`: windows that were reset
    while the store was away. `talks` are under way, one of them maybe `settling` all this.

    Buckets drain here at the rate of the share of one of so many `replicas`, whoever granted: only
    so do the levels of all add up to that of the bucket itself. None is above what that holds, or
    a replica that Redis lets have more than its share would owe for days.
    """

    owed: dict[str, Window] = field(default_factory=dict[str, Window])
    lives: dict[str, int] = field(default_factory=dict[str, int])
    told_at: dict[str, int] = field(default_factory=dict[str, int])
    kept: set[str] = field(default_factory=set[str])
    missed_reset: set[Limit] = field(default_factory=set[Limit])
    replicas: int = 1
    talks: int = 0
    settling: bool = False
    warned: bool = False  # that the store cannot use a record of this key

    def is_empty(self, now: int) -> bool:
        """Whether forgetting this account would change no answer."""
        # Not super(): it does not work in a dataclass with slots.
        return not (self.talks or self.missed_reset) and Account.is_empty(self, now)

    def take_back(self, returns: tuple[GiveBack, ...], limits: tuple[Limit, ...], now: int) -> None:
        """Permits, of whichever store, that will not be sent."""
        for ticket, costs in returns:
            here, by = ticket.here, ticket.here + ticket.by - ticket.at
            for limit, units in zip(limits, costs, strict=True):
                if not units:
                    continue
                own, owed = self._own(limit, now), self._owed(limit, now)
                own.give_back(own.generation, here, by, units, now)
                if ticket.source == "share":
                    owed.give_back(owed.generation, here, by, units, now)

    def owe(self, returns: tuple[GiveBack, ...], limits: tuple[Limit, ...], now: int) -> None:
        """What was sent on top of the store's permits, and the store could not be told."""
        for ticket, costs in returns:
            here, by = ticket.here, ticket.here + ticket.by - ticket.at
            for limit, units in zip(limits, costs, strict=True):
                if units < 0 and ticket.source == "store":
                    self._owed(limit, now).book_late(here, by, -units, now)

    def record(self, ask: Ask, permits: tuple[Permit, ...], now: int) -> None:
        """Count what was granted to this replica."""
        for i, limit in enumerate(ask.limits):
            window = self._own(limit, now)
            for permit in permits:
                if permit.costs[i]:
                    window.book(permit.at, permit.at + ask.guard, permit.costs[i], now)

    def told(self, ask: Ask, answer: Answer, now: int) -> None:
        """The store answered: what the ask told it is owed no more."""
        self.raise_hold(answer.hold)
        for limit, generation in zip(ask.limits, answer.generations, strict=True):
            name = window_name(limit)
            self.told_at[name] = now
            self.lives[name] = generation
            if ask.sent:
                self.owed.pop(name, None)

    def must_settle(self, ask: Ask, now: int, back_at: int | None) -> bool:
        """Whether a store that came back, or is about to (None), may have missed anything."""
        missed = back_at is None or any(
            self.told_at.get(window_name(limit), -1) < back_at for limit in ask.limits
        )
        return missed and self.has_news(ask, now)

    def reset_here(self, limits: tuple[Limit, ...], *, store_knows: bool) -> None:
        """Forget what was sent; a store that is away is told when it is back."""
        for limit in limits:
            self.window(limit).reset()
            self.owed.pop(window_name(limit), None)
        if not store_knows:
            self.missed_reset.update(limits)

    def has_news(self, ask: Ask, now: int) -> bool:
        """Whether a store that was away has missed, or may have lost, anything of ours."""
        sent = any(self._own(limit, now).runs for limit in ask.limits)
        return sent or bool(self.missed_reset) or self.hold > now

    def debts(self, ask: Ask, generations: tuple[int, ...], now: int) -> tuple[Sent, ...]:
        """What to tell a store that was away: all, where its record was lost, else what is owed."""
        sent: list[Sent] = []
        for i, (limit, generation) in enumerate(zip(ask.limits, generations, strict=True)):
            known = generation and generation == self.lives.get(window_name(limit))
            (self.kept.add if known else self.kept.discard)(window_name(limit))
            window = self._owed(limit, now) if known else self._own(limit, now)
            sent += (Sent(i, *one) for one in window.sends(now))
        return tuple(sent)

    def share(self, ask: Ask, limits: tuple[Limit, ...], now: int) -> Answer:
        """Decide alone, within the divided limits; the store will be told when it is back."""
        alone = replace(ask, limits=limits, returns=(), sent=())
        reply = self.reserve(alone, now, self.epoch)
        for grant in reply.grants:
            for limit, cost in zip(ask.limits, grant.costs, strict=True):
                if cost:
                    owed = self._owed(limit, now)
                    owed.book(grant.at, grant.at + ask.guard, grant.requests * cost, now)
        return localize(alone, reply, "share", now, now)

    def store_kept(self, ask: Ask) -> bool:
        """Whether the store that came back is known to have lost none of the records."""
        return self.kept.issuperset(map(window_name, ask.limits))

    def plan(self, ask: Ask, limits: tuple[Limit, ...], now: int) -> Reply:
        """What the share alone would grant; nothing of it stays booked."""
        reply = self.reserve(replace(ask, limits=limits, returns=(), sent=()), now, self.epoch)
        for grant in reply.grants:
            for limit, cost in zip(limits, grant.costs, strict=True):
                window = self.window(limit)
                by = grant.at + ask.guard
                window.give_back(window.generation, grant.at, by, grant.requests * cost, now)
        return reply

    def admit(self, ask: Ask, answer: Answer, limits: tuple[Limit, ...], now: int) -> Answer:
        """Of a store's permits keep those that the share allows too, and hand back the others."""
        kept: list[Permit] = []
        returned: list[GiveBack] = []
        for permit in answer.permits:
            if all(
                not cost
                or self.opened(limit, now).first_fit(permit.at, cost, limit.most, ask.guard)[0]
                == permit.at
                for limit, cost in zip(limits, permit.costs, strict=True)
            ):
                self.record(ask, (permit,), now)
                kept.append(permit)
            else:
                returned.append(GiveBack(permit.ticket, permit.costs))
        return replace(answer, permits=tuple(kept), returned=tuple(returned))

    def _own(self, limit: Limit, now: int) -> Window:
        """What was granted to this replica under a limit of all."""
        window = self.window(limit)
        if isinstance(window, BucketWindow):
            window.most = limit.most
        return self.opened(share_of(limit, self.replicas) or limit, now)

    def _owed(self, limit: Limit, now: int) -> Window:
        """The part of it that the store does not know."""
        window = self.owed.setdefault(window_name(limit), new_record(limit))
        window.open(share_of(limit, self.replicas) or limit, now, self.epoch)
        return window


def narrowed(ask: Ask, plan: Reply) -> Ask:
    """The ask for what a plan grants, each part not before the plan's own time."""
    groups = (
        Group(grant.requests, grant.costs, max(0, grant.at - plan.now)) for grant in plan.grants
    )
    return replace(ask, groups=tuple(groups))


def postponed(ask: Ask, wait: int) -> Ask:
    """The ask for nothing before so many microseconds from now."""
    groups = (group._replace(after=max(group.after, wait)) for group in ask.groups)
    return replace(ask, groups=tuple(groups))
