"""quotaclient beside other limiters, all in one run on one machine; some three minutes.

python -m tests.bench                            everything that is installed, one table
python -m tests.bench --plot comparison.png      and a picture
python -m tests.bench async sorted-set           only these

A fleet of processes shares one limit in Redis against an upstream that admits exactly that limit;
each limiter gets a Redis and an upstream of its own, one after the other. aiolimiter and
httpx-limiter share nothing: for them the fleet is one process, with the whole limit for itself, and
"in process" is quotaclient in their place. What is answered 429 counts as refused; quotaclient
sends it again, the others have nothing for that. Then all take turns on one lean server, at a limit
that nobody reaches, beside a bare httpx client. What each row means is said in
`tests/bench/measures.py`.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import AsyncExitStack

import httpx

from quotaclient import Limit, QuotaClient
from quotaclient.testing import RedisServer
from tests.bench import fleet, hot, plot, units
from tests.bench.lean import lean_server
from tests.bench.measures import print_table
from tests.bench.peers import CONTENDERS, version_of


async def time_requests(kinds: list[str], turns: int, block: int) -> dict[str, hot.Timing]:
    """Time one request after the other through each, over a bare client of the same colour."""
    (limit,) = Limit.parse(hot.LIMIT)
    async with AsyncExitStack() as stack:
        url = stack.enter_context(lean_server())
        senders = {
            "bare": hot.sender(await stack.enter_async_context(httpx.AsyncClient(base_url=url))),
            "sync": hot.sync_sender(stack.enter_context(httpx.Client(base_url=url))),
        }
        for kind in kinds:
            shared = CONTENDERS[kind].shared
            redis = stack.enter_context(RedisServer()).url if shared else None
            if kind == "threads":
                quota_client = QuotaClient(url, limit=limit, redis=redis)
                senders[kind] = hot.sync_sender(stack.enter_context(quota_client))
            else:
                plan = fleet.Plan(url, redis, limit, 0, kind=kind)
                client = fleet.open_client(plan, httpx.AsyncHTTPTransport())
                senders[kind] = hot.sender(await stack.enter_async_context(client))
        baselines = {kind: "sync" if kind == "threads" else "bare" for kind in kinds}
        return await hot.take_turns(senders, baselines, turns, block)


def compare(kinds: list[str], options: argparse.Namespace) -> None:
    """Run everything, print the table, draw the picture."""
    runs = {}
    for kind in kinds:
        print(f"... {kind}", flush=True)
        runs[kind] = fleet.measure(kind, options)
    timings = asyncio.run(time_requests(kinds, options.turns, options.block))
    columns = {}
    for kind, run in runs.items():
        columns[kind] = {**run.rows(), "request / bare request": str(timings[kind])}
        if CONTENDERS[kind].shared:
            kept = units.measure(kind, options.units)
            columns[kind] |= {
                f"bytes in Redis after {kept.units}": str(kept.bytes),
                "bytes in Redis / unit": f"{kept.bytes / kept.units:.2f}",
                f"µs of Redis / script run, up to {kept.units}": f"{kept.script_micros:.0f}",
            }
    title = f"{options.replicas} processes x {options.tasks}, {options.limit}, {options.seconds} s"
    print(f"\n{title}")
    print(_versions(kinds))
    print_table(columns)
    if options.plot:
        plot.draw(options.plot, runs, columns, title)


def _versions(kinds: list[str]) -> str:
    packages = dict.fromkeys(CONTENDERS[kind].package for kind in kinds)
    named = [name for name in [*packages, "httpx", "redis"] if name]
    return ", ".join(f"{name} {version_of(name)}" for name in named)


def main() -> None:
    """Read the command line and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kinds", nargs="*", help=", ".join(CONTENDERS))
    fleet.add_options(parser, seconds=10)
    parser.add_argument("--turns", type=int, default=12, help="of each client on the lean server")
    parser.add_argument("--block", type=int, default=60, help="requests in a turn")
    parser.add_argument("--units", type=int, default=10_000, help="to weigh Redis after")
    parser.add_argument("--plot", metavar="PNG", help="where to write a picture")
    options = parser.parse_args()
    options.kill = False
    kinds = options.kinds or list(CONTENDERS)
    if unknown := set(kinds) - set(CONTENDERS):
        parser.error(f"nobody is called {unknown}; there are {list(CONTENDERS)}")
    missing = [kind for kind in kinds if not CONTENDERS[kind].installed]
    for kind in missing:
        print(f"skipped {kind}: {CONTENDERS[kind].package} is not installed")
    if set(kinds) <= set(missing):
        parser.error("nobody is left to compare")
    compare([kind for kind in kinds if kind not in missing], options)


if __name__ == "__main__":
    main()
