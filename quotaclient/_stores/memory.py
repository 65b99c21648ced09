"""Windows in this process: shared by all its clients, of either colour, with the same key.

They outlive the clients until they are empty: closing a client and making a new one does not
give its quota twice.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from time import monotonic_ns, time_ns
from typing import Generic, TypeVar

from quotaclient._core.account import Account
from quotaclient._core.ask import Answer, Ask, localize
from quotaclient._core.limits import Limit

AnyAccount = TypeVar("AnyAccount", bound=Account)

SWEEP_FROM = 1024  # accounts: below this, looking for empty ones costs more than it frees


def clock() -> int:
    """This host's monotonic clock in whole microseconds: the caller's clock everywhere."""
    return monotonic_ns() // 1000


def wall() -> int:
    """The time in UTC, in microseconds; it jumps when the host's clock is set."""
    return time_ns() // 1000


def epoch() -> int:
    """What to add to `clock()` to get the time in UTC."""
    return wall() - clock()


class Accounts(Generic[AnyAccount]):
    """Accounts by key; empty ones are dropped whenever their number has doubled.

    `lock` is held around every use of an account.
    """

    def __init__(self, kind: type[AnyAccount]) -> None:
        # Reentrant: what is collected while a thread holds it may have to take it again.
        self.lock = threading.RLock()
        self._kind = kind
        self._by_key: dict[str, AnyAccount] = {}
        self._sweep_at = SWEEP_FROM

    def __len__(self) -> int:
        return len(self._by_key)

    def __getitem__(self, key: str) -> AnyAccount:
        account = self._by_key.get(key)
        if account is None:
            if len(self._by_key) >= self._sweep_at:
                self._sweep(clock())
            account = self._by_key[key] = self._kind()
        return account

    def values(self) -> Iterable[AnyAccount]:
        return self._by_key.values()

    def _sweep(self, now: int) -> None:
        self._by_key = {
            key: account for key, account in self._by_key.items() if not account.is_empty(now)
        }
        self._sweep_at = max(SWEEP_FROM, 2 * len(self._by_key))


class MemoryStore:
    """The store of `redis=None`. It answers at once, so it serves both colours."""

    _everywhere: dict[str, Accounts[Account]] = {}  # noqa: RUF012 - shared on purpose, see the module

    def __init__(self, prefix: str) -> None:
        self._accounts = self._everywhere.setdefault(prefix, Accounts(Account))

    def reserve(self, ask: Ask) -> Answer:
        with self._accounts.lock:
            now = clock()
            reply = self._accounts[ask.key].reserve(ask, now, epoch())
        return localize(ask, reply, "local", now, now)

    def hold(self, key: str, wait: int) -> None:
        with self._accounts.lock:
            self._accounts[key].raise_hold(clock() + wait)

    def reset(self, key: str, limits: tuple[Limit, ...]) -> None:
        with self._accounts.lock:
            for limit in limits:
                self._accounts[key].window(limit).reset()

    def close(self) -> None:
        """Nothing to close: the windows stay."""

    @classmethod
    def _forget_locks(cls) -> None:
        for accounts in cls._everywhere.values():
            accounts.lock = threading.RLock()


# A fork copies windows and locks as they are; a lock that another thread held would never open.
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=MemoryStore._forget_locks)
