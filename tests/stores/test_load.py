"""Redis and a process under load: the same asks of the same lanes are answered alike."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import redis

from quotaclient._core.ask import Ask, Reply
from quotaclient._core.limits import Limit
from quotaclient.testing import RedisServer
from tests.core.load import demand
from tests.core.world import SECOND, Shell, World
from tests.stores.test_law import LuaAccount

MS = SECOND // 1000
# Long periods: Redis forgets by its own clock, which is slower than a world's.
LIMITS = [
    (Limit(1000, 20),),
    (Limit(300, 20), Limit(900, 60, name="slow")),
    (Limit(500, 20), Limit(20, 1, kind="bucket", burst=500, name="level")),
    (Limit(500, 3600, kind="fixed", name="hourly"), Limit(200, 20)),
]


@pytest.fixture(scope="module")
def client(shared_redis: RedisServer) -> Any:
    """A plain client of the shared server."""
    with redis.Redis(port=shared_redis.port) as client:
        yield client


@pytest.mark.parametrize("guards", [[1], [1, 2]], ids=["one guard", "two guards"])
@pytest.mark.parametrize("limits", LIMITS, ids=lambda limits: "; ".join(map(str, limits)))
def test_redis_and_a_process_answer_alike(
    client: redis.Redis, limits: tuple[Limit, ...], guards: list[int]
) -> None:
    """More runs than are kept, guards that differ, cancelling and settling: the same replies."""
    world, random = World(limits, seed=1, trip=5 * MS, late=20 * MS), Random(1)
    lua = LuaAccount(client, f"load-{limits[0]}-{len(guards)}")
    reserve, answered = world.reserve, 0

    def both(ask: Ask) -> Reply:
        nonlocal answered
        reply, answered = reserve(ask), answered + 1
        assert lua.reserve(ask, world.now) == reply
        return reply

    def trouble(shell: Shell) -> None:
        waiters = list(shell.lane._queue)[:2]
        for waiter in waiters:
            shell.cancel(waiter)
        for sent in world.departures[-2:]:
            if sent.shell is shell and min(sent.costs) > 0:
                shell.correct(sent, tuple(random.choice([0, 1, -1]) for _ in limits))
        world.at(world.now + random.randint(10 * MS, 900 * MS), lambda: trouble(shell))

    world.reserve = both  # type: ignore[method-assign]
    for number in range(8):
        shell = world.lane(f"lane-{number}")
        shell.lane._guard.value *= random.choice(guards)
        demand(shell, 20, lambda: (random.randint(1, 3),) * len(limits))
        trouble(shell)
    world.run(world.now + 65 * SECOND)
    assert answered > 100
