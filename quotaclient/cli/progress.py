"""What the demo shows while it runs: a live table on a terminal, else plain lines.

A view is a context manager with two verbs: `say` prints lines that stay, `show` shows a moment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Protocol, Self

from quotaclient.cli.replica import Progress

SOURCES = {
    "": "nothing yet",
    "store": "shared window",
    "share": "own share",
    "local": "own window",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A moment: `elapsed` of `seconds`, the `phase` that Redis is in, how far each replica is."""

    elapsed: float
    seconds: float
    phase: str
    replicas: Sequence[Progress]


class View(Protocol):
    """Where the demo shows itself."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def say(self, text: str) -> None:
        """Print lines that stay."""

    def show(self, scene: Scene) -> None:
        """Show a moment, if it is time to."""


class LineView:
    """A line a second, for files, pipes and simple terminals."""

    def __init__(self) -> None:
        self._next = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def say(self, text: str) -> None:
        print(text, flush=True)

    def show(self, scene: Scene) -> None:
        if scene.elapsed >= self._next:
            self._next = floor(scene.elapsed) + 1
            self.say(_line(scene))


def _line(scene: Scene) -> str:
    replicas = scene.replicas
    width = len(str(max(replica.sent for replica in replicas)))
    sources = [SOURCES[replica.source] for replica in replicas]
    return "  ".join(
        (
            f"{floor(scene.elapsed):4} s",
            f"{scene.phase:10}",
            f"sent {' '.join(f'{replica.sent:{width}}' for replica in replicas)}",
            f"waiting {' '.join(str(replica.waiting) for replica in replicas)}",
            f"429 {' '.join(str(replica.refused) for replica in replicas)}",
            ", ".join(sources[:1] if len(set(sources)) == 1 else sources),
        )
    )


def best_view() -> View:
    """The live table where stdout is a terminal that can show one and rich is installed."""
    if sys.stdout.isatty():
        try:
            from quotaclient.cli.live import LiveView, console  # noqa: PLC0415 - rich is an extra
        except ImportError:
            return LineView()
        if console.is_terminal and not console.is_dumb_terminal:
            return LiveView()
    return LineView()
