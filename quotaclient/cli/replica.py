"""One replica of the demo: a process of its own with more work than quota."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from multiprocessing.connection import Connection
from time import monotonic

import httpx

from quotaclient import AsyncQuotaClient, Decision, Limit

WORKERS = 25  # tasks that send one request after the other
TICK = 0.25  # seconds between two reports
PAUSE = 0.25  # seconds after an error, so that a replica that may not send does not spin


@dataclass(frozen=True, slots=True)
class Orders:
    """What one replica is to do. `redis`: a URL, or None for a window in its own process."""

    number: int
    url: str
    limit: Limit
    redis: str | None
    replicas: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What a replica has done so far.

    `sent`: requests answered with success; `by_redis`: those of them that Redis admitted.
    `waiting`: tasks whose request has no answer yet. `refused`: answers 429. `errors`: everything
    else; `fault` is the first. `source`: who admitted the latest request ("store", "share",
    "local", or "" before the first). `notes`: warnings logged since the last report.
    """

    sent: int = 0
    by_redis: int = 0
    waiting: int = 0
    refused: int = 0
    errors: int = 0
    fault: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    done: bool = False


def run(orders: Orders, pipe: Connection) -> None:
    """Be a replica: report once when ready, be told for how many seconds to work, work, report.

    Without a parent to report to, it ends.
    """
    with pipe, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        asyncio.run(_Replica(orders, pipe).live())


class _Replica:
    def __init__(self, orders: Orders, pipe: Connection) -> None:
        self._orders = orders
        self._pipe = pipe
        self._notes = _Notes()
        self._sent = self._by_redis = self._waiting = self._refused = self._errors = 0
        self._fault = self._source = ""
        logging.getLogger().addHandler(self._notes)

    async def live(self) -> None:
        orders = self._orders
        async with AsyncQuotaClient(
            orders.url,
            limit=orders.limit,
            redis=orders.redis,
            replicas=orders.replicas,
            max_wait=None,  # there is always more work than quota: patience is all it has
            headers={"x-replica": str(orders.number)},
        ) as client:
            self._report()
            seconds: float = self._pipe.recv()
            until = monotonic() + seconds
            workers = [asyncio.create_task(self._work(client)) for _ in range(WORKERS)]
            try:
                while (left := until - monotonic()) > 0:
                    await asyncio.sleep(min(TICK, left))
                    self._report()
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.wait(workers)
        self._report(done=True)

    async def _work(self, client: AsyncQuotaClient) -> None:
        while True:
            self._waiting += 1
            try:
                self._count(await client.get("/items"))
            except Exception as error:  # whatever it is, the table is to show it
                self._failed(repr(error))
                await asyncio.sleep(PAUSE)
            finally:
                self._waiting -= 1

    def _count(self, response: httpx.Response) -> None:
        decision: Decision = response.extensions["quota"]
        self._source = decision.source
        # The client resends after a 429: all its sends but the last were refused.
        self._refused += decision.attempts - 1
        if response.is_success:
            self._sent += 1
            self._by_redis += decision.source == "store"
        elif response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            self._refused += 1
        else:
            self._failed(f"the upstream answered {response.status_code}")

    def _failed(self, fault: str) -> None:
        self._errors += 1
        self._fault = self._fault or fault

    def _report(self, *, done: bool = False) -> None:
        progress = Progress(
            sent=self._sent,
            by_redis=self._by_redis,
            waiting=self._waiting,
            refused=self._refused,
            errors=self._errors,
            fault=self._fault,
            source=self._source,
            notes=self._notes.take(),
            done=done,
        )
        self._pipe.send(progress)


class _Notes(logging.Handler):
    """Keeps warnings for the next report: written to stderr they would run into the live view."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._texts.append(record.getMessage() + (f": {error!r}" if error else ""))

    def take(self) -> tuple[str, ...]:
        texts, self._texts = self._texts, []
        return tuple(texts)
