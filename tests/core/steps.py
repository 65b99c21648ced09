"""A lane, step by step: what its tests say to it and ask of it."""

from __future__ import annotations

from quotaclient._core.ask import NEVER, Answer, Ask, Permit, Ticket
from quotaclient._core.guard import Guard
from quotaclient._core.lane import (
    Lane,
    Sleep,
)
from quotaclient._core.limits import Limit
from quotaclient._core.queue import Waiter

SECOND = 1_000_000
LIMIT = Limit(10, 10)


def a_lane(*limits: Limit, guard: int | None = 0) -> Lane:
    """A lane with a guard of 0 unless told otherwise."""
    return Lane("key", limits or (LIMIT,), "name", Guard(limits or (LIMIT,), guard))


def enter(
    lane: Lane, max_wait: int | None = None, costs: tuple[int, ...] = (1,), priority: int = 0
) -> Waiter:
    """Someone comes at 0."""
    return lane.enter(costs, max_wait, priority)


def permit(
    at: int,
    costs: tuple[int, ...] = (1,),
    expires: int = NEVER,
    source: str = "",
    guard: int = 0,
) -> Permit:
    """A permit of this process, or of Redis with source="store"."""
    ticket = Ticket("store" if source == "store" else "local", (1,), at, at + guard, at)
    return Permit(at, expires, costs, ticket)


def answered(lane: Lane, *permits: Permit, now: int = 0, **more: object) -> None:
    """The store answers."""
    lane.told(Answer("local", now, left=(5,), permits=permits, **more), now)  # type: ignore[arg-type]
    lane.settle(now)


def asked(lane: Lane, now: int = 0) -> Ask:
    """The ask that the lane makes now."""
    lane.settle(now)
    step = lane.act(now)
    assert isinstance(step, Ask), step
    return step


def sleeps(lane: Lane, now: int = 0) -> int | None:
    """Until when the lane sleeps now."""
    lane.settle(now)
    step = lane.act(now)
    assert isinstance(step, Sleep), step
    return step.until


def rests(lane: Lane, now: int = 0) -> bool:
    """Whether the lane has nothing to do now."""
    lane.settle(now)
    return lane.act(now) is None
