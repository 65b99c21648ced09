"""Who waits: in order of arrival within a priority, the higher priority first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from quotaclient._core.ask import Permit, Refusal


@dataclass(frozen=True, slots=True)
class Refused:
    """A waiter is turned away. `hold` tells an upstream's hold from a window that is full."""

    refusal: Refusal
    source: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """Redis is away and nobody may decide in its place."""

    reason: str


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits for a permit. `deadline` is None for "however long".

    `outcome` is None while it waits. A waiter that left has `gone` set and gets none.
    """

    costs: tuple[int, ...]
    deadline: int | None
    priority: int = 0
    outcome: Permit | Refused | Undecided | None = None
    gone: bool = False

    @property
    def waiting(self) -> bool:
        return self.outcome is None and not self.gone


class WaitQueue:
    """The waiters of a lane. Who is settled or left is passed over, and dropped when met."""

    def __init__(self) -> None:
        self._by_priority: dict[int, deque[Waiter]] = {}
        self._units: dict[int, list[int]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length
