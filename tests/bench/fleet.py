"""A fleet of real processes against a strict upstream: what it sends, spends and waits.

python -m tests.bench.fleet                      4 processes x 25 tasks, 100 per 2 s, 15 s
python -m tests.bench.fleet async threads sorted-set
                                                 the same, one after the other: the async
                                                 client, the sync one in threads, and the
                                                 limiter that most people write
python -m tests.bench.fleet async --kill         kill -9 of Redis after a third, back after two
"""

from __future__ import annotations

import argparse
import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import httpx
import redis as redis_sync
import redis.asyncio as redis_async

from quotaclient import AsyncQuotaClient, Limit, QuotaClient
from quotaclient.testing import RedisServer, StrictUpstream

# httpx closes connections that were idle for 5 s, and with threads it may do so just as another
# takes one up (seen with a plain httpx.Client too: ReadError, bad file descriptor). Requests that
# wait for a quota find theirs idle; here they are kept.
CONNECTIONS = httpx.Limits(keepalive_expiry=60)

# The limiter of many blog posts: a sorted set of the requests in the window, and waiters that
# try again. KEYS: the set. ARGV: count, period, a name for the request.
SORTED_SET = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[2]))
if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[3])
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(ARGV[2] / 1000)))
  return 0
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return string.format('%.0f', oldest[2] + ARGV[2] - now)
"""


@dataclass(frozen=True)
class Plan:
    """What every process of the fleet does. Seconds throughout."""

    url: str
    redis: str | None
    limit: Limit
    seconds: float
    tasks: int = 25
    replicas: int = 4
    guard: float | None = None
    kind: str = "async"  # async, threads, sorted-set


@dataclass
class Tally:
    """What a process saw."""

    statuses: Counter[str] = field(default_factory=Counter[str])
    sources: Counter[str] = field(default_factory=Counter[str])
    waits: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    @property
    def longest(self) -> float:
        """The longest request, in seconds."""
        return max(seconds for _, seconds in self.waits)


class Stamping(httpx.AsyncHTTPTransport):
    """Stamps each request when its headers are about to be written, after its permit was shown."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        trace = request.extensions.get("trace")

        async def stamp(name: str, info: dict[str, Any]) -> None:
            if trace is not None:
                await trace(name, info)
            if name.endswith("send_request_headers.started"):
                info["request"].headers.append((b"x-departed", b"%.6f" % time.monotonic()))

        request.extensions = {**request.extensions, "trace": stamp}
        return await super().handle_async_request(request)


class SyncStamping(httpx.HTTPTransport):
    """The same in threads."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        trace = request.extensions.get("trace")

        def stamp(name: str, info: dict[str, Any]) -> None:
            if trace is not None:
                trace(name, info)
            if name.endswith("send_request_headers.started"):
                info["request"].headers.append((b"x-departed", b"%.6f" % time.monotonic()))

        request.extensions = {**request.extensions, "trace": stamp}
        return super().handle_request(request)


def run_replica(plan: Plan, name: str, ready: Any, results: Connection) -> None:
    """One process: as many requests as it may send until the time is over."""
    tally = Tally()
    if plan.kind == "async":
        asyncio.run(_with_async_client(plan, name, ready, tally))
    elif plan.kind == "threads":
        _with_threads(plan, name, ready, tally)
    else:
        asyncio.run(_with_sorted_set(plan, name, ready, tally))
    results.send(tally)


def _count(tally: Tally, response: httpx.Response, since: float) -> None:
    tally.statuses[str(response.status_code)] += 1
    decision = response.extensions.get("quota")
    if decision is not None:
        tally.sources[decision.source] += 1
    tally.waits.append((since, time.monotonic() - since))


async def _with_async_client(plan: Plan, name: str, ready: Any, tally: Tally) -> None:
    async with AsyncQuotaClient(
        plan.url,
        limit=plan.limit,
        redis=plan.redis,
        replicas=plan.replicas,
        guard=plan.guard,
        transport=Stamping(limits=CONNECTIONS),
        headers={"x-replica": name},
    ) as client:
        ready.wait()
        until = time.monotonic() + plan.seconds

        async def work() -> None:
            while (since := time.monotonic()) < until:
                try:
                    _count(tally, await client.get("/"), since)
                except httpx.HTTPError as error:
                    tally.statuses[repr(error)] += 1

        await asyncio.gather(*(work() for _ in range(plan.tasks)))


def _with_threads(plan: Plan, name: str, ready: Any, tally: Tally) -> None:
    with QuotaClient(
        plan.url,
        limit=plan.limit,
        redis=plan.redis,
        replicas=plan.replicas,
        guard=plan.guard,
        transport=SyncStamping(limits=CONNECTIONS),
        headers={"x-replica": name},
    ) as client:
        ready.wait()
        until = time.monotonic() + plan.seconds

        def work() -> None:
            while (since := time.monotonic()) < until:
                try:
                    _count(tally, client.get("/"), since)
                except httpx.HTTPError as error:
                    tally.statuses[repr(error)] += 1

        threads = [threading.Thread(target=work) for _ in range(plan.tasks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def _with_sorted_set(plan: Plan, name: str, ready: Any, tally: Tally) -> None:
    assert plan.redis is not None
    store = redis_async.Redis.from_url(plan.redis)
    allow = store.register_script(SORTED_SET)
    period = round(plan.limit.period * 1e6)
    async with (
        store,
        httpx.AsyncClient(
            base_url=plan.url, transport=Stamping(limits=CONNECTIONS), headers={"x-replica": name}
        ) as client,
    ):
        ready.wait()
        until = time.monotonic() + plan.seconds

        async def work(task: int) -> None:
            number = 0
            while (since := time.monotonic()) < until:
                number += 1
                arguments: list[str | int] = [plan.limit.count, period, f"{name}-{task}-{number}"]
                while wait := int(await allow(["plain"], arguments)):  # noqa: ASYNC110 - so it is done
                    await asyncio.sleep(wait / 1e6)
                _count(tally, await client.get("/"), since)

        await asyncio.gather(*(work(task) for task in range(plan.tasks)))


def run_fleet(plan: Plan, during: Callable[[], None] | None = None) -> dict[str, Tally]:
    """Run the fleet to its end; `during` runs beside it, from the moment it starts."""
    context = get_context("spawn")
    ready = context.Barrier(plan.replicas + 1)
    processes = []
    pipes = {}
    for number in range(plan.replicas):
        name = f"replica-{number}"
        pipes[name], theirs = context.Pipe(duplex=False)
        process = context.Process(target=run_replica, args=(plan, name, ready, theirs))
        process.start()
        theirs.close()
        processes.append(process)
    try:
        ready.wait(60)
        if during is not None:
            during()
        return {name: pipe.recv() for name, pipe in pipes.items()}
    finally:
        for process in processes:
            process.join(plan.seconds + 60)
            process.kill()


def script_calls(server: RedisServer) -> int:
    """How often scripts were run since the server started."""
    with redis_sync.Redis(port=server.port) as client:
        stats: Any = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


def measure(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one fleet with a Redis and an upstream of its own; what it showed."""
    (limit,) = Limit.parse(options.limit)
    calls, away = [0], [0.0, 0.0]
    with RedisServer() as server, StrictUpstream(limit.count, limit.period) as upstream:

        def kill_and_restart() -> None:
            time.sleep(options.seconds / 3)
            calls[0] = script_calls(server)
            server.kill()
            away[0] = time.monotonic()
            time.sleep(options.seconds / 3)
            server.restart()
            away[1] = time.monotonic()

        plan = Plan(
            upstream.url,
            server.url,
            limit,
            options.seconds,
            options.tasks,
            options.replicas,
            options.guard,
            kind,
        )
        tallies = run_fleet(plan, kill_and_restart if options.kill else None)
        report = upstream.report()
        calls[0] += script_calls(server)
    admitted = [arrival.at for arrival in report.arrivals if arrival.admitted]
    within = sum(at < min(admitted) + options.seconds for at in admitted)
    possible = limit.count * math.ceil(options.seconds / limit.period)
    endings = sum((tally.statuses for tally in tallies.values()), Counter[str]())
    sources = sum((tally.sources for tally in tallies.values()), Counter[str]())
    by_redis = sources["store"] if sources else len(admitted)
    return {
        "sent": report.sent,
        "refused (429)": report.refused,
        "most in any window": report.most_in_any_window(),
        "quota used": f"{within / possible:.1%}",
        "script calls per request that Redis admitted": f"{calls[0] / by_redis:.2f}",
        "spread from departure to arrival, ms": f"{report.spread() * 1000:.1f}",
        "longest request, s": f"{max(tally.longest for tally in tallies.values()):.2f}",
        "requests by replica": " ".join(
            str(part.admitted) for _, part in sorted(report.by_replica().items())
        ),
        "decided by": _listed(sources),
        "ended with": _listed(endings),
        **(_phases(admitted, away, limit) if options.kill else {}),
    }


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.most_common()) or "-"


def main() -> None:
    """Run the fleets that the command line names, and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kinds", nargs="*", default=["async"], metavar="async|threads|sorted-set")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--limit", default="100/2s")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=25)
    parser.add_argument("--guard", type=float)
    options = parser.parse_args()
    runs = {kind: measure(kind, options) for kind in options.kinds}
    print(f"{options.replicas} processes x {options.tasks}, {options.limit}, {options.seconds} s")
    print(f"{'':46}" + "".join(f"{kind:>26}" for kind in runs))
    for row in next(iter(runs.values())):
        print(f"{row:46}" + "".join(f"{run[row]!s:>26}" for run in runs.values()))


def _phases(admitted: list[float], away: list[float], limit: Limit) -> dict[str, Any]:
    first, last = min(admitted), max(admitted)
    edges = {
        "up": (first, away[0]),
        "away": (away[0], away[1]),
        "back": (away[1], last),
    }
    return {
        f"quota used, Redis {name}": format(
            sum(begin <= at < end for at in admitted)
            / (limit.count * (end - begin) / limit.period),
            ".1%",
        )
        for name, (begin, end) in edges.items()
    }


if __name__ == "__main__":
    main()
