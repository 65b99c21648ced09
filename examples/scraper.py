"""A scraper that runs as several processes, all of which share one quota.

    python examples/scraper.py

    # as three replicas, each in a terminal of its own, or as three containers
    export SCRAPER_REDIS=redis://localhost:6379/0 SCRAPER_LIMIT=100/min
    python examples/scraper.py https://example.com/page/{} --replicas 3

What the replicas have in common is the Redis, the origin of the URL and the limit; they need not
know of each other. `replicas` says how many there are, for the time when Redis is away: each then
keeps to the limit divided by it. A batch job has no deadline, so it waits however long it takes.
Without a URL the pages come from a server on this machine that refuses what exceeds the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import Counter

import httpx

from quotaclient import AsyncQuotaClient, Limit
from quotaclient.testing import StrictUpstream

WORKERS = 8


async def scrape(url: str, options: argparse.Namespace) -> Counter[str]:
    """Fetch all pages with a few workers; what became of them."""
    seen = Counter[str]()
    pages = iter(range(options.pages))
    origin = httpx.URL(url.format(0)).join("/")

    async with AsyncQuotaClient(
        origin,
        limit=options.limit,
        redis=options.redis,
        replicas=options.replicas,
        max_wait=None,
    ) as client:

        async def work() -> None:
            for page in pages:
                response = await client.get(url.format(page))
                seen[f"status {response.status_code}"] += 1
                seen[f"by {response.extensions['quota'].source}"] += 1

        async with asyncio.TaskGroup() as workers:
            for _ in range(WORKERS):
                workers.create_task(work())
    return seen


def command_line() -> argparse.Namespace:
    """Options, by default from the environment."""
    env = os.environ.get
    parser = argparse.ArgumentParser(description="Scrape pages within a quota that replicas share.")
    parser.add_argument("url", nargs="?", default=env("SCRAPER_URL"), help="{} stands for the page")
    parser.add_argument("--redis", default=env("SCRAPER_REDIS"), help="by default none: no sharing")
    parser.add_argument("--limit", default=env("SCRAPER_LIMIT", "20/s"))
    parser.add_argument("--replicas", type=int, default=env("SCRAPER_REPLICAS", "1"))
    parser.add_argument("--pages", type=int, default=50, help="how many this replica fetches")
    return parser.parse_args()


def main() -> None:
    """Scrape, and print a line for each outcome."""
    options = command_line()
    if options.url is not None:
        seen = asyncio.run(scrape(options.url, options))
    else:
        limit = Limit.parse(options.limit)[0]
        with StrictUpstream(limit.count, limit.period) as upstream:
            seen = asyncio.run(scrape(f"{upstream.url}/page/{{}}", options))
    for outcome, count in sorted(seen.items()):
        print(f"{outcome}: {count}")


if __name__ == "__main__":
    main()
