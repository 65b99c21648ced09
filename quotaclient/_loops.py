"""Event loops: what differs between asyncio and trio, and how to end with a loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

Spawn = Callable[[Coroutine[Any, Any, None], Callable[[], None]], None]
"""Run a coroutine in a task of its own on the running loop, and then a function, come what may."""


def on_asyncio() -> bool:
    """Whether this runs on asyncio; on trio, else."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def running_loop() -> object:
    """What tells one loop from another; weakly referable."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        import trio  # who is not on asyncio is on trio, which is there then

        return trio.lowlevel.current_trio_token()


def runs_here(loop: object) -> bool:
    """Whether this is the loop that runs here, if any does."""
    try:
        return running_loop() is loop
    except (RuntimeError, ImportError):  # no loop at all, and maybe no trio either
        return False


class Tasks:
    """Tasks that belong to a loop and to no caller."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()  # the loop keeps only weak references

    def spawn(self, coroutine: Coroutine[Any, Any, None], after: Callable[[], None]) -> None:
        """See `Spawn`. A task that is cancelled before it began has run nothing of its own."""
        if not on_asyncio():
            import trio  # who is not on asyncio is on trio, which is there then

            trio.lowlevel.spawn_system_task(self._run_and_then, coroutine, after)
            return

        def over(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            coroutine.close()
            after()

        task = asyncio.get_running_loop().create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(over)

    @staticmethod
    async def _run_and_then(
        coroutine: Coroutine[Any, Any, None], after: Callable[[], None]
    ) -> None:
        try:
            await coroutine
        finally:
            after()


def closed_with_the_loop(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    """Let `close` be called when the running loop ends, at the latest; `aclose` calls it now.

    Loops close the generators that they know of when they end.
    """
    end = _close_at_the_end(close)
    with suppress(StopIteration):  # it has come to its yield
        end.__anext__().send(None)
    return end


async def _close_at_the_end(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()
