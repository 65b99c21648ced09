"""Event loops: what differs between asyncio and trio, and how to end with a loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any

from quotaclient._stores import AsyncStore

Spawn = Callable[..., None]
"""Run a coroutine function with its arguments in a task of its own, on the running loop."""


def on_asyncio() -> bool:
    """Whether this runs on asyncio; on trio, else."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def running_loop() -> object:
    """What tells one loop from another; weakly referable."""
    if on_asyncio():
        return asyncio.get_running_loop()
    import trio  # who is not on asyncio is on trio, which is there then

    return trio.lowlevel.current_trio_token()


class Tasks:
    """Tasks that belong to a loop and to no caller."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()  # the loop keeps only weak references

    def spawn(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            import trio  # who is not on asyncio is on trio, which is there then

            trio.lowlevel.spawn_system_task(function, *args)
        else:
            task = loop.create_task(function(*args))
            self._running.add(task)
            task.add_done_callback(self._running.discard)


def closed_with_the_loop(store: AsyncStore) -> AsyncGenerator[None, None]:
    """Let a store be closed with the running loop, at the latest; `aclose` does it now.

    Loops close the generators that they know of when they end.
    """
    end = _close_at_the_end(store)
    with suppress(StopIteration):  # it has come to its yield
        end.__anext__().send(None)
    return end


async def _close_at_the_end(store: AsyncStore) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        done = store.close()
        if done is not None:
            await done
