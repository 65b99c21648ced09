"""Crowds, cancel storms, loops, threads, forks and Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

import quotaclient
from quotaclient import AsyncQuota, AsyncQuotaClient, Limit, Quota, QuotaClient, QuotaExceeded
from quotaclient._core.asks import Asks
from quotaclient._core.lane import Lane
from quotaclient._stores.memory import clock
from quotaclient.testing import Answer, RedisServer, ScriptedUpstream, StrictUpstream
from tests.shells.colours import stopwatch

HOME = Path(quotaclient.__file__).parents[1]


def used_of(usage: quotaclient.Usage) -> int:
    """The units that the first limit has used."""
    return next(iter(usage.used.values()))


# Crowds


def test_ten_thousand_waiters(key: str) -> None:
    """10,000 at 2,000 a second pass in the four periods that this takes, in order of arrival.

    The guard is generous: who is woken later than half of it has to take its place anew.
    """
    done: list[int] = []

    async def one(quota: AsyncQuota, number: int) -> None:
        await quota.acquire()
        done.append(number)

    async def main() -> float:
        async with AsyncQuota(key, "2000/s", guard=0.4) as quota:
            with stopwatch() as took:
                await asyncio.gather(*(one(quota, number) for number in range(10_000)))
            return took.seconds

    seconds = asyncio.run(main())
    assert len(done) == 10_000
    assert not any(later < sooner for sooner, later in pairwise(done))
    assert 4 * 1.4 <= seconds < 4 * 1.4 + 2


def test_ten_thousand_waiters_on_redis(key: str, shared_redis: RedisServer) -> None:
    """The same through Redis, at 5,000 per half second."""
    done: list[int] = []

    async def one(quota: AsyncQuota, number: int) -> None:
        await quota.acquire()
        done.append(number)

    async def main() -> float:
        async with AsyncQuota(key, "5000/0.5s", redis=shared_redis.url, guard=0.25) as quota:
            with stopwatch() as took:
                await asyncio.gather(*(one(quota, number) for number in range(10_000)))
            return took.seconds

    seconds = asyncio.run(main())
    assert len(done) == 10_000
    assert not any(later < sooner for sooner, later in pairwise(done))
    assert 0.5 <= seconds < 2.5


def test_ten_thousand_who_cannot_be_served_learn_it_soon(key: str) -> None:
    """10,000 who ask for 5 a minute with a second's patience are refused within that second."""

    async def main() -> tuple[int, float]:
        async with AsyncQuota(key, "5/min", max_wait=1.0) as quota:
            with stopwatch() as took:
                outcomes = await asyncio.gather(
                    *(quota.acquire() for _ in range(10_000)), return_exceptions=True
                )
            refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
            return len(refused), took.seconds

    refused, seconds = asyncio.run(main())
    assert refused == 9_995
    assert seconds < 3


def test_a_loop_that_stands_still_asks_for_all_again(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 permits expired before their tasks could run: a few asks for all, not one for each."""
    settle, make, asks = Lane.settle, Asks.make, [0]
    stood_still: list[int] = []

    def slow(lane: Lane, now: int) -> None:
        if stood_still or now < since + 500_000 or not lane._hand or lane._hand[0].at > now:
            settle(lane, now)
            return
        time.sleep(0.02)  # until all may go
        settle(lane, clock())
        stood_still.append(asks[0])
        time.sleep(0.1)  # before any does

    def counted(*args: Any) -> Any:
        asks[0] += 1
        return make(*args)

    monkeypatch.setattr(Lane, "settle", slow)
    monkeypatch.setattr(Asks, "make", counted)

    async def main() -> None:
        async with AsyncQuota(key, "200/0.6s", guard=0.1) as quota:
            await asyncio.gather(*(quota.acquire() for _ in range(400)))

    since = clock()
    asyncio.run(main())
    assert stood_still
    assert asks[0] - stood_still[0] <= 12


def test_fifty_threads_share_one_client(key: str) -> None:
    """50 threads with 4 requests each through 100 per half second: all answered, not one 429."""
    with StrictUpstream(100, 0.5) as upstream:
        errors: list[object] = []
        with QuotaClient(upstream.url, limit="100/0.5s", key=key, guard=0.2, retry=0) as client:

            def work() -> None:
                for _ in range(4):
                    status = client.get("/").status_code
                    if status != 200:
                        errors.append(status)

            with stopwatch() as took:
                run_all(work, 50)
        report = upstream.report()
    assert not errors
    assert report.admitted == 200
    assert report.refused == 0
    assert report.most_in_any_window() <= 100
    assert 0.5 <= took.seconds < 2.0


def test_fifty_clients_in_fifty_threads_share_one_window(
    key: str, shared_redis: RedisServer
) -> None:
    """50 threads with a client each: the window is one, also with a lane in each."""
    with StrictUpstream(50, 0.5) as upstream:
        errors: list[object] = []

        def work() -> None:
            with QuotaClient(
                upstream.url, limit="50/0.5s", key=key, redis=shared_redis.url, guard=0.2, retry=0,
                trust_env=False, verify=False,
            ) as client:  # fmt: skip
                for _ in range(2):
                    status = client.get("/").status_code
                    if status != 200:
                        errors.append(status)

        with stopwatch() as took:
            run_all(work, 50)
        report = upstream.report()
    assert not errors
    assert report.admitted == 100
    assert report.refused == 0
    assert took.seconds < 6


def run_all(work: Callable[[], None], threads: int) -> None:
    """Run it in so many threads; what one raises is raised here."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=guarded) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]


def test_threads_that_come_and_go_lose_nothing(key: str) -> None:
    """Threads whose waits are refused, in a crowd, leave the window to those who are served."""
    quota = Quota(key, "20/0.2s", guard=0)
    granted: list[float] = []
    lock = threading.Lock()

    def work() -> None:
        chance = random.Random(threading.get_ident())
        for _ in range(4):
            try:
                quota.acquire(max_wait=chance.choice([0, 0.01, 0.1, 0.5]))
            except QuotaExceeded:
                time.sleep(chance.uniform(0, 0.02))
                continue
            with lock:
                granted.append(time.monotonic())

    run_all(work, 40)
    for _ in range(20):
        quota.acquire(max_wait=0.3)
    most = max(sum(1 for at in granted if start <= at < start + 0.2 - 0.02) for start in granted)
    assert most <= 20
    quota.close()


# Cancel storms


Cancel = Callable[[Awaitable[Any], float], Awaitable[Any]]


async def natively(work: Awaitable[Any], after: float) -> Any:
    """Cancelled as asyncio cancels."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().call_later(after, task.cancel)
    return await task


async def by_timeout(work: Awaitable[Any], after: float) -> Any:
    """Cancelled by asyncio.timeout."""
    async with asyncio.timeout(after):
        return await work


async def by_scope(work: Awaitable[Any], after: float) -> Any:
    """Cancelled by a scope of anyio."""
    with anyio.fail_after(after):
        return await work


@pytest.fixture
def stormy(cancel: Cancel, shared_redis: RedisServer) -> str | None:
    """A store for each kind of storm: asyncio's own cancellation goes through Redis."""
    return shared_redis.url if cancel is natively else None


@pytest.mark.parametrize("cancel", [natively, by_timeout, by_scope])
def test_survivors_of_a_storm_get_the_first_window(
    key: str, stormy: str | None, cancel: Cancel
) -> None:
    """Of 1,000 waiters 950 are cancelled before the window opens: the 50 left fill it at once."""
    chance = random.Random(7)

    async def main() -> None:
        async with AsyncQuota(key, "50/0.3s", redis=stormy, guard=0) as quota:
            await quota.acquire(50)
            opens = time.monotonic() + 0.3
            await quota.peek()
            survivors = set(chance.sample(range(1000), 50))
            served: list[float] = []

            async def survivor() -> None:
                await quota.acquire(max_wait=None)
                served.append(time.monotonic() - opens)

            async def victim() -> None:
                left = opens - time.monotonic() - 0.08
                try:
                    await cancel(quota.acquire(max_wait=None), chance.uniform(0, left))
                except (asyncio.CancelledError, TimeoutError):
                    return

            await asyncio.gather(
                *(survivor() if number in survivors else victim() for number in range(1000))
            )
            assert len(served) == 50
            assert max(served) < 0.25  # else a cancelled waiter has kept a place

    asyncio.run(main())
    gc.collect()


@pytest.mark.parametrize("cancel", [natively, by_timeout, by_scope])
def test_a_storm_in_the_moment_of_the_permits_loses_none(
    key: str, stormy: str | None, cancel: Cancel
) -> None:
    """1,000 cancelled before, in and after the moment: what is used is what was acquired, and the
    window passes its whole limit afterwards."""
    chance = random.Random(11)

    async def main() -> None:
        async with AsyncQuota(key, "100/0.4s", redis=stormy, guard=0) as quota:
            await quota.acquire(100)
            opens = time.monotonic() + 0.4
            acquired = 0

            async def victim() -> None:
                nonlocal acquired
                # Most of them within a few milliseconds around the opening.
                after = max(0.01, opens - time.monotonic() + chance.gauss(0.004, 0.01))
                try:
                    await cancel(quota.acquire(max_wait=None), after)
                except (asyncio.CancelledError, TimeoutError):
                    return
                acquired += 1

            await asyncio.sleep(0.2)
            await asyncio.gather(*(victim() for _ in range(1000)))
            used = -1
            for _ in range(30):
                used = used_of(await quota.peek())
                if used == acquired:
                    break
                await asyncio.sleep(0.01)
            assert used == acquired
            for _ in range(100 - acquired):
                await quota.acquire(max_wait=0)
            assert await quota.try_acquire() is None

    asyncio.run(main())
    gc.collect()


def test_a_storm_on_trio(key: str) -> None:
    """The same on trio: cancelled scopes take no capacity with them."""
    chance = random.Random(3)

    async def main() -> None:
        async with AsyncQuota(key, "50/0.4s", guard=0) as quota:
            await quota.acquire(50)
            acquired = 0

            async def victim() -> None:
                nonlocal acquired
                with anyio.move_on_after(chance.uniform(0.3, 0.5)):
                    await quota.acquire(max_wait=None)
                    acquired += 1

            async with anyio.create_task_group() as group:
                for _ in range(1000):
                    group.start_soon(victim)
            assert acquired <= 50
            assert used_of(await quota.peek()) == acquired
            for _ in range(50 - acquired):
                await quota.acquire(max_wait=0)
            assert await quota.try_acquire() is None

    anyio.run(main, backend="trio")


def test_cancelling_whoever_asks_does_not_cancel_the_ask(
    key: str, shared_redis: RedisServer
) -> None:
    """The waiter whose call to Redis is under way is cancelled: the others get their permits."""

    async def main() -> None:
        async with AsyncQuota(key, "10/min", redis=shared_redis.url) as quota:
            await quota.peek()
            first = asyncio.create_task(quota.acquire())
            await asyncio.sleep(0)
            others = [asyncio.create_task(quota.acquire()) for _ in range(5)]
            await asyncio.sleep(0)
            first.cancel()
            async with asyncio.timeout(1):
                await asyncio.gather(*others)
            await asyncio.gather(first, return_exceptions=True)
            for _ in range(50):
                if used_of(await quota.peek()) == 5:
                    break
                await asyncio.sleep(0.01)
            assert used_of(await quota.peek()) == 5

    asyncio.run(main())
    gc.collect()


def test_a_storm_through_a_client(key: str) -> None:
    """Requests cancelled anywhere on their way use no more than what arrived, or was on its way."""
    chance = random.Random(5)

    async def main(upstream: ScriptedUpstream) -> None:
        async with AsyncQuotaClient(
            upstream.url, limit="1000/min", key=key, limits=httpx.Limits(max_connections=5)
        ) as client:
            departed = 0

            async def trace(name: str, info: Any) -> None:
                nonlocal departed
                departed += name == "http11.send_request_headers.started"

            async def victim() -> None:
                with anyio.move_on_after(chance.uniform(0, 1.5)):
                    await client.get("/", extensions={"trace": trace})

            # The first request of a client loads certificates and connects; no victim waits for it.
            await client.get("/", extensions={"trace": trace})
            await asyncio.gather(*(victim() for _ in range(300)))
            assert 1 < departed < 301  # some on either side of their headers
            assert used_of(await client.quota.peek()) == departed

    with ScriptedUpstream(lambda received: Answer(delay=0.02)) as upstream:
        asyncio.run(main(upstream))


# Loops


def client_for_loops(key: str, redis: str | None) -> AsyncQuotaClient:
    """One client whose transport belongs to no loop."""
    transport = httpx.MockTransport(lambda request: httpx.Response(200))
    return AsyncQuotaClient("http://a.test", limit="5/min", key=key, redis=redis,
                            transport=transport, max_wait=1)  # fmt: skip


@pytest.mark.parametrize("backends", [("asyncio", "asyncio"), ("asyncio", "trio")])
def test_two_loops_in_sequence(key: str, redis: str | None, backends: tuple[str, str]) -> None:
    """One client on one loop after another: one window, no hanging, nothing left open."""

    async def first(client: AsyncQuotaClient) -> None:
        for _ in range(3):
            await client.get("/")

    async def second(client: AsyncQuotaClient) -> None:
        await client.get("/")
        await client.get("/")
        with pytest.raises(QuotaExceeded):
            await client.get("/")
        await client.aclose()

    def use() -> None:
        client = client_for_loops(key, redis)
        anyio.run(first, client, backend=backends[0])
        anyio.run(second, client, backend=backends[1])

    use()
    gc.collect()


def test_a_loop_that_ends_in_the_middle_of_a_wait(key: str, redis: str | None) -> None:
    """A loop that is gone with waiters in line does not stop the next loop's."""
    quota = AsyncQuota(key, "1/0.3s", redis=redis)

    async def first() -> None:
        await quota.acquire()
        with anyio.move_on_after(0.05):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(quota.acquire)

    async def second() -> None:
        await quota.acquire(max_wait=1.5)
        await quota.aclose()

    asyncio.run(first())
    asyncio.run(second())
    gc.collect()


def test_many_loops_leave_nothing_open(key: str, shared_redis: RedisServer) -> None:
    """A quota that sees thirty loops come and go keeps neither their sockets nor the loops."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not tell its open files in /proc")

    def open_files() -> int:
        gc.collect()
        return len(os.listdir(f"/proc/{os.getpid()}/fd"))

    def use() -> int:
        quota = AsyncQuota(key, "1000/min", redis=shared_redis.url)

        async def once() -> None:
            await quota.acquire()

        asyncio.run(once())
        before = open_files()
        for _ in range(30):
            asyncio.run(once())
        return open_files() - before

    assert use() < 10
    gc.collect()


def test_two_loops_in_two_threads(key: str, redis: str | None) -> None:
    """One client on two loops at once: of 5 a minute, 5 pass, however they are shared."""
    outcomes: list[str] = []

    def use() -> None:
        client = client_for_loops(key, redis)

        async def four() -> None:
            for _ in range(4):
                try:
                    await client.get("/")
                except QuotaExceeded:
                    outcomes.append("refused")
                else:
                    outcomes.append("sent")

        run_all(lambda: asyncio.run(four()), 2)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # no loop is left to close them on
        use()
        gc.collect()
    assert sorted(outcomes) == ["refused"] * 3 + ["sent"] * 5


def test_waiting_in_two_loops_at_once(key: str) -> None:
    """Waiters of two loops are all served, in the time that the limit gives."""
    quota = AsyncQuota(key, "20/0.2s")

    async def use() -> None:
        await asyncio.gather(*(quota.acquire() for _ in range(40)))

    with stopwatch() as took:
        run_all(lambda: asyncio.run(use()), 2)
    assert 0.6 <= took.seconds < 1.6
    assert quota.limits == (Limit(20, 0.2),)


# Processes


def run_script(text: str, *arguments: str, timeout: float = 20) -> str:
    """What a script of its own process prints; it must end well, and say nothing else."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", text, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=HOME,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout


FORK = """
import os, sys, time
from quotaclient import Quota

url, key = sys.argv[1:]
quota = Quota(key, "10/0.4s", redis=url, guard=0)
for _ in range(5):
    quota.acquire()
read, write = os.pipe()
child = os.fork()
took = []
for _ in range(10):
    quota.acquire(max_wait=20)
    took.append(time.monotonic())
if child == 0:
    os.write(write, repr(took).encode())
    os._exit(0)
os.close(write)
with os.fdopen(read) as pipe:
    theirs = eval(pipe.read())
assert os.waitpid(child, 0)[1] == 0
quota.acquire(max_wait=5)
at = sorted(took + theirs)
assert len(at) == 20
print(max(sum(1 for t in at if s <= t < s + 0.38) for s in at))
"""


def test_a_fork_shares_the_window_and_nothing_else(key: str, shared_redis: RedisServer) -> None:
    """Parent and child go on with one quota object: their own lanes, one window, right answers."""
    assert int(run_script(FORK, shared_redis.url, key)) <= 10


FORK_WITH_RESERVATIONS = """
import os, sys, threading, time, warnings
from quotaclient import Quota

warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: that is the point
url, key = sys.argv[1:]
url = None if url == "memory" else url
quota = Quota(key, "2/0.3s", redis=url, guard=0, max_wait=20)
quota.acquire(2)
waiting = [threading.Thread(target=quota.acquire) for _ in range(2)]
for thread in waiting:
    thread.start()
time.sleep(0.1)  # they wait, with reservations in hand
child = os.fork()
if child == 0:
    before = time.monotonic()
    quota.acquire()
    quota.close()
    os._exit(0 if 0.05 < time.monotonic() - before < 10 else 3)
for thread in waiting:
    thread.join()
assert os.waitpid(child, 0)[1] == 0, "the child"
print("served")
"""


def test_a_fork_in_the_middle_of_waits(key: str, redis: str | None) -> None:
    """A child made while threads wait does not hang on their locks, nor take their permits."""
    assert run_script(FORK_WITH_RESERVATIONS, redis or "memory", key) == "served\n"


FORK_ASYNC = """
import asyncio, os, sys
from quotaclient import AsyncQuota

url, key = sys.argv[1:]
quota = AsyncQuota(key, "10/min", redis=url)
async def some(number):
    for _ in range(number):
        await quota.acquire(max_wait=2)
    await quota.aclose()
async def first():
    await quota.acquire(2)
asyncio.run(first())
child = os.fork()
asyncio.run(some(3))
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "the child"
async def left():
    async with AsyncQuota(key, "10/min", redis=url) as fresh:
        return (await fresh.peek()).remaining
print(asyncio.run(left()))
"""


def test_a_fork_between_loops(key: str, shared_redis: RedisServer) -> None:
    """The async colour forks as well, between two loops: 2 + 3 + 3 of 10 are used."""
    assert run_script(FORK_ASYNC, shared_redis.url, key) == "2\n"


WAIT = {
    "sync": """
import sys
from quotaclient import QuotaClient
url, redis = sys.argv[1:]
with QuotaClient(url, limit="1/min", redis=redis or None, max_wait=None) as client:
    client.get("/")
    print("waiting", flush=True)
    client.get("/")
""",
    "async": """
import asyncio, sys
from quotaclient import AsyncQuotaClient
url, redis = sys.argv[1:]
async def main():
    async with AsyncQuotaClient(url, limit="1/min", redis=redis or None, max_wait=None) as client:
        await client.get("/")
        print("waiting", flush=True)
        await client.get("/")
asyncio.run(main())
""",
    "threads": """
import sys, threading, time
from quotaclient import QuotaClient
url, redis = sys.argv[1:]
client = QuotaClient(url, limit="1/min", redis=redis or None, max_wait=None)
client.get("/")
for _ in range(5):
    threading.Thread(target=client.get, args=("/",), daemon=True).start()
print("waiting", flush=True)
client.get("/")
""",
}


@pytest.mark.parametrize("kind", WAIT)
def test_ctrl_c_ends_a_wait(kind: str, shared_redis: RedisServer) -> None:
    """SIGINT while a request waits for its permit ends the process by KeyboardInterrupt, soon."""
    redis = None if kind == "threads" else shared_redis.url
    with (
        ScriptedUpstream(lambda received: Answer()) as upstream,
        subprocess.Popen(
            [sys.executable, "-c", WAIT[kind], upstream.url, redis or ""],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=HOME,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            with stopwatch() as took:
                _, errors = process.communicate(timeout=5)
        finally:
            process.kill()
        assert took.seconds < 1.5
        assert process.returncode in (-signal.SIGINT, 130, 1)
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert errors.count("Traceback") <= 3
        assert "Exception ignored" not in errors
        assert len(upstream.received) == 1
