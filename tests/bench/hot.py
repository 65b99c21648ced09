"""What a permit costs while there is quota: the time of a request over that of a bare httpx client.

python -m tests.bench.hot          both clients, in process and with Redis, limit 1,000,000/min

One request after the other, all clients in one process against one server, taking turns in blocks,
so that whatever the machine does meanwhile happens to all.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain
from statistics import median, quantiles

import httpx

from quotaclient import AsyncQuotaClient, QuotaClient
from quotaclient.testing import RedisServer
from tests.bench.fleet import script_calls
from tests.bench.lean import lean_server
from tests.bench.measures import print_table

LIMIT = "1000000/min"

Send = Callable[[int], Awaitable[list[float]]]
"""Sends so many requests, one after the other; the seconds that each took."""


def sender(client: httpx.AsyncClient) -> Send:
    """Requests of an async client."""

    async def send(number: int) -> list[float]:
        times = []
        for _ in range(number):
            since = time.perf_counter()
            (await client.get("/")).raise_for_status()
            times.append(time.perf_counter() - since)
        return times

    return send


def sync_sender(client: httpx.Client) -> Send:
    """Requests of a sync client; the event loop stands still meanwhile."""

    async def send(number: int) -> list[float]:
        times = []
        for _ in range(number):
            since = time.perf_counter()
            client.get("/").raise_for_status()  # noqa: ASYNC212 - nobody else is on this loop
            times.append(time.perf_counter() - since)
        return times

    return send


@dataclass(frozen=True)
class Timing:
    """The times of one client over those of its baseline.

    `ratio`: of the medians of a turn, the median of all turns; `quartiles`: of the same. A machine
    that is slower for some turns is so for both. `median`: seconds, of all requests. `requests`:
    sent in all, also to warm up.
    """

    ratio: float
    quartiles: tuple[float, float]
    median: float
    requests: int

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({self.quartiles[0]:.2f}-{self.quartiles[1]:.2f})"


async def take_turns(
    senders: Mapping[str, Send], baselines: Mapping[str, str], turns: int, block: int
) -> dict[str, Timing]:
    """Time each sender over its baseline (by default itself), in `turns` of `block` requests."""
    blocks: dict[str, list[list[float]]] = {name: [] for name in senders}
    names = list(senders)
    for turn in range(-1, turns):
        # Who comes first changes: nobody always follows the same
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times = await senders[name](block)
            if turn >= 0:  # the one before is to warm up
                blocks[name].append(times)
    medians = {name: [median(times) for times in mine] for name, mine in blocks.items()}
    timings = {}
    for name in names:
        base = baselines.get(name, name)
        ratios = [a / b for a, b in zip(medians[name], medians[base], strict=True)]
        low, ratio, high = quantiles(ratios)
        middle = median(chain.from_iterable(blocks[name]))
        timings[name] = Timing(ratio, (low, high), middle, (turns + 1) * block)
    return timings


async def measure(turns: int, block: int) -> dict[str, dict[str, str]]:
    """Both clients, without and with Redis, beside the bare ones."""
    columns: dict[str, dict[str, str]] = {}
    with lean_server() as url, RedisServer() as server, RedisServer() as sync_server:
        async with AsyncExitStack() as stack:
            senders = {
                "bare": sender(await stack.enter_async_context(httpx.AsyncClient(base_url=url)))
            }
            for name, redis in {"in process": None, "with Redis": server.url}.items():
                client = AsyncQuotaClient(url, limit=LIMIT, redis=redis)
                senders[name] = sender(await stack.enter_async_context(client))
            timings = await take_turns(senders, dict.fromkeys(senders, "bare"), turns, block)
        columns |= {f"async, {name}": _column(timing) for name, timing in timings.items()}
        columns["async, with Redis"] |= _scripts(server, timings["with Redis"])
        with (
            httpx.Client(base_url=url) as bare,
            QuotaClient(url, limit=LIMIT) as alone,
            QuotaClient(url, limit=LIMIT, redis=sync_server.url) as shared,
        ):
            senders = {
                "bare": sync_sender(bare),
                "in process": sync_sender(alone),
                "with Redis": sync_sender(shared),
            }
            timings = await take_turns(senders, dict.fromkeys(senders, "bare"), turns, block)
        columns |= {f"sync, {name}": _column(timing) for name, timing in timings.items()}
        columns["sync, with Redis"] |= _scripts(sync_server, timings["with Redis"])
    return columns


def _column(timing: Timing) -> dict[str, str]:
    return {
        "request / bare request, medians (quartiles)": str(timing),
        "median, µs": f"{timing.median * 1e6:.0f}",
    }


def _scripts(server: RedisServer, timing: Timing) -> dict[str, str]:
    return {"script runs / request": f"{script_calls(server) / timing.requests:.2f}"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--block", type=int, default=150, help="requests in a turn")
    options = parser.parse_args()
    print_table(asyncio.run(measure(options.turns, options.block)))


if __name__ == "__main__":
    main()
