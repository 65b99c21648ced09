"""The limiters that quotaclient is compared with, each used as its own documentation says.

All of them share a limit through Redis but aiolimiter and httpx-limiter, which know one process
only. They are no dependency of anything: who is not installed is left out, and said to be
(`pip install -e '.[bench]'` installs all). Their packages are imported where they are used, and
taken as untyped, so that the type checker says the same with and without them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module, metadata
from secrets import token_hex

import httpx
import redis.asyncio as redis_async

from quotaclient import AsyncQuota, Limit
from tests.bench.sending import Acquire, Gated

PATIENCE = 600.0  # seconds that whoever must name one waits at most: longer than any bench

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
class Gate:
    """An open limiter. `around` puts it before a transport, in its own way if it has one."""

    acquire: Acquire
    own_transport: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport] | None = None

    def around(self, inner: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
        """A transport that waits at this gate and then sends through `inner`."""
        return self.own_transport(inner) if self.own_transport else Gated(inner, self.acquire)


Opening = AbstractAsyncContextManager[Gate]


@asynccontextmanager
async def _quota(redis: str | None, limit: Limit) -> AsyncIterator[Gate]:
    async with AsyncQuota("bench", limit, redis=redis, max_wait=None) as quota:
        yield Gate(quota.acquire)


@asynccontextmanager
async def _sorted_set(redis: str | None, limit: Limit) -> AsyncIterator[Gate]:
    assert redis is not None
    async with redis_async.Redis.from_url(redis) as store:
        allow = store.register_script(SORTED_SET)
        period = round(limit.period * 1e6)
        me = token_hex(4)
        names = (f"{me}-{number}" for number in itertools.count())

        async def acquire() -> None:
            arguments: list[str | int] = [limit.count, period, next(names)]
            while wait := int(await allow(["plain"], arguments)):  # noqa: ASYNC110 - so it is done
                await asyncio.sleep(wait / 1e6)

        yield Gate(acquire)


@asynccontextmanager
async def _pyrate_limiter(redis: str | None, limit: Limit) -> AsyncIterator[Gate]:
    """A RedisBucket on an async client, waited for with `try_acquire_async`, buffer as it comes."""
    pyrate = import_module("pyrate_limiter")
    assert redis is not None
    async with redis_async.Redis.from_url(redis) as store:
        rate = pyrate.Rate(limit.count, round(limit.period * 1000))
        bucket = await pyrate.RedisBucket.init([rate], store, "bench")
        with pyrate.Limiter(bucket) as limiter:
            yield Gate(partial(limiter.try_acquire_async, "bench"))


@asynccontextmanager
async def _limits(redis: str | None, limit: Limit) -> AsyncIterator[Gate]:
    """The moving window, and the loop of its documentation: sleep until `reset_time`, try again."""
    limits, storages = import_module("limits"), import_module("limits.aio.storage")
    strategies = import_module("limits.aio.strategies")
    # redis-py, as all others here; by default it takes coredis
    storage = storages.RedisStorage(f"async+{redis}", implementation="redispy")
    window = strategies.MovingWindowRateLimiter(storage)
    item = limits.RateLimitItemPerSecond(limit.count, _whole(limit.period))

    async def acquire() -> None:
        while not await window.hit(item, "bench"):
            stats = await window.get_window_stats(item, "bench")
            await asyncio.sleep(max(0.0, stats.reset_time - time.time()))

    try:
        yield Gate(acquire)
    finally:
        await storage.bridge.get_connection().aclose()


@asynccontextmanager
async def _throttled(redis: str | None, limit: Limit, algorithm: str) -> AsyncIterator[Gate]:
    """Wait and retry by `timeout`. GCRA with burst = limit is the algorithm of its example."""
    throttled = import_module("throttled.asyncio")
    throttle = throttled.Throttled(
        key="bench",
        timeout=PATIENCE,
        using=algorithm,
        quota=throttled.per_duration(timedelta(seconds=_whole(limit.period)), limit.count),
        store=throttled.RedisStore(server=redis, options={}),
    )

    async def acquire() -> None:
        if (await throttle.limit()).limited:
            raise TimeoutError("throttled-py gave up")

    yield Gate(acquire)


@asynccontextmanager
async def _aiolimiter(redis: str | None, limit: Limit) -> AsyncIterator[Gate]:
    yield Gate(import_module("aiolimiter").AsyncLimiter(limit.count, limit.period).acquire)


@asynccontextmanager
async def _httpx_limiter(redis: str | None, limit: Limit) -> AsyncIterator[Gate]:
    """Its transport with its pyrate-limiter in memory, as in its tutorial."""
    ours, pyrate = import_module("httpx_limiter"), import_module("httpx_limiter.pyrate")
    limiter = pyrate.PyrateAsyncLimiter.create(ours.Rate.create(limit.count, limit.period))
    transport = ours.AsyncRateLimitedTransport

    def around(inner: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
        wrapped: httpx.AsyncBaseTransport = transport(limiter=limiter, transport=inner)
        return wrapped

    yield Gate(limiter.__aenter__, around)


def _whole(period: float) -> int:
    """Seconds, for limiters that know whole ones only."""
    if period % 1:
        raise ValueError(f"a period of {period} s: limits and throttled-py take whole seconds only")
    return int(period)


def version_of(package: str) -> str | None:
    """The version that is installed, None if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Contender:
    """Whom a bench measures. `package`: the distribution that brings it, None if it stands here.

    `shared`: it shares a limit through Redis. `ours`: it is quotaclient.
    """

    open: Callable[[str | None, Limit], Opening]
    package: str | None = None
    shared: bool = True
    ours: bool = False

    @property
    def installed(self) -> bool:
        """Whether it can be measured here."""
        return self.package is None or version_of(self.package) is not None


# The first three are quotaclient: its two clients on Redis, and the async one without.
CONTENDERS = {
    "async": Contender(_quota, ours=True),
    "threads": Contender(_quota, ours=True),
    "in process": Contender(_quota, shared=False, ours=True),
    "pyrate-limiter": Contender(_pyrate_limiter, "pyrate-limiter"),
    "limits": Contender(_limits, "limits"),
    "throttled gcra": Contender(partial(_throttled, algorithm="gcra"), "throttled-py"),
    "throttled sliding": Contender(partial(_throttled, algorithm="sliding_window"), "throttled-py"),
    "sorted-set": Contender(_sorted_set),
    "aiolimiter": Contender(_aiolimiter, "aiolimiter", shared=False),
    "httpx-limiter": Contender(_httpx_limiter, "httpx-limiter", shared=False),
}
