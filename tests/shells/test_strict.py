"""What the shells themselves must not spoil: strictness, and lanes that live on."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from quotaclient import AsyncQuota, Decision, Quota, QuotaExceeded
from quotaclient._core.ask import Answer, Ask
from quotaclient._stores.redis import AsyncRedisStore
from quotaclient.testing import RedisServer


def most_in(seconds: float, instants: list[float]) -> int:
    """The most of them in any so many seconds."""
    return max(sum(at - seconds < other <= at for other in instants) for at in instants)


def test_a_permit_that_expired_before_its_task_ran_is_not_used(key: str) -> None:
    """A loop that is busy when permits are handed out does not make `acquire` go over."""

    async def main() -> list[float]:
        quota, instants = AsyncQuota(key, "5/s"), []

        async def draw() -> None:
            await quota.acquire()
            instants.append(time.monotonic())

        tasks = [asyncio.create_task(draw()) for _ in range(15)]
        await asyncio.sleep(0.05)
        for _ in range(6):
            time.sleep(0.45)  # noqa: ASYNC251 - somebody's slow code
            await asyncio.sleep(0.02)
        await asyncio.gather(*tasks)
        await quota.aclose()
        return instants

    assert most_in(1.0, asyncio.run(main())) <= 5


@pytest.mark.parametrize("limit", ["1/0.3s", "50/s"])
def test_a_lane_outlives_the_cancelling_of_all_tasks(
    limit: str, key: str, redis: str | None
) -> None:
    """The usual shutdown, cancelling every task of the loop, takes no lane with it."""

    async def main() -> None:
        quota = AsyncQuota(key, limit, redis=redis)
        for turns in range(4):
            tasks = [asyncio.create_task(quota.acquire()) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            async with asyncio.timeout(2.5):
                await quota.acquire()
        async with asyncio.timeout(1):
            await quota.aclose()

    asyncio.run(main())


def test_who_waits_for_one_window_does_not_keep_back_who_does_not_draw_on_it(key: str) -> None:
    """Tokens that are used up are no reason for a request without tokens to wait, or be refused."""
    with Quota(key, "100/min; 1000 tokens/min") as quota:
        quota.acquire({"requests": 1, "tokens": 900})
        waiting = threading.Thread(target=lambda: _give_up(quota))
        waiting.start()
        time.sleep(0.05)
        assert quota.acquire({"requests": 1}, max_wait=0).waited < 0.5
        with pytest.raises(QuotaExceeded) as caught:
            quota.acquire({"tokens": 500}, max_wait=0)
        assert caught.value.limit is not None
        assert caught.value.limit.name == "tokens"
    waiting.join()


def _give_up(quota: Quota) -> None:
    with suppress(QuotaExceeded, RuntimeError):
        quota.acquire({"tokens": 500}, max_wait=None)


def test_thousands_of_keys_in_use_cost_no_more_each(key: str) -> None:
    """Eight times the keys, all with somebody waiting, take about eight times as long."""

    async def seconds(keys: int) -> float:
        quota = AsyncQuota("unused", "1/min")
        for number in range(keys):
            await quota.acquire(key=f"{key}-{keys}-{number}")
        since = time.perf_counter()
        tasks = [
            asyncio.create_task(quota.acquire(key=f"{key}-{keys}-{number}", max_wait=None))
            for number in range(keys)
        ]
        await asyncio.sleep(0)
        taken = time.perf_counter() - since
        await quota.aclose()
        await asyncio.gather(*tasks, return_exceptions=True)
        return taken

    assert asyncio.run(seconds(6000)) <= 40 * asyncio.run(seconds(750))


def test_one_ask_is_under_way_at_a_time(key: str, shared_redis: RedisServer) -> None:
    """Who asks between an answer and the end of the task that heard it starts the only ask."""

    async def main() -> None:
        quota = AsyncQuota(key, "10000/s", redis=shared_redis.url)
        under_way, most = 0, 0
        reserve = AsyncRedisStore.reserve

        async def counted(self: AsyncRedisStore, ask: Ask) -> Answer:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                return await reserve(self, ask)
            finally:
                under_way -= 1

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AsyncRedisStore, "reserve", counted)

            tasks: list[asyncio.Task[Decision]] = []
            for _ in range(500):  # one comes in every turn of the loop
                tasks.append(asyncio.create_task(quota.acquire()))
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)
        await quota.aclose()
        assert most == 1

    asyncio.run(main())
