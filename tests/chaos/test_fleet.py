"""The main job: real processes, a real Redis, a strict upstream that stamps every arrival.

The guard is 0.2 s here, for the machines that run tests are busy; `tests/bench/fleet.py` runs
the same fleet with any guard, and prints what it saw.
"""

from __future__ import annotations

import time

import pytest

from quotaclient import Limit
from quotaclient.testing import RedisServer, Report, StrictUpstream
from tests.bench.fleet import Plan, run_fleet, script_calls

LIMIT = Limit(100, 2)


def within(report: Report, begin: float, seconds: float) -> int:
    """How many were admitted in so many seconds from `begin` on."""
    return sum(begin <= a.at < begin + seconds for a in report.arrivals if a.admitted)


def most_after(report: Report, instant: float) -> int:
    """The most arrivals in any window that begins after `instant`."""
    later = [a.at for a in report.arrivals if a.at > instant]
    return max(sum(at - LIMIT.period < other <= at for other in later) for at in later)


@pytest.mark.parametrize("kind", ["async", "threads"])
def test_a_fleet_uses_the_quota_and_never_more(kind: str, redis_server: RedisServer) -> None:
    """Four processes of 25 tasks: not one 429, never over the limit, at least 90 % used."""
    with StrictUpstream(LIMIT.count, LIMIT.period) as upstream:
        plan = Plan(upstream.url, redis_server.url, LIMIT, 8, guard=0.2, kind=kind)
        tallies = run_fleet(plan)
        report = upstream.report()
    assert report.refused == 0
    assert report.most_in_any_window() <= LIMIT.count
    begin = report.arrivals[0].at
    assert within(report, begin, 8) >= 0.9 * LIMIT.count * 8 / LIMIT.period
    assert {ending for tally in tallies.values() for ending in tally.statuses} == {"200"}
    parts = [part.admitted for part in report.by_replica().values()]
    assert len(parts) == 4
    assert min(parts) >= 0.5 * max(parts)
    assert script_calls(redis_server) <= 0.6 * report.sent


def test_a_fleet_outlives_its_redis(redis_server: RedisServer) -> None:
    """kill -9 in the middle, back later: nothing fails, the sum stays within, the fleet returns."""
    away: list[float] = []

    def kill_and_restart() -> None:
        time.sleep(4)
        redis_server.kill()
        away.append(time.monotonic())
        time.sleep(5)
        redis_server.restart()
        away.append(time.monotonic())

    with StrictUpstream(LIMIT.count, LIMIT.period) as upstream:
        plan = Plan(upstream.url, redis_server.url, LIMIT, 16, guard=0.2)
        tallies = run_fleet(plan, kill_and_restart)
        report = upstream.report()
    assert {ending for tally in tallies.values() for ending in tally.statuses} == {"200"}
    sources = {source for tally in tallies.values() for source in tally.sources}
    assert sources == {"store", "share"}
    killed, back = away
    assert most_after(report, killed + LIMIT.period) <= LIMIT.count
    # 25 tasks on a share of 25 per 2 s: who comes meanwhile waits for the next period, or, where
    # this replica had more than its share before, for the one after
    waits = [wait for tally in tallies.values() for wait in tally.waits]
    assert max(waited for since, waited in waits if killed < since < back) <= 2 * 2.2 + 1
    # shared again: with the return phase over, the whole quota is used
    assert within(report, back + 2.5, 4.4) >= 0.9 * 2 * LIMIT.count
