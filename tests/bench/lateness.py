"""How late `acquire` returns after the instant its permit names, beside a bare sleep until then.

python -m tests.bench.lateness     limit 20/0.2s, in process and with Redis, tasks and threads

The instant is the permit's own, read where a lane hands it out; who came later than that could not
leave before he came. Then as many tasks (or threads) sleep until the same instants, relative to the
start, and nothing else: what they are late is the machine's and the event loop's doing. Both take
turns in one process. Nobody may ever leave before the instant: the earliest is printed too.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from quotaclient import AsyncQuota, Limit, Quota
from quotaclient._async_lane import AsyncLane
from quotaclient._core.ask import SECOND, Permit
from quotaclient._core.queue import Outcome
from quotaclient._stores.memory import clock
from quotaclient._sync_lane import SyncLane
from quotaclient.testing import RedisServer
from tests.bench.measures import print_table, quantile

Departures = tuple[list[int], list[int]]
"""When one after the other might leave, and when he did; microseconds."""


@contextmanager
def _watched(due: list[int], left: list[int]) -> Iterator[None]:
    """Write down when each permit could be used, and when the lane gave it out."""
    whole, whole_sync = AsyncLane.acquire, SyncLane.acquire

    def note(outcome: Outcome, entered: int) -> Outcome:
        if isinstance(outcome, Permit):
            left.append(clock())
            due.append(max(outcome.at, entered))
        return outcome

    async def acquire(
        lane: AsyncLane,
        costs: tuple[int, ...],
        deadline: int | None,
        priority: int,
        *,
        in_front: bool = False,
    ) -> Outcome:
        entered = clock()
        return note(await whole(lane, costs, deadline, priority, in_front=in_front), entered)

    def sync_acquire(
        lane: SyncLane,
        costs: tuple[int, ...],
        deadline: int | None,
        priority: int,
        *,
        in_front: bool = False,
    ) -> Outcome:
        entered = clock()
        return note(whole_sync(lane, costs, deadline, priority, in_front=in_front), entered)

    with (
        patch.object(AsyncLane, "acquire", acquire),
        patch.object(SyncLane, "acquire", sync_acquire),
    ):
        yield


def _in_threads(works: list[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def tasks_turn(limit: Limit, number: int, redis: str | None) -> Departures:
    """So many tasks wait for an AsyncQuota."""
    due: list[int] = []
    left: list[int] = []

    async def run() -> None:
        async with AsyncQuota("tasks", limit, redis=redis, max_wait=None) as quota:
            await asyncio.gather(*(quota.acquire() for _ in range(number)))

    with _watched(due, left):
        asyncio.run(run())
    return due, left


def threads_turn(limit: Limit, number: int, redis: str | None) -> Departures:
    """So many threads wait for a Quota."""
    due: list[int] = []
    left: list[int] = []
    with (
        _watched(due, left),
        Quota("threads", limit, redis=redis, max_wait=None) as quota,
    ):
        _in_threads([quota.acquire] * number)
    return due, left


def sleeping_tasks(offsets: list[int]) -> Departures:
    """As many tasks sleep until so many microseconds from now."""
    due: list[int] = []
    left: list[int] = []

    async def run() -> None:
        start = clock()

        async def sleep(until: int) -> None:
            await asyncio.sleep((until - clock()) / SECOND)
            left.append(clock())
            due.append(until)

        await asyncio.gather(*(sleep(start + offset) for offset in offsets))

    asyncio.run(run())
    return due, left


def sleeping_threads(offsets: list[int]) -> Departures:
    """The same with threads."""
    due: list[int] = []
    left: list[int] = []
    start = clock()

    def sleep(until: int) -> None:
        time.sleep(max(0, until - clock()) / SECOND)
        left.append(clock())
        due.append(until)

    _in_threads([partial(sleep, start + offset) for offset in offsets])
    return due, left


def measure(
    waits: Callable[[Limit, int, str | None], Departures],
    sleeps: Callable[[list[int]], Departures],
    redis: str | None,
    options: argparse.Namespace,
) -> dict[str, str]:
    """Let a quota and bare sleeps take turns."""
    (limit,) = Limit.parse(options.limit)
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(options.turns):
        due, left = waits(limit, options.waiters, redis)
        ours += (b - a for a, b in zip(due, left, strict=True))
        begin = min(due) - SECOND // 100  # time for the sleepers to lie down
        due, left = sleeps([at - begin for at in due])
        bare += (b - a for a, b in zip(due, left, strict=True))
    p99, sleep_p99 = quantile(ours, 0.99), quantile(bare, 0.99)
    return {
        "p99 late / p99 of a bare sleep": f"{p99 / sleep_p99:.2f}",
        "p99 late, ms": f"{p99 / 1000:.2f}",
        "p99 of a bare sleep, ms": f"{sleep_p99 / 1000:.2f}",
        "median late / median of a bare sleep": (
            f"{quantile(ours, 0.5) / max(1, quantile(bare, 0.5)):.2f}"
        ),
        "earliest, ms (never below 0)": f"{min(ours) / 1000:.3f}",
        "early": str(sum(late < 0 for late in ours)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--limit", default="20/0.2s")
    parser.add_argument("--waiters", type=int, default=100, help="in a turn")
    parser.add_argument("--turns", type=int, default=8)
    options = parser.parse_args()
    with RedisServer() as server:
        print_table(
            {
                f"{colour}, {place}": measure(waits, sleeps, redis, options)
                for colour, waits, sleeps in (
                    ("tasks", tasks_turn, sleeping_tasks),
                    ("threads", threads_turn, sleeping_threads),
                )
                for place, redis in (("in process", None), ("with Redis", server.url))
            }
        )


if __name__ == "__main__":
    main()
