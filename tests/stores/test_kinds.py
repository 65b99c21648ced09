"""All kinds of limits in one call: long sequences in Redis and in Python, with the same replies."""

from __future__ import annotations

from random import Random

import pytest
import redis

from quotaclient._core.account import Account
from quotaclient._core.ask import Ask, GiveBack, Group, Sent, Ticket
from quotaclient._core.limits import Limit
from quotaclient._core.window import MAX_RUNS
from quotaclient._stores.scripts import RESERVE, RESERVE_KINDS, reserve_script, window_keys
from tests.stores.test_law import AUTUMN, SECOND, SPRING, LuaAccount, client

__all__ = ["client"]

ZONES = ["UTC", "America/Los_Angeles", "America/Havana", "Asia/Kolkata"]


def some_limit(random: Random, number: int) -> Limit:
    """A limit of any kind, with a window of its own."""
    name, count = f"window{number}", random.choice([1, 3, 10, 30])
    kind = random.choice(["sliding", "fixed", "bucket", "bucket"])
    if kind == "sliding":
        return Limit(count, random.choice([450, 1000]), name=name)
    if kind == "fixed":
        period = random.choice([450, 900, 2700, 7200, 86_400])
        return Limit(count, period, name=name, kind="fixed", zone=random.choice(ZONES))
    return Limit(count, 450, name=name, kind="bucket", burst=random.choice([1, 4, 40]))


class Sequence:
    """Asks on both, with what was granted."""

    def __init__(self, random: Random, lua: LuaAccount) -> None:
        self.random = random
        self.python, self.lua = Account(), lua
        self.limits = tuple(some_limit(random, i) for i in range(random.randint(1, 3)))
        self.now = random.choice([SECOND, SPRING, AUTUMN])
        self.granted: list[GiveBack] = []

    def step(self) -> None:
        """One ask, of whatever there may be in one."""
        random = self.random
        self.now += random.choice([0, 0, 1, SECOND, 20 * SECOND, random.randint(0, 300 * SECOND)])
        costs = [
            tuple(random.randint(0, min(limit.most, 6)) for limit in self.limits) for _ in "ab"
        ]
        ask = Ask(
            "key",
            self.limits,
            random.choice("ab"),
            random.choice([0, SECOND, 100 * SECOND]),
            tuple(
                Group(random.randint(1, 5), cost, random.choice([0, 0, 0, 200 * SECOND]))
                for cost in costs[: random.randint(0, 2)]
            ),
            random.choice([None, 0, 600 * SECOND]),
            tuple(self.returned() for _ in range(random.choice([0, 0, 1, 2])) if self.granted),
            tuple(self.sent() for _ in range(random.choice([0, 0, 0, 1]))),
            random.choice([True, False]),
        )
        reply = self.python.reserve(ask, self.now)
        assert self.lua.reserve(ask, self.now) == reply
        for grant in reply.grants:
            ticket = Ticket("store", reply.generations, grant.at, grant.at + ask.guard, grant.at)
            self.granted.append(GiveBack(ticket, grant.costs))

    def returned(self) -> GiveBack:
        """A permit that was not used, or for more than it is worth."""
        place = self.random.randrange(max(0, len(self.granted) - 12), len(self.granted))
        if self.random.random() < 0.2:
            ticket, costs = self.granted[place]
            return GiveBack(ticket, tuple(-2 * cost for cost in costs))
        return self.granted[place]

    def sent(self) -> Sent:
        """What was sent elsewhere, a while ago."""
        ago = self.random.randint(-10, 600) * SECOND
        until = ago - self.random.choice([0, SECOND, 60 * SECOND])
        return Sent(self.random.randrange(len(self.limits)), ago, until, self.random.randint(1, 3))


@pytest.mark.parametrize("seed", range(60))
def test_long_sequences(seed: int, client: redis.Redis) -> None:
    """Whatever is asked, given back, settled and told, both reply the same to the microsecond."""
    sequence = Sequence(Random(seed), LuaAccount(client, f"sequence-{seed}"))
    for _ in range(150):
        sequence.step()


@pytest.mark.parametrize(
    "limit",
    [Limit(1, 450, kind="bucket", burst=10**6), Limit(10**6, 450, kind="fixed")],
    ids=str,
)
def test_records_stay_small(limit: Limit, client: redis.Redis) -> None:
    """However much is booked a record keeps to 4 KB, and both join alike what they join."""
    python, lua = Account(), LuaAccount(client, f"small-{limit.kind}")
    for i in range(2 * MAX_RUNS):
        ask = Ask("key", (limit,), "lane", SECOND * (i % 3), (Group(2, (1,), i * 7 * SECOND),))
        assert lua.reserve(ask, SECOND + i) == python.reserve(ask, SECOND + i)
    (record,) = window_keys(f"small-{limit.kind}", "key", (limit,))
    size = client.memory_usage(record)
    assert isinstance(size, int)
    assert size <= 4096


def test_sliding_asks_do_not_pay_for_other_kinds() -> None:
    """The parts for other kinds are in a script that only their asks run."""
    sliding, bucket = Limit(10, 60), Limit(2, 1, kind="bucket", burst=40)
    assert reserve_script(Ask("key", (sliding,), "lane", 0)) is RESERVE
    assert reserve_script(Ask("key", (sliding, bucket), "lane", 0)) is RESERVE_KINDS
    assert "Buckets" not in RESERVE.text
    assert "Buckets" in RESERVE_KINDS.text


def test_keys_of_other_kinds_expire(client: redis.Redis) -> None:
    """A record of any kind is gone soon after it says nothing any more."""
    limits = (Limit(2, 1, kind="bucket", burst=40), Limit(50, 60, kind="fixed"))
    LuaAccount(client, "kinds").reserve(
        Ask("key", limits, "lane", 0, (Group(40, (1, 1)),)), 50 * SECOND
    )
    bucket, fixed = (client.pttl(key) for key in window_keys("kinds", "key", limits))
    assert 19_000 < bucket <= 20_100
    assert 9_000 < fixed <= 12_000


def test_a_debt_of_any_size_is_kept(client: redis.Redis) -> None:
    """A bucket that is empty for longer than there will be a Redis is a record like any other."""
    limit = Limit(1, 366 * 86_400, kind="bucket", burst=10**12)
    ask = Ask("key", (limit,), "lane", 0, (Group(1, (10**12,)),))
    lua = LuaAccount(client, "endless")
    assert lua.reserve(ask, SECOND) == Account().reserve(ask, SECOND)
    assert lua.reserve(Ask("key", (limit,), "lane", 0), SECOND).used == (10**12,)
