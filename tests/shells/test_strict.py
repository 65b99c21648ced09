"""What the shells themselves must not spoil: strictness, and lanes that live on."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

import httpx
import pytest
import tenacity

from quotaclient import (
    AsyncQuota,
    AsyncQuotaTransport,
    Decision,
    Quota,
    QuotaClient,
    QuotaExceeded,
    QuotaTransport,
)
from quotaclient._core.ask import Answer, Ask
from quotaclient._stores.redis import AsyncRedisStore
from quotaclient.testing import Answer as HttpAnswer
from quotaclient.testing import Http2Upstream, RedisServer, ScriptedUpstream


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


class Resending(httpx.BaseTransport):
    """A transport that sends again whatever failed, below the quota."""

    def __init__(self) -> None:
        self.inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self.inner.handle_request(request)
        for _ in range(2):
            if response.status_code == 500:
                response.close()
                time.sleep(0.06)
                response = self.inner.handle_request(request)
        return response

    def close(self) -> None:
        self.inner.close()


def test_a_transport_inside_that_sends_again_pays_for_it(key: str) -> None:
    """Every departure takes a permit of its own, and one that was presented stays spent."""
    with ScriptedUpstream(lambda received: HttpAnswer(500)) as upstream:
        transport = QuotaTransport(Resending(), limit="6/s", key=key, max_wait=20)
        with httpx.Client(transport=transport) as client:
            for _ in range(4):
                client.get(upstream.url)
    at = [received.at for received in upstream.received]
    assert len(at) == 12
    assert most_in(1.0, at) <= 6


@pytest.mark.parametrize("http2", [True, False])
def test_quotas_can_be_composed(http2: bool, key: str) -> None:
    """A quota for the tenant around one for all: late ones start over where they were late."""

    async def main(url: str) -> list[int]:
        inner = AsyncQuotaTransport(
            httpx.AsyncHTTPTransport(http1=not http2, http2=http2), limit="3/0.5s", key=f"{key}-all"
        )
        outer = AsyncQuotaTransport(inner, limit="100/s", key=f"{key}-one")
        async with httpx.AsyncClient(transport=outer, timeout=5) as client:
            responses = await asyncio.gather(*(client.get(url) for _ in range(9)))
            return [response.status_code for response in responses]

    kind = Http2Upstream if http2 else ScriptedUpstream
    with kind(lambda received: HttpAnswer()) as upstream:
        since = time.monotonic()
        assert asyncio.run(main(upstream.url)) == [200] * 9
        assert time.monotonic() - since < 4


def test_a_new_base_url_has_its_own_quota(key: str) -> None:
    """A client whose base_url is set anew draws for the new origin, not for none."""
    with (
        ScriptedUpstream(lambda received: HttpAnswer()) as one,
        ScriptedUpstream(lambda received: HttpAnswer()) as two,
        QuotaClient(one.url, limit="1/min", max_wait=0) as client,
    ):
        client.get("/")
        client.base_url = httpx.URL(two.url)
        assert client.get("/").extensions["quota"].remaining == 0
        with pytest.raises(QuotaExceeded):
            client.get("/")


def test_a_policy_that_looks_at_the_next_wait_is_honoured(key: str) -> None:
    """tenacity's stop_before_delay is told the back-off that would come."""
    policy = tenacity.Retrying(stop=tenacity.stop_before_delay(0.5), wait=tenacity.wait_fixed(0.3))
    with (
        ScriptedUpstream(lambda received: HttpAnswer(429)) as upstream,
        QuotaClient(upstream.url, limit="9/min", key=key, retry=policy) as client,
    ):
        assert client.get("/").extensions["quota"].attempts == 2
