"""One thread of this process that looks after sync lanes in which nobody waits.

A permit that was asked for ahead of need goes back when it expires, also when no thread comes
along any more. The thread is there only while something is due; it never keeps a process alive.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count

from quotaclient._core.ask import SECOND
from quotaclient._stores.memory import clock

log = logging.getLogger("quotaclient")


class Timekeeper:
    """Calls functions at their instants (on `clock`)."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._running = False

    def at(self, instant: int, call: Callable[[], None]) -> None:
        """Call a function once, not before an instant."""
        with self._changed:
            heappush(self._due, (instant, next(self._numbers), call))
            if self._running:
                self._changed.notify()
                return
            with suppress(RuntimeError):  # the interpreter is ending: what is held ends with it
                threading.Thread(target=self._run, name="quotaclient", daemon=True).start()
                self._running = True

    def _run(self) -> None:
        while (call := self._next()) is not None:
            try:
                call()
            except Exception:  # a fault of ours: the other lanes are not to suffer from it
                log.exception("looking after an idle lane failed")

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while self._due:
                instant, _, call = self._due[0]
                wait = instant - clock()
                if wait <= 0:
                    heappop(self._due)
                    return call
                self._changed.wait(wait / SECOND)
            self._running = False
            return None

    def forget_all(self) -> None:
        """Start afresh: threads are not copied by a fork."""
        self.__init__()  # type: ignore[misc]


timekeeper = Timekeeper()

if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=timekeeper.forget_all)
