"""What Redis keeps and works for a limit of which much is used: many units, no requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import redis as redis_sync

from quotaclient import Limit
from quotaclient.testing import RedisServer
from tests.bench.fleet import script_stats
from tests.bench.peers import CONTENDERS

AT_ONCE = 20  # tasks, so that no limiter waits for its own round trips


@dataclass(frozen=True)
class Kept:
    """After so many `units`: `bytes` of all keys, and microseconds per script run on the way."""

    units: int
    bytes: int
    script_micros: float


async def _spend(kind: str, redis: str, limit: Limit, units: int) -> None:
    async with CONTENDERS[kind].open(redis, limit) as gate:

        async def work() -> None:
            for _ in range(units // AT_ONCE):
                await gate.acquire()

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def measure(kind: str, units: int) -> Kept:
    """Spend so many units of a limit ten times as large, and look at what is there."""
    limit = Limit(10 * units, 60)
    with RedisServer() as server:
        asyncio.run(_spend(kind, server.url, limit, units))
        calls, micros = script_stats(server)
        with redis_sync.Redis(port=server.port) as client:
            # SAMPLES 0: every element is weighed, not five of them
            sizes: list[Any] = [client.memory_usage(key, samples=0) for key in client.scan_iter()]
    return Kept(units, sum(size or 0 for size in sizes), micros / calls)
