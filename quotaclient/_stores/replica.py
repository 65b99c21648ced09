"""This process as one of a fleet whose Redis may be away.

    closed      Redis decides; what it grants is recorded here
    open        the share decides (or nobody: on_outage="reject")
    returning   for the longest period plus the longest back-off after Redis is back, both must
                agree: until then others may still be on their shares

One `Replica` per Redis and process holds the circuit and this process's own sends, for all its
clients. A `Fallback` is one client's way of talking to that Redis: its `talk` decides what to
ask next, and the stores in `outage.py` carry the questions.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Generator
from dataclasses import dataclass, replace

from quotaclient._core.ask import Answer, Ask
from quotaclient._core.health import LONGEST_BACKOFF, Circuit
from quotaclient._core.limits import Limit
from quotaclient._core.options import OnOutage
from quotaclient._core.share import NoShare, OwnAccount, divided, narrowed, postponed
from quotaclient._stores.memory import Accounts, clock, epoch
from quotaclient._stores.redis import (
    RecordFault,
    StoreDown,
)


@dataclass(frozen=True, slots=True)
class Hold:
    """Tell the store of a hold that it missed; `wait` in microseconds from now."""

    key: str
    wait: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Tell the store of a reset that it missed."""

    key: str
    limits: tuple[Limit, ...]


Question = Ask | Hold | Reset
Talk = Generator[Question, Answer | None, Answer]

log = logging.getLogger("quotaclient")


class Replica:
    """This process as one of the fleet that shares a Redis."""

    _everywhere: dict[tuple[str, str], Replica] = {}  # noqa: RUF012 - one per Redis and prefix

    def __init__(self, server: str) -> None:
        self.server = server
        self.circuit = Circuit()
        self.accounts = Accounts(OwnAccount)
        self.lock = self.accounts.lock

    @classmethod
    def of(cls, server: str, prefix: str) -> Replica:
        return cls._everywhere.setdefault((server, prefix), cls(server))

    def failed(self, ticket: int, error: StoreDown, on_outage: OnOutage) -> None:
        if self.circuit.failed(ticket, clock(), random.random()):
            log.warning(
                "Redis at %s is away (%.120s): %s until it is back",
                self.server,
                error,
                "this replica keeps to its share" if on_outage == "share" else "rejecting",
            )

    def succeeded(self, ticket: int) -> None:
        if self.circuit.succeeded(ticket, clock()):
            for account in self.accounts.values():
                account.kept.clear()
            log.warning("Redis at %s is back: the quota is shared again", self.server)

    def returning_for(self, ask: Ask, now: int) -> int:
        """How much longer others may still be on their shares, or their sends not be told."""
        if self.circuit.back_at is None:
            return 0
        longest = max(limit.reach_us for limit in ask.limits)
        return max(0, self.circuit.back_at + longest + LONGEST_BACKOFF - now)

    @classmethod
    def _forget_all(cls) -> None:
        cls._everywhere.clear()


# What a parent sent is not its child's; nor are its locks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Replica._forget_all)


class Fallback:
    """One client's way of talking to a Redis that may be away."""

    def __init__(self, server: str, prefix: str, replicas: int | None, on_outage: OnOutage) -> None:
        self.replica = Replica.of(server, prefix)
        self.replicas = replicas
        self.on_outage: OnOutage = on_outage

    def talk(self, ask: Ask) -> Talk:
        """Yield what to ask the store, be sent its answers (or StoreDown), return the answer."""
        replica = self.replica
        with replica.lock:
            now = clock()
            account = replica.accounts[ask.key]
            account.epoch, account.replicas = epoch(), self.replicas or 1
            account.take_back(ask.returns, ask.limits, now)
            back_at = replica.circuit.back_at if replica.circuit.closed else None
            settles = (back_at is not None or not replica.circuit.closed) and account.must_settle(
                ask, now, back_at
            )
            # What is owed is told once: until that is done the others keep to the share.
            busy = settles and account.settling
            ticket = None if busy else replica.circuit.admits(now)
            if ticket is None:
                return self._alone(ask, account)
            account.talks += 1
            account.settling = account.settling or settles
        try:
            asked = _for_the_store(ask)
            if settles:
                asked = yield from self._settle(asked, account, ticket)
            return (yield from self._together(asked, account, ticket))
        except RecordFault as error:  # of this key alone: the server is well
            with replica.lock:
                replica.succeeded(ticket)
                if not account.warned:  # it will not heal by itself; once is enough
                    account.warned = True
                    log.warning("a record in Redis cannot be used, delete it: %.200s", error)
                return self._alone(ask, account)
        except StoreDown as error:
            with replica.lock:
                replica.failed(ticket, error, self.on_outage)
                return self._alone(ask, account)
        finally:
            with replica.lock:
                replica.circuit.gave_up(ticket)
                account.talks -= 1
                account.settling = account.settling and not settles

    def _settle(
        self, ask: Ask, account: OwnAccount, ticket: int
    ) -> Generator[Question, Answer | None, Ask]:
        """Bring a store that was away up to date; the ask with all that it is to book."""
        replica = self.replica
        with replica.lock:
            resets, account.missed_reset = account.missed_reset, set()
        if resets:
            try:
                yield Reset(ask.key, tuple(resets))
            except BaseException:
                account.missed_reset |= resets
                raise
        look = yield replace(ask, groups=(), returns=())
        assert look is not None  # asks are answered
        with replica.lock:
            replica.succeeded(ticket)
            now = clock()
            ask = replace(ask, sent=account.debts(ask, look.generations, now))
            hold = account.hold if account.hold > max(now, look.hold) else 0
        if hold:
            yield Hold(ask.key, hold - now)
        return ask

    def _together(self, ask: Ask, account: OwnAccount, ticket: int) -> Talk:
        """The store decides; while the fleet is returning, the share must agree."""
        replica = self.replica
        shares: tuple[Limit, ...] | NoShare | None = None
        returning = replica.returning_for(ask, clock()) if ask.groups else 0
        if returning and self.on_outage == "share" and self.replicas is not None:
            shares = divided(ask, self.replicas)
            # A share of nothing binds too, unless the store is known to have lost nothing.
            if isinstance(shares, NoShare) and not account.store_kept(ask):
                ask = postponed(ask, returning)
        if shares is None or isinstance(shares, NoShare):
            answer = yield ask
            assert answer is not None
            with replica.lock:
                account.record(ask, answer.permits, clock())
                account.told(ask, answer, clock())
                replica.succeeded(ticket)
            return answer
        with replica.lock:
            plan = account.plan(ask, shares, clock())
        answer = yield narrowed(ask, plan)
        assert answer is not None
        with replica.lock:
            account.told(ask, answer, clock())
            replica.succeeded(ticket)
            kept = account.admit(ask, answer, shares, clock())
        return replace(kept, refusal=kept.refusal or plan.refusal)

    def _alone(self, ask: Ask, account: OwnAccount) -> Answer:
        """What this replica decides without the store; under its lock."""
        now = clock()
        account.owe(ask.returns, ask.limits, now)
        if self.on_outage == "reject":
            return Answer("share", now, outage=f"Redis at {self.replica.server} is away")
        limits = divided(ask, self.replicas)
        if isinstance(limits, NoShare):
            reason = f"Redis at {self.replica.server} is away, and {limits.reason}"
            return Answer("share", now, outage=reason)
        return account.share(ask, limits, now)

    def held(self, key: str, wait: int) -> int | None:
        """Keep a hold here too; a ticket to tell the store, if it is there."""
        with self.replica.lock:
            self.replica.accounts[key].raise_hold(clock() + wait)
            return self._ticket()

    def forgotten(self, key: str, limits: tuple[Limit, ...]) -> int | None:
        """Reset here too; a ticket to tell the store, if it is there."""
        with self.replica.lock:
            ticket = self._ticket()
            self.replica.accounts[key].reset_here(limits, store_knows=ticket is not None)
            return ticket

    def _ticket(self) -> int | None:
        circuit = self.replica.circuit
        return circuit.admits(clock()) if circuit.closed else None

    def not_forgotten(
        self, ticket: int, key: str, limits: tuple[Limit, ...], error: StoreDown
    ) -> None:
        """The store could not be told of a reset."""
        self.lost(ticket, error)
        with self.replica.lock:
            self.replica.accounts[key].missed_reset.update(limits)

    def lost(self, ticket: int, error: StoreDown) -> None:
        """The store could not be told of something."""
        if not isinstance(error, RecordFault):
            with self.replica.lock:
                self.replica.failed(ticket, error, self.on_outage)


def _for_the_store(ask: Ask) -> Ask:
    returns = (returned for returned in ask.returns if returned.ticket.source == "store")
    return replace(ask, returns=tuple(returns))
