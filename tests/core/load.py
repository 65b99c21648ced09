"""Standing demand on lanes in virtual time, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from quotaclient._core.queue import Waiter
from tests.core.world import SECOND, Departure, Shell, World


def demand(shell: Shell, tasks: int, costs: Callable[[], tuple[int, ...]]) -> None:
    """So many tasks of a lane that send one request after the other."""

    def again() -> None:
        shell.request(costs(), done=again)

    for _ in range(tasks):
        shell.world.at(shell.world.now, again)


def saturated(world: World, lanes: int, tasks: int, costs: tuple[int, ...] = (1,)) -> list[Shell]:
    """Lanes with standing demand of equal requests."""
    shells = [world.lane(f"lane-{number}") for number in range(lanes)]
    for shell in shells:
        demand(shell, tasks, lambda: costs)
    return shells


def hesitant(shell: Shell, tasks: int, part: float, patience: int) -> list[Waiter]:
    """Tasks that cancel a part of their requests at some time; who was cancelled."""
    world = shell.world
    cancelled: list[Waiter] = []

    def again() -> None:
        waiter = shell.request(done=again)
        if world.random.random() < part:
            world.at(world.now + world.random.randint(0, patience), lambda: give_up(waiter))

    def give_up(waiter: Waiter) -> None:
        if waiter not in shell.over:
            cancelled.append(waiter)
            shell.cancel(waiter)
            again()

    for _ in range(tasks):
        world.at(world.now, again)
    return cancelled


@dataclass
class Use:
    """What was made of a limit."""

    used: float  # the part of count / (period + guard) that was sent
    fairness: float  # the least served lane's part of the most served one's
    asks: float  # asks per request
    checks: float  # checks per request
    sent: list[Departure]


def use(world: World, shells: list[Shell], rounds: int, window: int = 0) -> Use:
    """Let so many times (period + guard) pass, and measure what departs in them.

    Saturated lanes repeat in each what they did in the one before, so whole ones are measured.
    """
    asks, checks, first = world.asks, world.checks, len(world.departures)
    limit = world.limits[window]
    longest = max(shell.lane.guard for shell in shells)
    world.run(world.now + rounds * (limit.period_us + longest))
    sent = [one for one in world.departures[first:] if one.costs[window]]
    parts = Counter({shell: 0 for shell in shells if not shell.dead})
    parts.update(one.shell for one in sent if one.shell in parts)
    return Use(
        used=sum(one.costs[window] for one in sent) / (limit.count * rounds),
        fairness=min(parts.values()) / max(parts.values()),
        asks=(world.asks - asks) / len(sent),
        checks=(world.checks - checks) / len(sent),
        sent=sent,
    )


def settle_down(world: World) -> None:
    """Let the first period pass, in which an empty window is filled."""
    world.run(world.now + world.limits[0].period_us * 21 // 20)


def strict(world: World) -> bool:
    """P1, P2: no window of this world ever had more than its limit, late arrivals included."""
    return all(
        world.most_in_any_window(window) <= limit.count for window, limit in enumerate(world.limits)
    )


def longest_gap(sent: list[Departure], shell: Shell) -> float:
    """The longest time between two departures of a lane, in seconds."""
    times = [one.when for one in sent if one.shell is shell]
    return max((b - a for a, b in pairwise(times)), default=0) / SECOND
