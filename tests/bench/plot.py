"""The comparison as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import accumulate, cycle
from typing import Any

from tests.bench.measures import Run

BARS = {  # rows of the table, and on which scale they are drawn
    "most in any period / limit": "linear",
    "refused (429) / sent": "linear",
    "script runs / request": "linear",
    "the same, by over a tenth of a period": "linear",
    "request / bare request": "linear",
    "bytes in Redis / unit": "log",
}
TITLES = {"the same, by over a tenth of a period": "out of order by over a tenth of a period"}


def in_any_period(run: Run) -> tuple[list[float], list[float]]:
    """What arrived in the last period / limit, whenever that changes; time in periods."""
    times = [arrival.at / run.limit.period for arrival in run.report.arrivals]
    steps = sorted([(at + 1, -1) for at in times] + [(at, 1) for at in times])
    counts = accumulate(step for _, step in steps)
    return [at - times[0] for at, _ in steps], [count / run.limit.count for count in counts]


def _number(text: str) -> float:
    """What a cell says: "97.3%" is 0.973, "1.31 (1.29-1.34)" is 1.31; 0 for none."""
    first = text.split()[0]
    if first == "-":
        return 0.0
    return float(first[:-1]) / 100 if first.endswith("%") else float(first)


def draw(
    path: str, runs: Mapping[str, Run], columns: Mapping[str, Mapping[str, str]], title: str
) -> None:
    """Write a PNG: what the upstream saw at any time, above, and some rows of the table as bars."""
    import_module("matplotlib").use("agg")  # needs no screen
    pyplot: Any = import_module("matplotlib.pyplot")
    names: Sequence[str] = list(columns)
    colours = dict(zip(names, cycle(pyplot.cm.tab10.colors), strict=False))
    figure, axes = pyplot.subplot_mosaic(
        [["times"] * 3, [0, 1, 2], [3, 4, 5]],
        figsize=(14, 11),
        height_ratios=[1.5, 1, 1],
        layout="constrained",
    )
    figure.suptitle(title)
    for name, run in runs.items():
        line = axes["times"].plot(*in_any_period(run), label=name, color=colours[name])
        line[0].set(linewidth=1.1, drawstyle="steps-post")
    axes["times"].axhline(1, color="black", linewidth=0.8, linestyle="--")
    axes["times"].set(xlabel="periods", ylabel="arrived in the last period / limit")
    axes["times"].legend(ncols=2, fontsize="small")
    for place, (row, scale) in enumerate(BARS.items()):
        values = [_number(columns[name].get(row, "-")) for name in names]
        axes[place].barh(names, values, color=[colours[name] for name in names])
        axes[place].invert_yaxis()
        axes[place].set(title=TITLES.get(row, row), xscale=scale)
    figure.savefig(path, dpi=110)
