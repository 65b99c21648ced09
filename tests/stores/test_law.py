"""One law, twice: Lua in a real Redis and Python give the same replies, and neither breaks it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from quotaclient._core.account import Account
from quotaclient._core.ask import Ask, GiveBack, Group, Reply, Sent, Ticket
from quotaclient._core.calendar import Calendar
from quotaclient._core.limits import Limit
from quotaclient._stores.scripts import (
    HOLD,
    RESET,
    hold_key,
    parse_reply,
    reserve_args,
    reserve_keys,
    reserve_script,
    window_keys,
)
from quotaclient.testing import RedisServer

SECOND = 1_000_000
CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases" / "window.jsonl").read_text().splitlines()
]


# Clocks are set in Los Angeles an hour and ten minutes later, and ten minutes.
SPRING, AUTUMN = (
    int(datetime(2024, month, day, hour, 50, tzinfo=UTC).timestamp()) * SECOND
    for month, day, hour in ((3, 10, 8), (11, 3, 8))
)
COUNTS = st.integers(1, 12)
SLIDING = st.builds(Limit, COUNTS, st.sampled_from([20, 100, 450]))
FIXED = st.builds(
    Limit,
    COUNTS,
    st.sampled_from([450, 2700, 7200, 86_400]),
    kind=st.just("fixed"),
    zone=st.sampled_from(["UTC", "America/Los_Angeles", "Asia/Kolkata"]),
)
BUCKETS = st.builds(
    Limit, COUNTS, st.sampled_from([450, 600]), kind=st.just("bucket"), burst=st.integers(1, 40)
)


class LuaAccount:
    """`lua/reserve.lua` with the face of `Account`."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self.client = client
        self.prefix = prefix

    def reserve(self, ask: Ask, now: int) -> Reply:
        keys, args = reserve_keys(self.prefix, ask), reserve_args(ask, now, now)
        answer = self.client.eval(reserve_script(ask).text, len(keys), *keys, *args)
        return parse_reply(ask, answer)

    def raise_hold(self, key: str, now: int, wait: int) -> None:
        self.client.eval(HOLD.text, 1, hold_key(self.prefix, key), now, wait)

    def reset(self, key: str, limits: tuple[Limit, ...]) -> None:
        keys = window_keys(self.prefix, key, limits)
        self.client.eval(RESET.text, len(keys), *keys)


@pytest.fixture(scope="module")
def client(shared_redis: RedisServer) -> Any:
    """A plain client of the shared server."""
    with redis.Redis(port=shared_redis.port) as client:
        yield client


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_worked_sequences(case: dict[str, Any], client: redis.Redis) -> None:
    """In Redis every ask of a worked sequence gets the instant that it states."""
    limits = tuple(
        Limit(count, period, name=f"window{i}") for i, (count, period) in enumerate(case["limits"])
    )
    account = LuaAccount(client, f"case-{case['id']}")
    lives = (0,) * len(limits)
    for step in case["steps"]:
        now, guard = step["now"] * SECOND, step["guard"] * SECOND
        if step["op"] == "give_back":
            at = step["at"] * SECOND
            returned = GiveBack(Ticket("store", lives, at, at + guard, at), tuple(step["costs"]))
            lives = account.reserve(
                Ask("key", limits, "lane", guard, returns=(returned,)), now
            ).generations
            continue
        max_wait = step["max_wait"] * SECOND if "max_wait" in step else None
        groups = (Group(1, tuple(step["costs"])),)
        reply = account.reserve(Ask("key", limits, "lane", guard, groups, max_wait), now)
        lives = reply.generations
        told = reply.grants[0].at if reply.grants else reply.refusal and reply.refusal.at
        assert (bool(reply.grants), told) == (step["granted"], step["at"] * SECOND), step


class Law(RuleBasedStateMachine):
    """Asks, give-backs, holds, sends and resets, on both, with time going on.

    Every granted unit may arrive anywhere in its [at, by]. At no instant may more of them be
    able to have arrived within the last period than the limit of the ask that booked last.
    Redis lets keys expire by its own clock, so nothing here ends within ten seconds of now.
    """

    client: redis.Redis
    machines = 0

    @initialize(
        limits=st.lists(SLIDING | FIXED | BUCKETS, min_size=1, max_size=3),
        now=st.integers(0, 10**6) | st.sampled_from([SPRING, AUTUMN]),
    )
    def begin(self, limits: list[Limit], now: int) -> None:
        Law.machines += 1
        self.python = Account()
        self.lua = LuaAccount(self.client, f"law-{Law.machines}")
        self.limits = tuple(replace(limit, name=f"window{i}") for i, limit in enumerate(limits))
        self.now = now
        self.granted: list[GiveBack] = []

    def both(self, ask: Ask) -> Reply:
        reply = self.python.reserve(ask, self.now)
        assert self.lua.reserve(ask, self.now) == reply
        return reply

    @rule(data=st.data(), tick=st.integers(0, 40 * SECOND) | st.sampled_from([600 * SECOND]))
    def ask(self, data: st.DataObject, tick: int) -> None:
        self.now += tick
        costs = st.tuples(*(st.integers(0, limit.most) for limit in self.limits))
        after = st.sampled_from([0, 0, 10 * SECOND])
        groups = st.lists(st.builds(Group, st.integers(1, 15), costs, after), max_size=3)
        ask = Ask(
            key="key",
            limits=self.limits,
            lane=data.draw(st.sampled_from(["a", "b", "c"])),
            guard=data.draw(st.sampled_from([0, 500_000, 10 * SECOND])),
            groups=tuple(data.draw(groups)),
            max_wait=data.draw(st.none() | st.integers(0, 300 * SECOND)),
            returns=tuple(self.drawn_returns(data)),
            greets=data.draw(st.booleans()),
        )
        reply = self.both(ask)
        for grant in reply.grants:
            ticket = Ticket("store", reply.generations, grant.at, grant.at + ask.guard, grant.at)
            self.granted += [GiveBack(ticket, grant.costs)] * grant.requests
        self.never_over()

    def drawn_returns(self, data: st.DataObject) -> list[GiveBack]:
        """Some of what was granted and cannot have left yet."""
        returns: list[GiveBack] = []
        for _ in range(data.draw(st.integers(0, 3))):
            ahead = [one for one in self.granted if one.ticket.by >= self.now]
            if ahead:
                one = data.draw(st.sampled_from(ahead))
                self.granted.remove(one)
                returns.append(one)
        return returns

    @rule(wait=st.just(0) | st.integers(10 * SECOND, 200 * SECOND))
    def hold(self, wait: int) -> None:
        self.python.raise_hold(self.now + wait)
        self.lua.raise_hold("key", self.now, wait)

    @rule(ago=st.integers(-1, 50), units=st.integers(1, 3), data=st.data())
    def send_elsewhere(self, ago: int, units: int, data: st.DataObject) -> None:
        window = data.draw(st.sampled_from(range(len(self.limits))))
        ago *= 10 * SECOND
        sent = Sent(window, ago, ago - data.draw(st.sampled_from([0, 10 * SECOND])), units)
        self.both(Ask("key", self.limits, "a", 0, sent=(sent,)))

    @rule(more=st.integers(1, 5), data=st.data())
    def settle_more(self, more: int, data: st.DataObject) -> None:
        """What was sent on top of a permit counts, in whichever life of the record."""
        if self.granted:
            ticket, costs = data.draw(st.sampled_from(self.granted))
            returned = GiveBack(ticket, tuple(-more * (cost > 0) for cost in costs))
            self.both(Ask("key", self.limits, "a", 0, returns=(returned,)))

    @rule()
    def reset(self) -> None:
        for limit in self.limits:
            self.python.window(limit).reset()
        self.lua.reset("key", self.limits)
        self.granted.clear()

    def never_over(self) -> None:
        for i, limit in enumerate(self.limits):
            granted = [
                (ticket.at, ticket.by, costs[i]) for ticket, costs in self.granted if costs[i]
            ]
            if limit.kind == "bucket":
                for at, _, _ in granted:
                    assert highest(granted, at, limit) <= limit.most + 1e-6
                continue
            spans = [(*self.span(limit, at, by), units) for at, by, units in granted]
            for instant, _, _ in spans:
                within = sum(units for at, end, units in spans if at <= instant < end)
                assert within <= limit.count

    def span(self, limit: Limit, at: int, by: int) -> tuple[int, int]:
        """What a unit occupies that may arrive anywhere in [at, by]."""
        if limit.zone is None:
            return at, by + limit.period_us
        calendar = Calendar.of(limit.zone, limit.period_us, self.now)
        return (
            calendar.bounds(at, limit.period_us)[0],
            calendar.bounds(by, limit.period_us)[1],
        )


def highest(granted: list[tuple[int, int, int]], instant: int, limit: Limit) -> float:
    """The level of a bucket where all arrive by an instant that may, as late as they may."""
    level, last = 0.0, 0
    for arrival, units in sorted(
        (min(by, instant), units) for at, by, units in granted if at <= instant
    ):
        level = max(0.0, level - (arrival - last) * limit.count / limit.period_us) + units
        last = arrival
    return level


def test_both_give_the_same_replies_and_never_too_much(client: redis.Redis) -> None:
    """Lua and Python agree on every reply, and no instant ever sees more than the limit."""
    Law.client = client
    run_state_machine_as_test(
        Law,
        settings=settings(
            max_examples=150,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_records_of_many_runs_are_joined_alike(client: redis.Redis) -> None:
    """Past the exact runs both join the same neighbours, and the record keeps to 4 KB."""
    limit = Limit(10**6, 3600)
    python, lua = Account(), LuaAccount(client, "many")
    for i in range(400):
        groups = (Group(1 + i % 3, (1,)),)
        ask = Ask("key", (limit,), "lane", 50_000 + 1000 * (i % 5), groups)
        now = SECOND + i * i * 977
        assert lua.reserve(ask, now) == python.reserve(ask, now)
    (record,) = window_keys("many", "key", (limit,))
    look = Ask("key", (limit,), "lane", 0)
    assert lua.reserve(look, now) == python.reserve(look, now)
    size: Any = client.memory_usage(record)
    assert size <= 4096


def test_every_key_expires(client: redis.Redis) -> None:
    """Nothing is left in Redis once it says nothing any more."""
    lua, limits = LuaAccount(client, "expiry"), (Limit(1, 2), Limit(9, 60))
    lua.reserve(Ask("key", limits, "lane", 0, (Group(2, (1, 1)),)), SECOND)
    lua.raise_hold("key", SECOND, 5 * SECOND)
    lua.reset("key", limits)
    lives = {key: client.pttl(key) for key in client.scan_iter("expiry:*")}
    assert len(lives) == 4
    assert all(0 < life <= 65_000 for life in lives.values()), lives


def test_keys_of_one_account_share_a_slot() -> None:
    """All keys of an ask carry the same hash tag, so a cluster keeps them together."""
    ask = Ask("abc", (Limit(1, 2), Limit(9, 60)), "lane", 0)
    assert {key.split("{")[1].split("}")[0] for key in reserve_keys("quota", ask)} == {"abc"}
