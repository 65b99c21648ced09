"""What the demo shows while it runs: a live table on a terminal, else plain lines.

A view is a context manager with two verbs: `say` prints lines that stay, `show` shows a moment.
"""

from __future__ import annotations

from collections import Counter
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

_MOST_IN_LINE = 8  # replicas whose figures stand side by side in a line


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
        """Print lines that stay."""
        print(text, flush=True)

    def show(self, scene: Scene) -> None:
        """Print a line, once a second."""
        if scene.elapsed >= self._next:
            self._next = floor(scene.elapsed) + 1
            self.say(_line(scene))


def _line(scene: Scene) -> str:
    replicas = scene.replicas
    return "  ".join(
        (
            f"{floor(scene.elapsed):4} s",
            f"{scene.phase:10}",
            f"sent {_numbers([replica.sent for replica in replicas])}",
            f"waiting {_numbers([replica.waiting for replica in replicas])}",
            f"429 {_numbers([replica.refused for replica in replicas])}",
            _sources([SOURCES[replica.source] for replica in replicas]),
        )
    )


def _numbers(numbers: Sequence[int]) -> str:
    """One for each replica where they fit in a line, else their sum."""
    if len(numbers) > _MOST_IN_LINE:
        return f"{sum(numbers)} in all"
    width = len(str(max(numbers)))
    return " ".join(f"{number:{width}}" for number in numbers)


def _sources(sources: Sequence[str]) -> str:
    """One for all where they agree, else one for each or how many have each."""
    if len(set(sources)) == 1:
        return sources[0]
    if len(sources) > _MOST_IN_LINE:
        return ", ".join(f"{count} {source}" for source, count in Counter(sources).items())
    return ", ".join(sources)
