"""Where windows live: this process (`memory`), or Redis (`redis`) with `share` for its absence.

The only place that knows redis and the scripts. A store has four verbs:

    reserve(ask) -> Answer      permits now, reservations with their time, or a refusal
    hold(key, wait)             nobody under this key sends for `wait` microseconds
    reset(key, limits)          forget what was sent
    close()

A store of the async colour may answer at once or be awaited; one that answers at once serves both.
"""

from __future__ import annotations

from collections.abc import Awaitable
from hashlib import blake2b
from typing import Protocol

from quotaclient._core.ask import Answer, Ask
from quotaclient._core.limits import Limit


class Store(Protocol):
    def reserve(self, ask: Ask) -> Answer: ...
    def hold(self, key: str, wait: int) -> None: ...
    def reset(self, key: str, limits: tuple[Limit, ...]) -> None: ...
    def close(self) -> None: ...


class AsyncStore(Protocol):
    def reserve(self, ask: Ask) -> Answer | Awaitable[Answer]: ...
    def hold(self, key: str, wait: int) -> Awaitable[None] | None: ...
    def reset(self, key: str, limits: tuple[Limit, ...]) -> Awaitable[None] | None: ...
    def close(self) -> Awaitable[None] | None: ...


def hashed(key: str) -> str:
    """What stands for a user's key in a store: 128 bits, so that no tenant is readable there."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
