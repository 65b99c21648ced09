"""Prefetch: how many permits to ask for ahead of need, and what becomes of them."""

from __future__ import annotations

from quotaclient._core.ask import Permit, Ticket
from quotaclient._core.prefetch import PLENTY, SURE, Prefetch

SECOND = 1_000_000
MS = 1_000
ROOM = 100_000
COSTS = (1,)


def permit(expires: int, costs: tuple[int, ...] = (1,)) -> Permit:
    """A permit that may go at once."""
    return Permit(0, expires, costs, Ticket("store", (1,), 0, 0, 0))


def warmed(gap: int, lifetime: int = 100 * MS) -> tuple[Prefetch, int]:
    """One that was asked for a permit every `gap`, often enough; and the time now."""
    prefetch, now = Prefetch(), SECOND
    for _ in range(SURE):
        prefetch.ahead(now, COSTS, lifetime, ROOM)
        prefetch.count()
        now += gap
    return prefetch, now


def test_a_few_asks_are_no_rate() -> None:
    """Nothing is asked for ahead before some asks in a row came quickly."""
    prefetch, now = Prefetch(), SECOND
    told: list[int] = []
    for _ in range(SURE + 2):
        told.append(prefetch.ahead(now, COSTS, 100 * MS, ROOM))
        prefetch.count()
        now += MS
    assert told == [0] * SURE + [2, 2]


def test_what_the_rate_uses_within_a_permits_life() -> None:
    """Requests every 40 ms use two permits in 100 ms."""
    prefetch, now = warmed(40 * MS)
    assert prefetch.ahead(now, COSTS, 100 * MS, ROOM) == 2


def test_it_doubles_up_to_the_rate() -> None:
    """What was used since the last ask is doubled at most, and the rate is the bound."""
    prefetch, now = warmed(MS)
    sizes = [prefetch.ahead(now, COSTS, 100 * MS, ROOM)]
    for _ in range(6):
        prefetch.count(sizes[-1] + 1)
        now += (sizes[-1] + 1) * MS
        sizes.append(prefetch.ahead(now, COSTS, 100 * MS, ROOM))
    assert sizes == [2, 6, 14, 30, 62, 100, 100]


def test_slow_requests_ask_for_themselves() -> None:
    """Where the next request comes after a permit's life, none is asked for ahead."""
    prefetch, now = warmed(150 * MS)
    assert prefetch.ahead(now, COSTS, 100 * MS, ROOM) == 0


def test_a_pause_begins_anew() -> None:
    """After a pause in which permits would have expired the rate is to be seen again."""
    prefetch, now = warmed(MS)
    prefetch.count()
    assert prefetch.ahead(now + SECOND, COSTS, 100 * MS, ROOM) == 0
    prefetch.count()
    assert prefetch.ahead(now + SECOND + MS, COSTS, 100 * MS, ROOM) == 0


def test_only_of_plenty() -> None:
    """No more than a part of what is left is asked for ahead, and nothing where all is used up."""
    prefetch, now = warmed(MS)
    prefetch.count(40)
    assert prefetch.ahead(now, COSTS, 100 * MS, 20 * PLENTY) == 20
    prefetch.count(40)
    assert prefetch.ahead(now + MS, COSTS, 100 * MS, 0) == 0


def test_without_a_guard_permits_have_no_life() -> None:
    """With `guard=0` nothing is asked for ahead."""
    prefetch, now = warmed(MS, 0)
    assert prefetch.ahead(now, COSTS, 0, ROOM) == 0


def test_spare_permits_are_taken_in_turn() -> None:
    """By requests of the same costs, as long as they last."""
    prefetch = Prefetch()
    one, two = permit(100), permit(200)
    assert not prefetch.units
    assert prefetch.keep(one)
    assert prefetch.keep(two)
    assert not prefetch.keep(permit(300, (2,)))
    assert prefetch.first is one
    assert prefetch.units == (2,)
    assert prefetch.take((2,), 0) is None
    assert prefetch.take((1,), 100) is one
    assert prefetch.take((1,), 201) is None
    assert prefetch.take_out(lambda permit: permit.expires < 200) == []
    assert prefetch.take_out(lambda permit: permit.expires < 201) == [two]
    assert prefetch.take((1,), 0) is None


def test_other_costs_begin_anew() -> None:
    """What is asked for ahead has to be what comes: costs that change are not foreseen."""
    prefetch, now = warmed(MS)
    prefetch.count()
    assert prefetch.ahead(now, (7,), 100 * MS, ROOM) == 0
