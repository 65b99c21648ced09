"""Buckets: wherever in [at, by] units arrive, the upstream's never runs dry, and all is used."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from quotaclient._core.account import Account
from quotaclient._core.ask import Ask, GiveBack, Group, Sent, Ticket
from quotaclient._core.bucket import BucketWindow
from quotaclient._core.guard import default_guard
from quotaclient._core.limits import Limit
from quotaclient._core.window import MAX_RUNS, Run

SECOND = 1_000_000
BUCKET = Limit(2, 1, kind="bucket", burst=40)


def an_ask(
    *groups: Group, guard: int = 0, max_wait: int | None = None, limit: Limit = BUCKET
) -> Ask:
    """An ask for one bucket."""
    return Ask("", (limit,), "lane", guard, groups, max_wait)


def opened(now: int, *runs: tuple[int, int, int], limit: Limit = BUCKET) -> BucketWindow:
    """A bucket with these runs, as it is then."""
    window = BucketWindow(limit.period_us)
    for at, by, units in runs:
        window.book(at, by, units, now=1)
    window.open(limit, now, 0)
    return window


def test_a_full_bucket_goes_at_once_and_then_drips() -> None:
    """The burst is there at once; after that units come at the rate."""
    account = Account()
    ask = an_ask(Group(41, (1,)))
    reply = account.reserve(ask, 10)
    assert [(grant.requests, grant.at) for grant in reply.grants] == [(40, 10), (1, 500_010)]
    assert reply.used == (41,)


def test_a_bucket_fills_while_nobody_draws() -> None:
    """After a while there is room for what has flowed in, in fractions that nobody rounds."""
    account = Account()
    account.reserve(an_ask(Group(40, (1,))), 0)
    assert account.reserve(an_ask(), 250_000).used == (40,)
    (run,) = account.window(BUCKET).runs
    assert run == Run(250_000, 250_000, 39.5)
    assert account.reserve(an_ask(Group(1, (3,))), 250_000).grants[0].at == 1_500_000


def test_what_is_in_flight_does_not_drain() -> None:
    """A unit that has not landed counts in full until it must have."""
    window = opened(SECOND, (0, 10 * SECOND, 40))
    assert window.first_fit(SECOND, 1, 40, 0) == (10_500_000, 39)


def test_a_later_unit_keeps_its_place() -> None:
    """A unit goes before one that is booked only if that one still finds room with it."""
    window = opened(0, (0, 0, 36), (SECOND, SECOND, 5))
    assert window.first_fit(0, 1, 40, 0) == (0, 39)
    assert window.first_fit(0, 2, 40, 0) == (1_500_000, 38)


def test_a_unit_that_lands_late_is_in_the_way_for_long() -> None:
    """With a guard a unit begins to drain only at its end."""
    window = opened(0, (0, 0, 4), (5 * SECOND, 5 * SECOND, 35))
    assert window.first_fit(0, 10, 40, 0) == (0, 29)
    assert window.first_fit(0, 10, 40, 8 * SECOND) == (7_500_000, 30)


def test_a_life_ends_when_the_bucket_is_full() -> None:
    """When all has drained nothing is left to say."""
    window = opened(0, (0, 0, 3))
    assert not window.is_over(1_499_999)
    assert window.is_over(1_500_000)
    window.forget(SECOND)
    assert not window.is_over(1_499_999)
    window.forget(1_500_000)
    assert (window.generation, window.total, window.runs) == (0, 0, [])


def test_what_comes_late_counts_in_full() -> None:
    """What was sent unbooked counts from now on, however long ago that was."""
    window = opened(30 * SECOND, (30 * SECOND, 31 * SECOND, 2))
    window.book_late(0, SECOND, 5, 30 * SECOND)
    window.book_late(SECOND, 31 * SECOND, 3, 30 * SECOND)
    assert window.runs == [
        Run(SECOND, 31 * SECOND, 3),
        Run(30 * SECOND, 31 * SECOND, 2),
        Run(30 * SECOND, 30 * SECOND, 5),
    ]


def test_what_is_settled_late_keeps_others_back() -> None:
    """In a bucket that never was full since what a request used beyond its cost has not drained."""
    account = Account()
    first = account.reserve(an_ask(Group(40, (1,))), SECOND)
    for i in range(1, 51):
        account.reserve(an_ask(Group(1, (1,))), SECOND + i * SECOND // 2)
    ticket = Ticket("local", first.generations, SECOND, SECOND, SECOND)
    settled = Ask("", (BUCKET,), "lane", 0, returns=(GiveBack(ticket, (-5,)),))
    assert account.reserve(settled, 26 * SECOND).used == (45,)


def test_only_what_has_not_landed_is_given_back() -> None:
    """Of what has, nobody knows any more how much has drained."""
    account = Account()
    reply = account.reserve(an_ask(Group(2, (5,)), guard=SECOND), 0)
    returned = GiveBack(Ticket("local", reply.generations, 0, SECOND, 0), (5,))
    back = Ask("", (BUCKET,), "lane", 0, returns=(returned,))
    assert account.reserve(back, SECOND - 1).used == (5,)
    assert account.reserve(back, SECOND + 1).used == (5,)


def test_what_has_just_landed_is_not_taken_from_others() -> None:
    """What is given back in the instant in which it landed leaves those in flight as they are."""
    window = opened(SECOND, (0, 3 * SECOND, 2), (SECOND // 2, SECOND, 1), (SECOND, SECOND, 4))
    runs = [Run(0, 3 * SECOND, 2), Run(SECOND, SECOND, 5)]
    assert window.runs == runs
    window.give_back(1, SECOND // 2, SECOND, 1, SECOND)
    assert window.runs == runs
    window.give_back(1, SECOND, SECOND, 4, SECOND)
    assert window.runs == [runs[0], Run(SECOND, SECOND, 1)]


def test_what_is_told_is_whole() -> None:
    """A store is told of a fraction as of one more."""
    window = opened(SECOND // 4, (0, 0, 3))
    assert window.sends(SECOND // 2) == [(SECOND // 4, SECOND // 4, 3)]
    account = Account()
    ask = Ask("", (BUCKET,), "lane", 0, sent=(Sent(0, 0, 0, 3),))
    assert account.reserve(ask, SECOND).used == (3,)


def worst_case(sends: list[tuple[int, int]], limit: Limit) -> Fraction:
    """The highest level of a bucket that units at these instants meet."""
    level, last, worst = Fraction(0), 0, Fraction(0)
    for at, units in sorted(sends):
        drained = Fraction(at - last) * limit.count / limit.period_us
        level, last = max(Fraction(0), level - drained) + units, at
        worst = max(worst, level)
    return worst


@pytest.mark.parametrize("seed", range(60))
def test_an_upstream_never_refuses(seed: int) -> None:
    """Whether units arrive at once, late, or together at the worst of instants, there is room."""
    random = Random(seed)
    burst = random.randint(1, 20)
    limit = Limit(random.randint(1, 5), 1, kind="bucket", burst=burst)
    account, now = Account(), SECOND
    sent: list[tuple[int, int, int]] = []
    for _ in range(120):
        now += random.choice([0, 1, 333_333, 2 * SECOND])
        guard = random.choice([0, 100_000, 3 * SECOND])
        group = Group(
            random.randint(1, 6), (random.randint(1, burst),), random.choice([0, 0, 5 * SECOND])
        )
        ask = an_ask(group, guard=guard, max_wait=random.choice([SECOND, 30 * SECOND]), limit=limit)
        reply = account.reserve(ask, now)
        for grant in reply.grants:
            sent += [(grant.at, grant.at + guard, grant.costs[0])] * grant.requests
    instants = random.choices([at for at, _, _ in sent], k=20)
    for instant in [0, *instants]:
        # All that may be there by then arrive as late as they may; the others at any time.
        arrivals = [
            (min(by, instant) if at <= instant else random.choice([at, by]), units)
            for at, by, units in sent
        ]
        assert worst_case(arrivals, limit) <= burst + Fraction(1, 10**9)


@pytest.mark.parametrize("limit", [BUCKET, Limit(3, 7, kind="bucket", burst=1)], ids=str)
def test_the_whole_bucket_is_used(limit: Limit) -> None:
    """Where demand is never short all goes that the bucket gives, to within a unit."""
    account, now, units, most = Account(), 0, 0, 200
    while units < most:
        reply = account.reserve(an_ask(Group(3, (1,)), limit=limit), now)
        units += sum(grant.requests for grant in reply.grants)
        now = max(now, reply.grants[-1].at)
    assert now <= limit.least_span(units) + 2 * limit.period_us // limit.count


@pytest.mark.parametrize(
    "limit", [Limit(60, 60, kind="bucket", burst=1), Limit(100, 1, kind="bucket", burst=5)], ids=str
)
def test_a_guard_costs_a_bucket_little(limit: Limit) -> None:
    """With the guard that a small bucket has by itself nine tenths of its rate go and more."""
    account, now, units, guard = Account(), 0, 0, default_guard((limit,))
    while units < 100:
        reply = account.reserve(an_ask(Group(3, (1,)), limit=limit, guard=guard), now)
        units += sum(grant.requests for grant in reply.grants)
        now = max(now, reply.grants[-1].at)
    assert now <= 1.1 * units * limit.period_us / limit.count


def test_a_bucket_of_many_runs_is_joined() -> None:
    """Past the exact runs neighbours are joined into runs of whole units, which counts more."""
    window = opened(1, (0, 0, 7))
    for i in range(MAX_RUNS + 5):
        window.book(SECOND + i, 9 * SECOND + i, 1, now=1)
    assert len(window.runs) <= MAX_RUNS
    assert sum(run.units for run in window.runs) >= MAX_RUNS + 11


@pytest.mark.parametrize("seed", range(30))
def test_a_line_is_booked_as_one_by_one(seed: int) -> None:
    """Whoever books many at once goes on from each to the next, to where each would go alone."""
    random, many, single = Random(seed), Account(), Account()
    limit = Limit(3, 1, kind="bucket", burst=7)
    for now in range(0, 20 * SECOND, 4 * SECOND):
        guard = random.choice([0, SECOND // 3, SECOND, 2 * SECOND])
        cost, after = random.randint(1, 3), random.choice([0, SECOND])
        line = Group(random.randint(1, 20), (cost,), after)
        for grant in many.reserve(an_ask(line, guard=guard, limit=limit), now).grants:
            for _ in range(grant.requests):
                one = an_ask(Group(1, (cost,), after), guard=guard, limit=limit)
                (alone,) = single.reserve(one, now).grants
                assert alone.at == grant.at
                after = grant.at - now


def test_what_goes_back_is_room_for_the_next() -> None:
    """Whoever asks after a reset, or after a permit came back, finds the bucket as it is then."""
    account = Account()
    account.reserve(an_ask(Group(41, (1,))), SECOND)
    later = SECOND + SECOND // 2
    account.window(BUCKET).give_back(SECOND, later, later, 1, SECOND)
    assert account.reserve(an_ask(Group(1, (1,))), later).grants[0].at == later
    account.window(BUCKET).reset()
    assert account.reserve(an_ask(), 2 * SECOND).used == (0,)
