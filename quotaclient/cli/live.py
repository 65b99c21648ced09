"""The live table of the demo. Needs rich."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from quotaclient.cli.progress import SOURCES, Scene

console = Console(highlight=False)

_INTERVAL = 0.2  # seconds between two pictures: faster than that nobody reads
_COLOURS = {"store": "green", "share": "yellow", "local": "green"}


class LiveView:
    """A table that is drawn anew in its place; what is said stays above it."""

    def __init__(self) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._next = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print lines that stay, above the table."""
        console.print(Text(text))  # as Text: no brackets in it are markup

    def show(self, scene: Scene) -> None:
        """Draw the table anew, some times a second."""
        if scene.elapsed >= self._next:
            self._next = scene.elapsed + _INTERVAL
            self._live.update(_table(scene), refresh=True)


def _table(scene: Scene) -> Table:
    title = f"{scene.elapsed:.0f} of {scene.seconds:g} s, {scene.phase}"
    table = Table(title=title, title_justify="left", min_width=60)
    for name in ("replica", "sent", "waiting", "429", "errors"):
        table.add_column(name, justify="right")
    table.add_column("admitted by", min_width=len(SOURCES["store"]))
    for number, replica in enumerate(scene.replicas, 1):
        table.add_row(
            str(number),
            str(replica.sent),
            str(replica.waiting),
            _alarming(replica.refused),
            _alarming(replica.errors),
            Text(SOURCES[replica.source], _COLOURS.get(replica.source, "")),
        )
    return table


def _alarming(count: int) -> Text:
    return Text(str(count), "bold red" if count else "")
