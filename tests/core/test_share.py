"""What one replica sent, and what it may send alone."""

from __future__ import annotations

from dataclasses import replace

from quotaclient._core.account import Account, window_name
from quotaclient._core.ask import SECOND, Answer, Ask, GiveBack, Group, localize
from quotaclient._core.limits import Limit
from quotaclient._core.share import NoShare, OwnAccount, divided, narrowed, postponed

LIMIT = Limit(12, 10)


def an_ask(requests: int = 1, cost: int = 1, **more: object) -> Ask:
    """An ask for LIMIT without guard."""
    groups = (Group(requests, (cost,)),) if requests else ()
    return Ask("key", (LIMIT,), "lane", 0, groups, **more)  # type: ignore[arg-type]


def shares(ask: Ask, replicas: int = 4) -> tuple[Limit, ...]:
    """The divided limits."""
    limits = divided(ask, replicas)
    assert not isinstance(limits, NoShare)
    return limits


def test_the_limit_is_divided_and_rounded_down() -> None:
    """All shares together stay within the limit."""
    assert divided(an_ask(), 4) == (Limit(3, 10),)
    assert divided(an_ask(), 5) == (Limit(2, 10),)
    assert divided(an_ask(requests=0), 12) == (Limit(1, 10),)


def test_no_share_says_why() -> None:
    """Without a number of replicas, or with less than a unit for each, nobody sends alone."""
    for ask, replicas, why in (
        (an_ask(), None, "pass replicas="),
        (an_ask(), 13, "one of 13 replicas may send 0 of 12/10s"),
        (an_ask(cost=4), 4, "a cost of 4"),
    ):
        none = divided(ask, replicas)
        assert isinstance(none, NoShare)
        assert why in none.reason


def test_buckets_and_days_are_divided() -> None:
    """A bucket's rate and burst both are; of less than a unit of either nobody sends alone."""
    bucket, daily = Limit(8, 1, kind="bucket", burst=40), Limit(9, 86_400, kind="fixed")
    ask = Ask("key", (bucket, daily), "lane", 0, (Group(1, (10, 1)),))
    assert divided(ask, 4) == (Limit(2, 1, kind="bucket", burst=10), replace(daily, count=2))
    for replicas, why in ((5, "may send 8 of 8/s bucket 40"), (9, "may send 0 of 8/s bucket 40")):
        none = divided(ask, replicas)
        assert isinstance(none, NoShare)
        assert why in none.reason


def test_a_share_of_a_bucket_drains_at_its_own_rate() -> None:
    """What the store granted a replica leaves its share as slowly as the share may send."""
    bucket = Limit(8, 1, kind="bucket", burst=40)
    own, store = OwnAccount(replicas=4), Account()
    ask = Ask("key", (bucket,), "lane", 0, (Group(10, (1,)),))
    granted_by_store(own, store, ask, SECOND)
    assert store.reserve(replace(ask, groups=()), 3 * SECOND).used == (0,)
    answer = own.share(ask, shares(ask), 3 * SECOND)
    assert [permit.at for permit in answer.permits[:5]] == [3 * SECOND] * 4 + [3_500_000]
    assert [sent.units for sent in own.debts(ask, (0,), 3 * SECOND)] == [10, 1]


def test_a_replica_owes_no_more_than_a_bucket_holds() -> None:
    """However long Redis lets a replica have more than its share, it owes the burst at most."""
    bucket = Limit(8, 1, kind="bucket", burst=40)
    own, store = OwnAccount(replicas=4), Account()
    ask = Ask("key", (bucket,), "lane", 0, (Group(8, (1,)),))
    for second in range(1, 100):
        granted_by_store(own, store, ask, second * SECOND)
    sent = own.debts(ask, (0,), 100 * SECOND)
    assert [(one.ago, one.until, one.units) for one in sent] == [(0, 0, 40)]
    assert own.share(ask, shares(ask), 100 * SECOND).permits[0].at == 115_500_000


def test_debts_of_a_day_are_told_as_of_that_day() -> None:
    """A store that was away is told in which period it was, by whatever clock."""
    daily, midnight = Limit(9, 86_400, kind="fixed"), 86_400 * SECOND
    own = OwnAccount(epoch=midnight - 5 * SECOND)  # this clock began five seconds before midnight
    ask = Ask("key", (daily,), "lane", 0, (Group(3, (1,)),))
    own.share(ask, (daily,), 2 * SECOND)
    own.share(ask, (daily,), 7 * SECOND)
    sent = own.debts(ask, (0,), 8 * SECOND)
    store = Account()
    assert store.reserve(replace(ask, groups=(), sent=sent), midnight + 4 * SECOND).used == (3,)


def granted_by_store(own: OwnAccount, store: Account, ask: Ask, now: int) -> Answer:
    """The store grants, and the replica notes it."""
    answer = localize(ask, store.reserve(ask, now), "store", now, now)
    own.record(ask, answer.permits, now)
    own.told(ask, answer, now)
    return answer


def test_the_share_is_warm() -> None:
    """What the store granted to this replica counts in its share from the start."""
    own, store = OwnAccount(), Account()
    granted_by_store(own, store, an_ask(2), 0)
    answer = own.share(an_ask(5), shares(an_ask()), SECOND)
    assert [permit.at for permit in answer.permits] == [SECOND, 10 * SECOND]
    assert answer.source == "share"


def test_only_what_the_share_granted_is_owed() -> None:
    """A store that kept its record is told the sends of the outage, no others."""
    own, store = OwnAccount(), Account()
    first = granted_by_store(own, store, an_ask(2), SECOND)
    own.share(an_ask(1), shares(an_ask()), 2 * SECOND)
    debts = own.debts(an_ask(), first.generations, 3 * SECOND)
    assert [(sent.ago, sent.units) for sent in debts] == [(SECOND, 1)]


def test_a_store_that_lost_its_record_is_told_all() -> None:
    """A record of another life, or none, counts nothing of ours."""
    own, store = OwnAccount(), Account()
    granted_by_store(own, store, an_ask(2), SECOND)
    own.share(an_ask(1), shares(an_ask()), 2 * SECOND)
    for generations in ((0,), (77,)):
        debts = own.debts(an_ask(), generations, 3 * SECOND)
        assert [(sent.ago, sent.units) for sent in debts] == [(2 * SECOND, 2), (SECOND, 1)]


def test_debts_are_paid_once() -> None:
    """What an ask told the store is owed no more; an ask that told nothing changes nothing."""
    own = OwnAccount()
    own.share(an_ask(1), shares(an_ask()), SECOND)
    own.told(an_ask(), Answer("store", SECOND, generations=(5,)), SECOND)
    sent = own.debts(an_ask(), (5,), 2 * SECOND)
    assert sent
    own.told(an_ask(sent=sent), Answer("store", SECOND, generations=(5,), hold=9), SECOND)
    assert not own.debts(an_ask(), (5,), 2 * SECOND)
    assert own.hold == 9
    assert own.told_at == {window_name(LIMIT): SECOND}


def test_each_window_is_settled_for_itself() -> None:
    """That the store was told of one window says nothing of another under the same key."""
    own, other = OwnAccount(), replace(an_ask(), limits=(Limit(24, 60),))
    for ask in (an_ask(), other):
        own.share(ask, shares(ask), SECOND)
    own.told(an_ask(), Answer("store", SECOND, generations=(5,)), 9 * SECOND)
    assert not own.must_settle(an_ask(), 9 * SECOND, back_at=8 * SECOND)
    assert own.must_settle(other, 9 * SECOND, back_at=8 * SECOND)
    assert own.must_settle(an_ask(), 9 * SECOND, back_at=None)


def test_an_account_in_use_is_not_forgotten() -> None:
    """A talk under way, or a reset that has to be told, keeps an account."""
    own = OwnAccount()
    assert own.is_empty(SECOND)
    own.talks = 1
    assert not own.is_empty(SECOND)
    own.talks = 0
    own.reset_here((LIMIT,), store_knows=False)
    assert not own.is_empty(SECOND)


def test_permits_that_were_not_used_are_taken_back() -> None:
    """A permit that comes back frees the share, and is owed to nobody."""
    own, store = OwnAccount(), Account()
    by_store = granted_by_store(own, store, an_ask(1), SECOND).permits[0]
    by_share = own.share(an_ask(1), shares(an_ask()), 2 * SECOND).permits[0]
    assert own.has_news(an_ask(), 3 * SECOND)
    returns = tuple(GiveBack(permit.ticket, permit.costs) for permit in (by_store, by_share))
    own.take_back((*returns, GiveBack(by_store.ticket, (0,))), (LIMIT,), 3 * SECOND)
    assert not own.has_news(an_ask(), 3 * SECOND)
    assert not own.debts(an_ask(), (1,), 3 * SECOND)


def test_what_was_sent_on_top_is_counted() -> None:
    """More than a permit's cost counts here, and is owed if the share granted the permit."""
    own, store = OwnAccount(), Account()
    first = granted_by_store(own, store, an_ask(1), SECOND)
    by_share = own.share(an_ask(1), shares(an_ask()), 2 * SECOND).permits[0]
    returns = (GiveBack(first.permits[0].ticket, (-3,)), GiveBack(by_share.ticket, (-4,)))
    own.take_back(returns, (LIMIT,), 3 * SECOND)
    assert [run.units for run in own.window(LIMIT).runs] == [4, 5]
    assert [sent.units for sent in own.debts(an_ask(), first.generations, 3 * SECOND)] == [5]


def test_what_a_store_could_not_be_told_of_is_owed() -> None:
    """Units that were sent on top of its own permit; not those that were not sent."""
    own, store = OwnAccount(), Account()
    answer = granted_by_store(own, store, an_ask(2), SECOND)
    one, two = (permit.ticket for permit in answer.permits)
    own.owe((GiveBack(one, (-3,)), GiveBack(two, (1,))), (LIMIT,), 2 * SECOND)
    assert [sent.units for sent in own.debts(an_ask(), answer.generations, 3 * SECOND)] == [3]


def test_a_plan_books_nothing() -> None:
    """What the share would grant is told without being booked."""
    own = OwnAccount()
    plan = own.plan(an_ask(5), shares(an_ask()), SECOND)
    assert [(grant.requests, grant.at) for grant in plan.grants] == [(3, SECOND), (1, 11 * SECOND)]
    assert not own.has_news(an_ask(), SECOND)
    assert narrowed(an_ask(5), plan).groups == (Group(3, (1,), 0), Group(1, (1,), 10 * SECOND))


def test_of_the_stores_permits_the_share_admits_its_part() -> None:
    """While the fleet returns, a permit must suit both; the others go back at once."""
    own, store = OwnAccount(), Account()
    limits = shares(an_ask())
    ask = replace(an_ask(5), guard=0)
    answer = localize(ask, store.reserve(ask, SECOND), "store", SECOND, SECOND)
    kept = own.admit(ask, answer, limits, SECOND)
    assert len(kept.permits) == 3
    assert [returned.ticket for returned in kept.returned] == [
        permit.ticket for permit in answer.permits[3:]
    ]
    free = replace(ask, groups=(Group(1, (0,)),))
    answer = localize(free, store.reserve(free, SECOND), "store", SECOND, SECOND)
    assert len(own.admit(free, answer, limits, SECOND).permits) == 1
    assert own.share(free, limits, SECOND).permits
    own.plan(free, limits, SECOND)


def test_an_ask_may_be_postponed() -> None:
    """Nothing goes before the wait is over; what was to go later still does."""
    groups = (Group(1, (1,)), Group(2, (1,), 900))
    later = postponed(replace(an_ask(), groups=groups), 500)
    assert [group.after for group in later.groups] == [500, 900]


def test_a_kept_record_is_noted() -> None:
    """The account remembers whether the store that came back still counted its sends."""
    own, store = OwnAccount(), Account()
    first = granted_by_store(own, store, an_ask(2), SECOND)
    own.debts(an_ask(), first.generations, 2 * SECOND)
    assert own.store_kept(an_ask())
    own.debts(an_ask(), (0,), 3 * SECOND)
    assert not own.store_kept(an_ask())


def test_a_missed_reset_is_news() -> None:
    """A reset that the store did not hear of has to be told, and so has a hold."""
    own = OwnAccount()
    own.share(an_ask(2), shares(an_ask()), SECOND)
    own.reset_here((LIMIT,), store_knows=True)
    assert not own.has_news(an_ask(), SECOND)
    assert not own.debts(an_ask(), (0,), SECOND)
    own.reset_here((LIMIT,), store_knows=False)
    assert own.missed_reset == {LIMIT}
    assert own.has_news(an_ask(), SECOND)
    held = OwnAccount()
    held.raise_hold(9 * SECOND)
    assert held.has_news(an_ask(), SECOND)


def test_windows_have_no_count_in_their_name() -> None:
    """A share draws on the same record as the whole limit."""
    own = OwnAccount()
    assert own.window(LIMIT) is own.window(Limit(3, 10))
    assert window_name(LIMIT) == "requests:sliding:10000000"
