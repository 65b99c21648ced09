"""Fixed limits: never more in a period than may be, wherever in [at, by] units arrive."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from quotaclient._core.account import Account, window_name
from quotaclient._core.ask import Ask, GiveBack, Group, Sent, Ticket
from quotaclient._core.calendar import DAY, Calendar
from quotaclient._core.fixed import FixedWindow
from quotaclient._core.limits import Limit
from quotaclient._core.window import Run

SECOND = 1_000_000
HOUR = 3600 * SECOND
MARCH_10 = 1_710_057_600 * SECOND  # 0:00 in Los Angeles of a day with 23 hours
DAILY = Limit(10, 86_400, kind="fixed", zone="America/Los_Angeles")


def an_ask(limit: Limit, *groups: Group, guard: int = 0, max_wait: int | None = None) -> Ask:
    """An ask for one limit."""
    return Ask("", (limit,), "lane", guard, groups, max_wait)


def test_all_goes_again_when_the_day_is_over() -> None:
    """What does not fit into a day goes at the next midnight there, not a period later."""
    account = Account()
    first = account.reserve(an_ask(DAILY, Group(10, (1,))), MARCH_10 + 22 * HOUR)
    second = account.reserve(an_ask(DAILY, Group(1, (1,))), MARCH_10 + 22 * HOUR + 1)
    assert [grant.requests for grant in first.grants] == [10]
    assert [grant.at for grant in second.grants] == [MARCH_10 + 23 * HOUR]


def test_units_of_a_day_are_one_run() -> None:
    """However many bookings there are, a day is one run, and two that a guard joins."""
    account = Account()
    for hour in range(23):
        account.reserve(an_ask(DAILY, Group(1, (1,)), guard=SECOND), MARCH_10 + hour * HOUR)
        if hour == 9:
            account.reserve(an_ask(DAILY), MARCH_10 + hour * HOUR)
    window = account.window(DAILY)
    start = MARCH_10
    assert window.runs[0] == Run(start, start - HOUR, 10)  # it ends 24 hours after its `by`
    assert len(window.runs) == 3


def test_a_unit_may_arrive_in_two_periods() -> None:
    """At the end of a period a guard takes the unit from the next one, too."""
    limit, account = Limit(1, 3600, kind="fixed"), Account()
    (grant,) = account.reserve(an_ask(limit, Group(1, (1,)), guard=SECOND), HOUR - SECOND).grants
    assert grant.at == HOUR - SECOND
    (grant,) = account.reserve(an_ask(limit, Group(1, (1,))), HOUR - SECOND // 2).grants
    assert grant.at == 2 * HOUR


def test_the_callers_clock_is_brought_to_utc() -> None:
    """Runs are in UTC whatever the caller's clock begins at, and stay when the host's is set."""
    account, ask = Account(), an_ask(DAILY, Group(1, (1,)))
    account.reserve(ask, 5 * SECOND, epoch=MARCH_10)
    account.reserve(ask, 6 * SECOND, epoch=MARCH_10 + 777)
    window = account.window(DAILY)
    assert window.runs == [Run(MARCH_10, MARCH_10 - HOUR, 2)]
    reply = account.reserve(an_ask(DAILY, Group(8, (1,))), 6 * SECOND, epoch=MARCH_10)
    assert [(grant.requests, grant.at) for grant in reply.grants] == [(8, 6 * SECOND)]
    reply = account.reserve(ask, 7 * SECOND, epoch=MARCH_10)
    assert reply.grants[0].at == 23 * HOUR
    assert not account.is_empty(23 * HOUR - 1)
    assert account.is_empty(47 * HOUR)


def test_give_back_finds_the_day() -> None:
    """A permit of a day gives its units back to the day."""
    account = Account()
    reply = account.reserve(an_ask(DAILY, Group(10, (1,)), guard=9), 5, epoch=MARCH_10)
    ticket = Ticket("local", reply.generations, 5, 14, 5)
    returned = (GiveBack(ticket, (4,)), GiveBack(ticket, (-1,)))
    ask = Ask("", (DAILY,), "lane", 0, returns=returned)
    assert account.reserve(ask, HOUR, epoch=MARCH_10).used == (7,)
    assert account.reserve(ask, 23 * HOUR, epoch=MARCH_10).used == (0,)


@pytest.mark.parametrize("apart", [-HOUR, 0, HOUR])
def test_another_clock_counts_what_it_is_told_in_the_same_period(apart: int) -> None:
    """What a store that was away is told is in the middle of its period."""
    window = FixedWindow(DAY)
    window.open(DAILY, 5 * HOUR, MARCH_10)
    window.book(HOUR, HOUR, 3, now=HOUR)
    ((ago, until, units),) = window.sends(5 * HOUR)
    sent = Sent(0, ago, until, units)
    account = Account()
    ask = Ask("", (DAILY,), "lane", 0, sent=(sent,))
    assert account.reserve(ask, MARCH_10 + 5 * HOUR + apart).used == (3,)
    assert account.window(DAILY).runs == window.runs


@pytest.mark.parametrize("period", [5400, 7200])
def test_what_is_told_of_a_short_period_is_in_it(period: int) -> None:
    """Also of one that is cut short by half or more, when clocks are set."""
    limit = Limit(10, period, kind="fixed", zone="America/Los_Angeles")
    for now in range(MARCH_10, MARCH_10 + 6 * HOUR, HOUR // 4):
        window, account = FixedWindow(limit.period_us), Account()
        window.open(limit, now, 0)
        window.book(now, now, 3, now=now)
        sent = tuple(Sent(0, *one) for one in window.sends(now))
        account.reserve(Ask("", (limit,), "lane", 0, sent=sent), now)
        assert account.window(limit).runs == window.runs


def test_zones_have_records_of_their_own() -> None:
    """A day there is none here."""
    other = Limit(10, 86_400, kind="fixed")
    assert window_name(other) == "requests:fixed:86400000000:UTC"
    assert window_name(DAILY) == "requests:fixed:86400000000:America/Los_Angeles"


@pytest.mark.parametrize("seed", range(40))
def test_never_more_in_a_period(seed: int) -> None:
    """Units arrive anywhere in [at, by], and no period sees more than the limit."""
    random = Random(seed)
    limit = Limit(random.randint(1, 9), 7200, kind="fixed", zone="America/Los_Angeles")
    account, now = Account(), MARCH_10
    arrivals: Counter[int] = Counter()
    latest = 0
    calendar = Calendar.of("America/Los_Angeles", limit.period_us, now)
    for _ in range(200):
        now += random.choice([0, SECOND, 600 * SECOND])
        guard = random.choice([0, SECOND, 1200 * SECOND])
        group = Group(random.randint(1, 4), (random.randint(1, limit.count),))
        reply = account.reserve(an_ask(limit, group, guard=guard, max_wait=3 * HOUR), now)
        for grant in reply.grants:
            for _ in range(grant.requests):
                arrival = random.choice([grant.at, grant.at + guard])
                period, _ = calendar.bounds(arrival, limit.period_us)
                arrivals[period] += grant.costs[0]
                latest = max(latest, period)
    assert max(arrivals.values()) <= limit.count


@pytest.mark.parametrize("count", [1, 5, 100])
def test_the_whole_quota_is_used(count: int) -> None:
    """Where demand is never short every period gives all that it has."""
    limit, account, now = Limit(count, 3600, kind="fixed"), Account(), 0
    arrivals: Counter[int] = Counter()
    while now < 5 * HOUR:
        reply = account.reserve(an_ask(limit, Group(7, (1,))), now)
        for grant in reply.grants:
            arrivals[grant.at // HOUR] += grant.requests
        now = max(now, reply.grants[-1].at)
    assert [arrivals[hour] for hour in range(5)] == [count] * 5
