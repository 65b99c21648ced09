"""A fleet of real processes against a strict upstream: what it sends, spends and waits.

python -m tests.bench.fleet                      4 processes x 25 tasks, 100 per 2 s, 15 s
python -m tests.bench.fleet async threads sorted-set
                                                 the same, one after the other: the async
                                                 client, the sync one in threads, and the
                                                 limiter that most people write
python -m tests.bench.fleet async --kill         kill -9 of Redis after a third, back after two

All kinds are those of `tests.bench.peers`; `python -m tests.bench` compares them.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import httpx
import redis as redis_sync

from quotaclient import AsyncQuotaClient, Limit, QuotaClient
from quotaclient.testing import RedisServer, StrictUpstream
from tests.bench.measures import Run, print_table
from tests.bench.peers import CONTENDERS
from tests.bench.sending import CONNECTIONS, Journey, Stamping, SyncStamping


@dataclass(frozen=True)
class Plan:
    """What every process of the fleet does. Seconds throughout. `kind`: one of CONTENDERS."""

    url: str
    redis: str | None
    limit: Limit
    seconds: float
    tasks: int = 25
    replicas: int = 4
    guard: float | None = None
    kind: str = "async"


@dataclass
class Tally:
    """What a process saw. `journeys`: when each request came and departed."""

    statuses: Counter[str] = field(default_factory=Counter[str])
    sources: Counter[str] = field(default_factory=Counter[str])
    waits: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    journeys: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    @property
    def longest(self) -> float:
        """The longest request, in seconds."""
        return max(seconds for _, seconds in self.waits)

    def count(self, response: httpx.Response, journey: Journey) -> None:
        """Take down a request that was answered."""
        self.statuses[str(response.status_code)] += 1
        decision = response.extensions.get("quota")
        if decision is not None:
            self.sources[decision.source] += 1
        self.waits.append((journey.entered, time.monotonic() - journey.entered))
        if journey.departed is not None:
            self.journeys.append((journey.entered, journey.departed))


def run_replica(plan: Plan, name: str, ready: Any, results: Connection) -> None:
    """One process: as many requests as it may send until the time is over."""
    tally = Tally()
    if plan.kind == "threads":
        _with_threads(plan, name, ready, tally)
    else:
        asyncio.run(_with_tasks(plan, name, ready, tally))
    results.send(tally)


@asynccontextmanager
async def open_client(
    plan: Plan, transport: httpx.AsyncBaseTransport, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """The client of a contender: quotaclient's own, or httpx's behind its gate."""
    if CONTENDERS[plan.kind].ours:
        async with AsyncQuotaClient(
            plan.url,
            limit=plan.limit,
            redis=plan.redis,
            replicas=plan.replicas,
            guard=plan.guard,
            transport=transport,
            **options,
        ) as client:
            yield client
    else:
        async with (
            CONTENDERS[plan.kind].open(plan.redis, plan.limit) as gate,
            httpx.AsyncClient(
                base_url=plan.url, transport=gate.around(transport), **options
            ) as client,
        ):
            yield client


async def _with_tasks(plan: Plan, name: str, ready: Any, tally: Tally) -> None:
    transport = Stamping(limits=CONNECTIONS)
    async with open_client(plan, transport, headers={"x-replica": name}) as client:
        ready.wait()
        until = time.monotonic() + plan.seconds

        async def work() -> None:
            while (journey := Journey()).entered < until:
                try:
                    response = await client.get("/", extensions=journey.extensions)
                except httpx.HTTPError as error:
                    tally.statuses[repr(error)] += 1
                else:
                    tally.count(response, journey)

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
            while (journey := Journey()).entered < until:
                try:
                    response = client.get("/", extensions=journey.extensions)
                except httpx.HTTPError as error:
                    tally.statuses[repr(error)] += 1
                else:
                    tally.count(response, journey)

        threads = [threading.Thread(target=work) for _ in range(plan.tasks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


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


def script_stats(server: RedisServer) -> tuple[int, float]:
    """How often scripts were run since the server started, and the microseconds in them."""
    with redis_sync.Redis(port=server.port) as client:
        stats: Any = client.info("commandstats")
    scripts = [stats[name] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats]
    return sum(one["calls"] for one in scripts), sum(one["usec"] for one in scripts)


def script_calls(server: RedisServer) -> int:
    """How often scripts were run since the server started."""
    return script_stats(server)[0]


def measure(kind: str, options: argparse.Namespace) -> Run:
    """Run one fleet with a Redis and an upstream of its own.

    Who shares nothing is one process of the fleet, with the whole limit for itself.
    """
    (limit,) = Limit.parse(options.limit)
    shared = CONTENDERS[kind].shared
    replicas = options.replicas if shared else 1
    calls, spent, away = 0, 0.0, [0.0, 0.0]
    with RedisServer() as server, StrictUpstream(limit.count, limit.period) as upstream:

        def kill_and_restart() -> None:
            nonlocal calls, spent
            time.sleep(options.seconds / 3)
            calls, spent = script_stats(server)
            server.kill()
            away[0] = time.monotonic()
            time.sleep(options.seconds / 3)
            server.restart()
            away[1] = time.monotonic()

        plan = Plan(
            upstream.url,
            server.url if shared else None,
            limit,
            options.seconds,
            options.tasks,
            replicas,
            options.guard,
            kind,
        )
        tallies = run_fleet(plan, kill_and_restart if options.kill else None)
        report = upstream.report()
        later = script_stats(server)
    return Run(
        limit=limit,
        seconds=options.seconds,
        report=report,
        journeys=[tally.journeys for tally in tallies.values()],
        scripts=calls + later[0],
        script_seconds=(spent + later[1]) / 1e6,
        longest=max(tally.longest for tally in tallies.values()),
        statuses=sum((tally.statuses for tally in tallies.values()), Counter[str]()),
        sources=sum((tally.sources for tally in tallies.values()), Counter[str]()),
        away=(away[0], away[1]) if options.kill else None,
    )


def add_options(parser: argparse.ArgumentParser, seconds: float) -> None:
    """The options that say what a fleet does."""
    parser.add_argument("--limit", default="100/2s")
    parser.add_argument("--seconds", type=float, default=seconds, help="of demand, per fleet")
    parser.add_argument("--replicas", type=int, default=4, help="processes")
    parser.add_argument("--tasks", type=int, default=25, help="tasks or threads of each")
    parser.add_argument("--guard", type=float, help="quotaclient's, in seconds")


def main() -> None:
    """Run the fleets that the command line names, and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kinds", nargs="*", help=", ".join(CONTENDERS))
    parser.add_argument("--kill", action="store_true")
    add_options(parser, seconds=15)
    options = parser.parse_args()
    kinds = options.kinds or ["async"]
    for kind in kinds:
        if kind not in CONTENDERS or not CONTENDERS[kind].installed:
            parser.error(f"{kind!r} is not there; there are {list(CONTENDERS)}, where installed")
    print(f"{options.replicas} processes x {options.tasks}, {options.limit}, {options.seconds} s")
    print_table({kind: measure(kind, options).rows() for kind in kinds})


if __name__ == "__main__":
    main()
