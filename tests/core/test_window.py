"""The booking rule in Python: the worked sequences, and what they leave out."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotaclient._core.account import Account, window_name
from quotaclient._core.ask import Ask, GiveBack, Group, Sent, Ticket
from quotaclient._core.limits import Limit
from quotaclient._core.window import MAX_RUNS, Run, Window

SECOND = 1_000_000
CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases" / "window.jsonl").read_text().splitlines()
]


def limits_of_case(case: dict[str, Any]) -> tuple[Limit, ...]:
    """The limits of a worked sequence, each with a window of its own."""
    return tuple(
        Limit(count, period, name=f"window{i}") for i, (count, period) in enumerate(case["limits"])
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_worked_sequences(case: dict[str, Any]) -> None:
    """Every ask of a worked sequence is granted, or refused, with the instant that it states."""
    account, limits = Account(), limits_of_case(case)
    for step in case["steps"]:
        now, guard = step["now"] * SECOND, step["guard"] * SECOND
        if step["op"] == "give_back":
            at = step["at"] * SECOND
            lives = tuple(account.window(limit).generation for limit in limits)
            ticket = Ticket("local", lives, at, at + guard, at)
            returned = GiveBack(ticket, tuple(step["costs"]))
            account.reserve(Ask("", limits, "lane", guard, returns=(returned,)), now)
            continue
        max_wait = step["max_wait"] * SECOND if "max_wait" in step else None
        groups = (Group(1, tuple(step["costs"])),)
        reply = account.reserve(Ask("", limits, "lane", guard, groups, max_wait), now)
        told = reply.grants[0].at if reply.grants else reply.refusal and reply.refusal.at
        assert (bool(reply.grants), told) == (step["granted"], step["at"] * SECOND), step


def filled(runs: list[tuple[int, int, int]], period: int = 10) -> Window:
    """A window with these runs, in its first life, 1."""
    window = Window(period)
    for at, by, units in runs:
        window.book(at, by, units, now=1)
    return window


def test_short_way_is_now() -> None:
    """While the total leaves room, a request goes now, whatever lies ahead."""
    window = filled([(100, 100, 2)])
    assert window.first_fit(5, 1, limit=3, guard=0) == (5, 2)


def test_gap_between_runs_must_hold_guard_and_period() -> None:
    """A gap fits a request only if it lasts as long as the request would occupy it."""
    window = filled([(0, 0, 1), (22, 22, 1)])
    assert window.first_fit(5, 1, limit=1, guard=0) == (10, 0)
    assert window.first_fit(5, 1, limit=1, guard=3) == (32, 0)


def test_peak_is_the_most_from_the_fit_on() -> None:
    """What is left of a window is judged by its fullest instant, not by its first."""
    window = filled([(0, 0, 3), (8, 8, 2), (9, 9, 1)])
    assert window.first_fit(1, 1, limit=5, guard=0) == (10, 3)


def test_one_instant_may_have_several_changes() -> None:
    """A run that ends as another begins leaves no room between them."""
    window = filled([(0, 0, 2), (10, 10, 2)])
    assert window.first_fit(1, 1, limit=2, guard=0) == (20, 0)


def test_equal_runs_are_one() -> None:
    """Units with the same times share a run, also behind one with another guard."""
    window = filled([(5, 5, 1), (5, 7, 1), (5, 5, 1), (3, 3, 1)])
    assert window.runs == [Run(3, 3, 1), Run(5, 5, 2), Run(5, 7, 1)]


def test_beyond_the_exact_runs_neighbours_are_joined() -> None:
    """The record stays at its size; what is joined counts from its earliest to its latest."""
    window = filled([(i * 100, i * 100, 1) for i in range(MAX_RUNS)], period=10**6)
    assert len(window.runs) == MAX_RUNS
    window.book(12_703, 12_705, 2, now=1)
    assert len(window.runs) == MAX_RUNS // 2 + 1
    assert window.runs[0] == Run(0, 100, 2)
    assert window.runs[-2:] == [Run(12_600, 12_700, 2), Run(12_703, 12_705, 2)]
    assert window.total == MAX_RUNS + 2


def test_what_lies_far_apart_is_not_joined() -> None:
    """Of a third at least, the nearest, two and two are made one; the others stay as they are."""
    near = [(i, i, 1) for i in range(MAX_RUNS // 2)]
    far = [(i * 1_000, i * 1_000, 1) for i in range(1, MAX_RUNS // 2 + 2)]
    window = filled(near + far, period=10**6)
    assert [run.units for run in window.runs] == [2] * (MAX_RUNS // 4) + [1] * (len(far))


def test_give_back_is_for_one_life() -> None:
    """A permit of an earlier life of the record, or one that is over, gives nothing back."""
    window = filled([(5, 5, 1)])
    window.give_back(generation=2, at=5, by=5, units=1, now=6)
    window.give_back(generation=1, at=5, by=5, units=1, now=15)
    assert window.total == 1
    window.give_back(generation=1, at=5, by=5, units=7, now=14)
    assert (window.total, window.runs) == (0, [])


def test_give_back_takes_from_a_run_that_covers_it() -> None:
    """Of joined runs the one gives that from now on counts no longer than any that may hold it."""
    window = filled([(0, 9, 4)], period=100)
    window.give_back(1, at=3, by=4, units=1, now=20)
    assert window.runs == [Run(0, 9, 3)]
    window.book(2, 6, 2, now=1)
    window.give_back(1, at=3, by=4, units=1, now=20)
    assert window.runs == [Run(0, 9, 3), Run(2, 6, 1)]


def test_give_back_takes_from_none_where_that_is_not_known() -> None:
    """The run that ends first does not start last, and both lie ahead."""
    window = filled([(5, 9, 4), (7, 12, 4)], period=100)
    window.give_back(1, at=8, by=9, units=1, now=4)
    assert window.total == 8
    window.give_back(1, at=8, by=9, units=1, now=7)
    assert window.runs == [Run(5, 9, 3), Run(7, 12, 4)]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_records_that_are_joined_never_admit_too_much(seed: int) -> None:
    """However much is joined and given back: what may arrive in a period is within the limit."""
    chance, limit = random.Random(seed), Limit(30, 10)
    account, now, granted = Account(), SECOND, list[tuple[GiveBack, int]]()
    with mock.patch("quotaclient._core.window.MAX_RUNS", chance.choice([3, 6])):
        for _ in range(80):
            now += chance.randint(0, SECOND // 2)
            returns = [one for one in granted if one[0].ticket.by > now and chance.random() < 0.3]
            granted = [one for one in granted if one not in returns]
            guard = chance.choice([0, SECOND, 4 * SECOND])
            groups = (Group(chance.randint(1, 4), (chance.randint(1, 6),)),)
            patience = chance.choice([0, 3 * SECOND, None])
            back = tuple(one for one, _ in returns)
            reply = account.reserve(
                Ask("key", (limit,), "lane", guard, groups, patience, returns=back), now
            )
            for grant in reply.grants:
                ticket = Ticket("store", reply.generations, grant.at, grant.at + guard, grant.at)
                granted += [(GiveBack(ticket, grant.costs), n) for n in range(grant.requests)]
            spans = [(one.ticket.at, one.ticket.by + limit.period_us, one.costs[0])
                     for one, _ in granted]  # fmt: skip
            for instant, _, _ in spans:
                assert sum(units for at, end, units in spans if at <= instant < end) <= limit.count


def test_a_life_ends_with_its_last_unit() -> None:
    """When nothing occupies the window any more, the next booking begins a new life."""
    window = filled([(5, 6, 1)])
    window.forget(15)
    assert window.generation == 1
    window.forget(16)
    assert (window.generation, window.total, window.runs) == (0, 0, [])
    window.book(20, 20, 1, now=20)
    assert window.generation == 20


def test_reset_keeps_the_life() -> None:
    """A reset empties the record but is no loss of data."""
    window = filled([(5, 6, 3)])
    window.reset()
    assert (window.generation, window.total) == (1, 0)


LIMIT = Limit(10, 10)


def ask(*groups: Group, lane: str = "lane", max_wait: int | None = None, guard: int = 0) -> Ask:
    """An ask for LIMIT."""
    return Ask("", (LIMIT,), lane, guard, groups, max_wait)


def test_a_call_gets_its_part_of_what_is_free() -> None:
    """What is free is divided by the lanes that are active; the rest is for the others."""
    account = Account()
    account.reserve(ask(Group(1, (1,)), lane="other"), 0)
    reply = account.reserve(ask(Group(9, (1,))), 1)
    assert [(grant.requests, grant.at) for grant in reply.grants] == [(5, 1)]
    assert reply.refusal is None


def test_lanes_are_active_for_a_second_or_while_they_hold_a_place() -> None:
    """A lane that has not asked for a second and holds no reservation takes no part."""
    account = Account()
    account.reserve(ask(Group(1, (1,)), lane="other"), 0)
    reply = account.reserve(ask(Group(9, (1,))), SECOND)
    assert reply.grants[0].requests == 9
    account.reserve(ask(Group(1, (1,)), lane="late"), SECOND)  # reserves at 10 s
    account.reserve(ask(Group(1, (1,)), lane="third"), 5 * SECOND)
    assert set(account.lanes) == {"late", "third"}


def test_beyond_the_horizon_there_is_one_place_in_line() -> None:
    """Far ahead a call books one request, not all: a crash takes little with it."""
    account = Account()
    reply = account.reserve(ask(Group(25, (1,))), 0)
    assert [(grant.requests, grant.at) for grant in reply.grants] == [(10, 0), (1, 10 * SECOND)]


def test_the_first_request_of_a_call_is_always_served() -> None:
    """A cost above a lane's part is granted all the same: no reply is empty-handed."""
    account = Account()
    account.reserve(ask(Group(1, (1,)), lane="other"), 0)
    reply = account.reserve(ask(Group(2, (9,))), 1)
    assert [(grant.requests, grant.at) for grant in reply.grants] == [(1, 1), (1, 10 * SECOND + 1)]


def test_a_group_may_be_bound_to_a_later_start() -> None:
    """A group does not go before now + after, nor before the group ahead of it."""
    account = Account()
    groups = (Group(1, (1,), 7), Group(1, (0,), 3))
    reply = account.reserve(ask(*groups), 100)
    assert [grant.at for grant in reply.grants] == [107, 107]


def test_a_hold_binds_every_cost() -> None:
    """Nothing goes before a hold ends, not even at cost 0; a shorter hold does not shorten it."""
    account = Account()
    account.raise_hold(50)
    account.raise_hold(40)
    refused = account.reserve(ask(Group(1, (1,)), max_wait=20), 20).refusal
    assert refused is not None
    assert (refused.at, refused.window) == (50, None)
    reply = account.reserve(ask(Group(2, (0,)), Group(1, (1,)), max_wait=60), 20)
    assert [grant.at for grant in reply.grants] == [50, 50]
    assert reply.hold == 50


def test_after_a_hold_a_tenth_goes_in_a_tenth_of_the_period() -> None:
    """Of 10 in 10 s one a second for 10 s, as many as it takes for a big request; then as ever."""
    account = Account()
    account.raise_hold(5 * SECOND)
    for now, instants in ((4.5, [5, 6]), (7, [7, 8]), (20, [20, 20])):
        reply = account.reserve(ask(Group(2, (1,))), round(now * SECOND))
        assert [grant.at // SECOND for grant in reply.grants for _ in range(grant.requests)] == (
            instants
        )
    account.raise_hold(40 * SECOND)
    reply = account.reserve(ask(Group(1, (4,)), Group(1, (1,))), 40 * SECOND)
    assert [grant.at for grant in reply.grants] == [40 * SECOND, 41 * SECOND]


def test_a_hold_of_a_long_period_is_felt_for_a_minute() -> None:
    """Of 1,000 a day 100 go in the first minute after a hold; not one every 86 s for a day."""
    account, daily = Account(), Limit(1000, 86_400)
    account.raise_hold(SECOND)
    many = Ask("", (daily,), "lane", 0, (Group(250, (1,)),))
    first, later = (
        sum(grant.requests for grant in account.reserve(many, now).grants if grant.at == now)
        for now in (SECOND, 61 * SECOND)
    )
    assert (first, later) == (100, 250)


def test_an_account_is_there_while_the_end_of_a_hold_is_felt() -> None:
    """It is empty when forgetting it would change no answer."""
    account = Account()
    assert account.is_empty(0)
    account.raise_hold(50)
    assert not account.is_empty(59 * SECOND)
    assert account.is_empty(60 * SECOND + 50)


def test_what_was_sent_elsewhere_is_counted_while_it_matters() -> None:
    """Sends that a store did not see are booked where they were, unless they are over."""
    account = Account()
    sent = (Sent(0, 3 * SECOND, 2 * SECOND, 4), Sent(0, 11 * SECOND, 10 * SECOND, 2))
    reply = account.reserve(Ask("", (LIMIT,), "lane", 0, sent=sent), 20 * SECOND)
    assert reply.used == (4,)
    assert account.window(LIMIT).runs == [Run(17 * SECOND, 18 * SECOND, 4)]


def test_give_back_with_an_ask_comes_before_its_booking() -> None:
    """A permit given back with an ask is there for that very ask; cost 0 gives nothing back."""
    account = Account()
    reply = account.reserve(ask(Group(10, (1,))), 5)
    ticket = Ticket("local", reply.generations, 5, 5, 5)
    returns = (GiveBack(ticket, (4,)), GiveBack(ticket, (0,)))
    again = Ask("", (LIMIT,), "lane", 0, (Group(4, (1,)),), returns=returns)
    assert account.reserve(again, 6).grants[0][:2] == (4, 6)


def test_the_count_is_no_part_of_the_record() -> None:
    """Asks with other counts draw on the same record."""
    assert window_name(Limit(5, 10)) == window_name(Limit(7, 10))
    account = Account()
    account.window(Limit(5, 10)).book(0, 0, 1, now=1)
    assert account.window(Limit(7, 10)).total == 1
    assert account.is_empty(10 * SECOND)


def test_each_lane_says_how_long_it_is_active() -> None:
    """An ask of a short window does not make others forgotten, whose windows are long."""
    hour, second = Limit(1000, 3600), Limit(10, 1, name="quick")
    account = Account()
    for lane in ("one", "two"):
        account.reserve(Ask("key", (hour,), lane, 0, (Group(1, (1,)),)), 0)
    both = Ask("key", (hour, second), "three", 0, (Group(1, (1, 1)),))
    account.reserve(both, 100 * SECOND)
    reply = account.reserve(Ask("key", (hour,), "four", 0, (Group(1000, (1,)),)), 100 * SECOND + 1)
    assert [grant.requests for grant in reply.grants] == [-(-997 // 4)]
