"""The two clients, and what each response tells of its permit.

    python examples/quickstart.py
    python examples/quickstart.py https://api.example.com

Each client sends 15 requests under a limit of 10 a second: ten go at once, and each of the others
as soon as an earlier one has left the window. The windows are in this process, and both clients
draw on them, because both send to the same origin. Without a URL the requests go to a server on
this machine that refuses what exceeds the limit.
"""

from __future__ import annotations

import argparse
import asyncio

from quotaclient import AsyncQuotaClient, Decision, QuotaClient
from quotaclient.testing import StrictUpstream

REQUESTS = 15
LIMIT = "10/s"


def in_this_thread(url: str) -> None:
    """`QuotaClient` is an `httpx.Client`."""
    with QuotaClient(url, limit=LIMIT) as client:
        for number in range(REQUESTS):
            response = client.get(f"/items/{number}")
            show("sync", response.status_code, response.extensions["quota"])


async def on_an_event_loop(url: str) -> None:
    """`AsyncQuotaClient` is an `httpx.AsyncClient`."""
    async with AsyncQuotaClient(url, limit=LIMIT) as client:

        async def get(number: int) -> None:
            response = await client.get(f"/items/{number}")
            show("async", response.status_code, response.extensions["quota"])

        async with asyncio.TaskGroup() as group:
            for number in range(REQUESTS):
                group.create_task(get(number))


def show(colour: str, status: int, decision: Decision) -> None:
    """One line for each response."""
    print(f"{colour:5}  {status}  waited {decision.waited:.3f} s, {decision.remaining} left")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Two clients under one limit of 10 a second.")
    parser.add_argument("url", nargs="?", help="by default that of a server on this machine")
    url = parser.parse_args().url
    if url is not None:
        run(url)
    else:
        with StrictUpstream(10, 1.0) as upstream:
            run(upstream.url)
            print(f"refused by the server: {upstream.report().refused}")


def run(url: str) -> None:
    """Both clients, one after the other."""
    in_this_thread(url)
    asyncio.run(on_an_event_loop(url))


if __name__ == "__main__":
    main()
