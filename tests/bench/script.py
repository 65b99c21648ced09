"""What the script costs Redis, beside a plain GCRA script in the same server.

python -m tests.bench.script

Microseconds are what INFO commandstats says of EVALSHA; both scripts take turns, and the medians
are compared, so that a busy host is busy for both. A server that sleeps between calls is slower at
each: where ours is called now and then, the plain script is measured at the pace at which requests
are admitted, too. Memory is what MEMORY USAGE says.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import redis
import redis.asyncio

from quotaclient import AsyncQuota, Limit
from quotaclient._core.ask import Ask, Group
from quotaclient._stores.scripts import RESERVE, reserve_args, reserve_keys
from quotaclient.testing import RedisServer

# KEYS: the theoretical arrival time. ARGV: emission interval and burst, in microseconds.
GCRA = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
if tat + interval - burst > now then return tat + interval - burst - now end
redis.call('SET', KEYS[1], string.format('%.0f', tat + interval), 'PX',
  math.ceil((tat + interval - now) / 1000))
return 0
"""
ROUNDS, CALLS = 7, 400
LIMITS = [(5, 0.05), (100, 1), (1000, 1), (10**6, 60), (10**6, 3600)]


class Bench:
    """Both scripts in one server."""

    def __init__(self, server: RedisServer, client: Any) -> None:
        self.server, self.client = server, client
        self.gcra = client.script_load(GCRA)
        client.script_load(RESERVE.text)

    def spent(self) -> float:
        """Microseconds in scripts since the server started."""
        stats = self.client.info("commandstats")
        return float(stats.get("cmdstat_evalsha", {}).get("usec", 0))

    def reserve(self, ask: Ask, now: int | None = None) -> Any:
        """One call of ours."""
        keys = reserve_keys("bench", ask)
        return self.client.evalsha(RESERVE.sha, len(keys), *keys, *reserve_args(ask, 0, now))

    def per_call(self, call: Callable[[], object]) -> float:
        """Microseconds a call."""
        before = self.spent()
        for _ in range(CALLS):
            call()
        return (self.spent() - before) / CALLS

    def per_admitted(self, clients: Sequence[Any], tasks: int, seconds: float) -> float:
        """Microseconds for each request that so many tasks of each client acquire."""

        async def fleet() -> int:
            until = time.monotonic() + seconds
            admitted = 0

            async def work(client: Any) -> None:
                nonlocal admitted
                while time.monotonic() < until:
                    await client.acquire()
                    admitted += 1

            await asyncio.gather(*(work(client) for client in clients for _ in range(tasks)))
            for client in clients:
                await client.aclose()
            return admitted

        before = self.spent()
        admitted = asyncio.run(fleet())
        return (self.spent() - before) / admitted

    def plain(self) -> float:
        """Microseconds a call of the plain script."""
        return self.per_call(self._call_plain)

    def paced(self, rate: float) -> float:
        """The same, called so often a second."""

        def call() -> None:
            self._call_plain()
            time.sleep(1 / rate)

        return self.per_call(call)

    def _call_plain(self) -> None:
        self.client.evalsha(self.gcra, 1, "gcra", 10, 60_000_000)


class Retrying:
    """A client that calls the plain script again and again, each time after the wait it says."""

    def __init__(self, bench: Bench, name: str, text: str) -> None:
        (limit,) = Limit.parse(text)
        self._call = (bench.gcra, 1, name, limit.period_us // limit.count, limit.period_us)
        pool = redis.asyncio.BlockingConnectionPool(port=bench.server.port, timeout=None)
        self._client = redis.asyncio.Redis.from_pool(pool)

    async def acquire(self) -> None:
        """Wait until it is admitted."""
        # To sleep and ask again is what others do, and what is measured.
        while wait := await self._client.evalsha(*self._call):  # noqa: ASYNC110
            await asyncio.sleep(wait / 1e6)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def alone(bench: Bench) -> None:
    """One window, nothing ahead: what fits goes, what does not is refused."""
    print("one window, nothing ahead          GCRA us   ours us   ratio")
    for count, period in LIMITS:
        limit = Limit(count, period)
        guard = round(period * 1e4)
        ask = Ask(f"{limit}", (limit,), "lane", guard, (Group(1, (1,)),), 0, greets=False)
        pairs = [
            (bench.plain(), bench.per_call(lambda ask=ask: bench.reserve(ask)))  # type: ignore[misc]
            for _ in range(ROUNDS)
        ]
        plain, ours = (median(column) for column in zip(*pairs, strict=True))
        print(f"  {limit!s:30} {plain:9.2f} {ours:9.2f} {ours / plain:7.2f}")


def contended(bench: Bench, lanes: int, tasks: int, text: str, seconds: float) -> None:
    """Saturated lanes: script time for each request that was admitted.

    Beside it that of one call of the plain script, back to back and at the pace of the limit, and
    of as many tasks that retry with it.
    """
    (limit,) = Limit.parse(text)
    name = f"fleet-{lanes}-{tasks}"
    quotas = [AsyncQuota(name, text, redis=bench.server.url) for _ in range(lanes)]
    ours = bench.per_admitted(quotas, tasks, seconds)
    crowd = bench.per_admitted([Retrying(bench, name, text) for _ in range(lanes)], tasks, seconds)
    plain, paced = bench.plain(), bench.paced(limit.count / limit.period)
    print(
        f"  {lanes:4} lanes x {tasks:3} on {text:8} {ours:9.2f}   {plain:5.2f}"
        f" ({ours / plain:5.2f})   {paced:5.2f} ({ours / paced:4.2f})"
        f"   {crowd:6.2f} ({ours / crowd:4.2f})"
    )


def memory(bench: Bench) -> None:
    """Bytes of a record and of the lanes beside it."""
    limit = Limit(10**6, 3600)
    key = reserve_keys("bench", Ask("million", (limit,), "", 0))[2]
    now = 10**12  # of our own, so that an hour passes quickly
    for i in range(10**6 // 200):
        ask = Ask("million", (limit,), "lane", 500_000, (Group(200, (1,)),))
        bench.reserve(ask, now + i * 720_000)
    print(f"  after 1,000,000 units at {limit}   {bench.client.memory_usage(key)} bytes")
    far = Limit(1, 1)
    key, lanes = reserve_keys("bench", Ask("far", (far,), "", 0))[2], 1000
    for i in range(lanes):
        bench.reserve(Ask("far", (far,), f"lane-{i:011}", 50_000, (Group(1, (1,)),)), now)
    print(f"  with 1,000 far reservations        {bench.client.memory_usage(key)} bytes")
    size = bench.client.memory_usage("bench:{far}:lanes", samples=0)
    print(f"  a lane beside it, of {lanes}         {size / lanes:.0f} bytes")


def main() -> None:
    """Print all of it."""
    logging.getLogger("quotaclient").setLevel(logging.ERROR)  # a hundred lanes' guards in one loop
    with RedisServer() as server, redis.Redis(port=server.port) as client:
        bench = Bench(server, client)
        alone(bench)
        print("contended, us per admitted request      ours   GCRA (ratio)    paced        retried")
        contended(bench, 6, 50, "500/s", 5)
        contended(bench, 6, 25, "100/s", 5)
        contended(bench, 10, 20, "500/s", 5)
        contended(bench, 100, 2, "500/s", 5)
        print("memory")
        memory(bench)


if __name__ == "__main__":
    main()
