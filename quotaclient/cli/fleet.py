"""The replica processes of the demo, and the signals that end it: nothing is ever left behind."""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import wait
from types import FrameType
from typing import Self

from quotaclient.cli.replica import Orders, Progress, run

_END_DEADLINE = 5.0  # seconds for a replica that is done to end its interpreter


class Interrupted(Exception):
    """Ctrl-C or SIGTERM came. `code`: the exit code that says so."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


class ReplicaLost(Exception):
    """A replica ended before its time."""


class Signals:
    """Notes Ctrl-C and SIGTERM; `check()` obeys them.

    An exception out of a handler could strike between the start of a process and the line that
    remembers it, and the process would stay. The places that check are at most a second apart.
    """

    def __init__(self) -> None:
        self._noted = 0

    def __enter__(self) -> Self:
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self._noted:
            raise Interrupted(self._noted)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._noted = self._noted or number


class Fleet:
    """One process for each of `orders`, and what each has last reported, in `progress`.

    A context manager: the processes are started on entry and gone after the exit.
    """

    def __init__(self, orders: Sequence[Orders]) -> None:
        self._replicas = [_Replica(order) for order in orders]

    def __enter__(self) -> Self:
        # Now, because it unblocks SIGINT when the first process starts, up to Python 3.11.
        resource_tracker.ensure_running()
        try:
            with _sigint_blocked():
                for replica in self._replicas:
                    replica.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def progress(self) -> list[Progress]:
        """The latest report of each replica."""
        return [replica.progress for replica in self._replicas]

    @property
    def ready(self) -> bool:
        """Whether every replica has reported at least once."""
        return all(replica.ready for replica in self._replicas)

    @property
    def running(self) -> bool:
        """Whether any replica still works."""
        return any(not replica.progress.done for replica in self._replicas)

    def go(self, seconds: float) -> None:
        """Let all of them work for so many seconds."""
        for replica in self._replicas:
            replica.go(seconds)

    def listen(self, timeout: float) -> list[tuple[str, str]]:
        """Take the reports that come within `timeout` seconds; return who noted what in them.

        Raises ReplicaLost when a replica has ended without being done.
        """
        at_work = [replica for replica in self._replicas if not replica.progress.done]
        heard = wait([replica.pipe for replica in at_work], timeout)
        return [note for replica in at_work if replica.pipe in heard for note in replica.hear()]

    def _end(self) -> None:
        for replica in self._replicas:
            replica.end()


class _Replica:
    """Our side of one replica: its process and the pipe to it."""

    def __init__(self, orders: Orders) -> None:
        context = get_context("spawn")
        self.pipe, self._theirs = context.Pipe()
        self._name = f"replica {orders.number}"
        # A daemon: however this interpreter ends, multiprocessing ends the process before.
        self._process = context.Process(target=run, args=(orders, self._theirs), daemon=True)
        self.progress = Progress()
        self.ready = False

    def start(self) -> None:
        self._process.start()
        self._theirs.close()  # else we would not see the end of the other one

    def go(self, seconds: float) -> None:
        try:
            self.pipe.send(seconds)
        except OSError:
            raise self._lost() from None

    def hear(self) -> list[tuple[str, str]]:
        try:
            self.progress = self.pipe.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        self.ready = True
        return [(self._name, note) for note in self.progress.notes]

    def end(self) -> None:
        """Await the end of a replica that is done, or kill it: it holds nothing but sockets."""
        self.pipe.close()
        self._theirs.close()
        if self._process.pid is None:
            return
        if self.progress.done:
            self._process.join(_END_DEADLINE)
        self._process.kill()
        self._process.join()

    def _lost(self) -> ReplicaLost:
        self._process.join(_END_DEADLINE)
        return ReplicaLost(
            f"{self._name} ended before its time, with exit code {self._process.exitcode}"
        )


@contextmanager
def _sigint_blocked() -> Generator[None]:
    """Processes started inside keep SIGINT blocked: the terminal's Ctrl-C is ours to obey.

    From their first instruction on, so that none prints a traceback out of its imports. A Ctrl-C
    that we get meanwhile comes at the end of the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
