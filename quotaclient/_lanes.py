"""The lanes of a client, made as they are needed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar
from uuid import uuid4

from quotaclient._async_lane import AsyncLane
from quotaclient._core.guard import Guard
from quotaclient._core.lane import Lane
from quotaclient._core.limits import Limit
from quotaclient._settings import Settings
from quotaclient._stores import hashed
from quotaclient._sync_lane import SyncLane

LANES_KEPT = 1024  # lanes that are remembered while nobody uses them

AnyLane = TypeVar("AnyLane", SyncLane, AsyncLane)


class Lanes(Generic[AnyLane]):
    """The lanes of one client on one loop (or in its threads).

    Requests share a lane when they draw on the same windows under the same key: who waits for
    one window does not keep back who does not draw on it.
    """

    def __init__(self, settings: Settings, shell: Callable[[Lane], AnyLane]) -> None:
        self._settings = settings
        self._shell: Callable[[Lane], AnyLane] = shell
        self._name = uuid4().hex[:16]
        self._lanes: dict[tuple[str, tuple[Limit, ...], tuple[bool, ...]], AnyLane] = {}
        self._guards: dict[tuple[Limit, ...], Guard] = {}
        self._sweep_at = LANES_KEPT
        self._lock = threading.Lock()

    def of(self, key: str, limits: tuple[Limit, ...], costs: tuple[int, ...]) -> AnyLane:
        """The lane for a request of these costs under these limits."""
        drawn = tuple(map(bool, costs))  # one that draws on nothing obeys holds, and nobody else
        lane = self._lanes.get((key, limits, drawn))
        return lane if lane is not None else self._make(key, limits, drawn)

    def forget(self, key: str) -> None:
        """The windows under a key were emptied."""
        for shell in self._under(key):
            shell.lane.forget()

    def spare(self, key: str) -> Counter[Limit]:
        """The units in hand that nobody waits for, and those that go back."""
        units: Counter[Limit] = Counter()
        for shell in self._under(key):
            units.update(dict(zip(shell.lane.limits, shell.lane.spare, strict=False)))
        return units

    def _under(self, key: str) -> list[AnyLane]:
        return [shell for (other, *_), shell in list(self._lanes.items()) if other == key]

    def empty(self) -> list[AnyLane]:
        """All lanes, to be closed."""
        with self._lock:
            lanes, self._lanes = list(self._lanes.values()), {}
        return lanes

    def _make(self, key: str, limits: tuple[Limit, ...], drawn: tuple[bool, ...]) -> AnyLane:
        with self._lock:
            if len(self._lanes) >= self._sweep_at:
                self._lanes = {at: one for at, one in self._lanes.items() if not one.lane.idle}
                self._sweep_at = max(LANES_KEPT, 2 * len(self._lanes))
            if limits not in self._guards:
                self._guards[limits] = Guard(limits, self._settings.guard)
            lane = Lane(hashed(key), limits, self._name, self._guards[limits])
            return self._lanes.setdefault((key, limits, drawn), self._shell(lane))
