"""Ten thousand tasks wait for one quota: do they cost time that the limit does not, or a core?

python -m tests.bench.waiters      limit 2000/s, in process and with Redis

The limit gives a full period's units at once and as many after every further period, so that
10,000 of 2000/s take 4 s at best; with quotaclient's guard, 4 x 1.05 s.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time

from quotaclient import AsyncQuota, Limit
from quotaclient.testing import RedisServer
from tests.bench.fleet import script_calls
from tests.bench.measures import print_table


async def measure(limit: Limit, waiters: int, server: RedisServer | None) -> dict[str, str]:
    """Let all of them wait at once, and see the last one through."""
    times: list[float] = []
    best = (math.ceil(waiters / limit.count) - 1) * limit.period
    redis = server.url if server else None
    async with AsyncQuota("bench", limit, redis=redis, max_wait=None) as quota:

        async def wait() -> None:
            await quota.acquire()
            times.append(time.perf_counter() - since)

        since, spent = time.perf_counter(), time.process_time()
        await asyncio.gather(*(wait() for _ in range(waiters)))
        took, spent = time.perf_counter() - since, time.process_time() - spent
    return {
        "time taken / what the limit gives": f"{took / best:.3f}",
        "CPU time / time taken": f"{spent / took:.1%}",
        "CPU µs / waiter": f"{spent / waiters * 1e6:.0f}",
        "first served / period": f"{min(times) / limit.period:.3f}",
        "script runs / waiter": f"{script_calls(server) / waiters:.4f}" if server else "-",
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--limit", default="2000/s")
    parser.add_argument("--waiters", type=int, default=10_000, help="more than the limit's count")
    options = parser.parse_args()
    (limit,) = Limit.parse(options.limit)
    with RedisServer() as server:
        print_table(
            {
                "in process": asyncio.run(measure(limit, options.waiters, None)),
                "with Redis": asyncio.run(measure(limit, options.waiters, server)),
            }
        )


if __name__ == "__main__":
    main()
