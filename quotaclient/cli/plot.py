"""The demo's picture: departures over time, and the sliding window against its limit.

Needs matplotlib; its Figure rather than pyplot, which would look for a screen.
"""

# pyright: reportUnknownMemberType=false
# matplotlib leaves the types of its many keyword arguments open.

from __future__ import annotations

from itertools import accumulate
from math import ceil
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quotaclient.cli.report import Outcome
from quotaclient.testing import Report

_BAR = 0.05  # seconds that a bar stands for, in a short run
_MOST_BARS = 300  # in a long one; more would be too thin to see their colours
_MOST_NAMED = 10  # replicas in the legend, and colours that are told apart


def draw(outcome: Outcome, file: Path) -> None:
    """Write the picture to `file`, in the format that its suffix names."""
    figure = Figure(figsize=(12, 6.5), dpi=120, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_departures(above, outcome)
    _draw_window(below, outcome)
    for axes in (above, below):
        _finish(axes, outcome)
    below.set_xlabel("seconds")
    figure.savefig(file)


def _draw_departures(axes: Axes, outcome: Outcome) -> None:
    """How many requests arrived from each replica in each short stretch, stacked."""
    begin, seconds = outcome.span.start, outcome.span.end - outcome.span.start
    width = max(_BAR, seconds / _MOST_BARS)
    count = len(outcome.replicas)
    reports = outcome.upstream.by_replica()
    names = [str(number) for number in range(1, count + 1)]
    arrivals = [reports[name].arrivals if name in reports else () for name in names]
    colours = colormaps["tab10" if count <= _MOST_NAMED else "viridis"]
    axes.hist(
        [[arrival.at - begin for arrival in own] for own in arrivals],
        bins=[width * i for i in range(ceil(seconds / width) + 1)],
        stacked=True,
        color=[colours(i if count <= _MOST_NAMED else i / count) for i in range(count)],
        label=[f"replica {name}" if count <= _MOST_NAMED else "" for name in names],
    )
    refused = [a.at - begin for a in outcome.upstream.arrivals if not a.admitted]
    if refused:
        axes.plot(refused, [0] * len(refused), "kx", label="answered 429", clip_on=False)
    axes.set_ylabel(f"requests per {1000 * width:.0f} ms")
    fleet = "1 replica uses" if count == 1 else f"{count} replicas share"
    axes.set_title(f"{fleet} {outcome.limit}", loc="left", weight="bold")


def _draw_window(axes: Axes, outcome: Outcome) -> None:
    """How many requests arrived in the last period, at every instant, and the limit."""
    limit = outcome.limit
    instants, units = _window_over_time(outcome.upstream, outcome.span.start)
    axes.step(instants, units, where="post", color="tab:blue", linewidth=1)
    axes.fill_between(instants, units, step="post", color="tab:blue", alpha=0.2, linewidth=0)
    axes.axhline(limit.count, color="tab:red", linestyle="--", label=f"limit {limit}")
    axes.set_ylabel(f"requests in the last {limit.period:g} s")


def _window_over_time(report: Report, begin: float) -> tuple[list[float], list[int]]:
    """The instants at which the sliding window changes, from 0, and its units from each one on."""
    enter = [(arrival.at - begin, 1) for arrival in report.arrivals]
    leave = [(at + report.period, -1) for at, _ in enter]
    changes = sorted(enter + leave)  # what leaves an instant before what enters it: (t - period, t]
    return [0.0, *(at for at, _ in changes)], [0, *accumulate(change for _, change in changes)]


def _finish(axes: Axes, outcome: Outcome) -> None:
    """The scale of time, the outage in grey, the legend beside."""
    begin, end = outcome.span.start, outcome.span.end
    axes.set_xlim(0, end - begin)
    axes.set_ylim(0, 1.15 * axes.get_ylim()[1])  # room for the words above
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    for away in outcome.phases[1:2]:
        axes.axvspan(away.start - begin, away.end - begin, color="0.9", zorder=0, linewidth=0)
        middle = (away.start + away.end) / 2 - begin
        words = axes.get_xaxis_transform()  # x in seconds, y in heights of the axes
        axes.text(middle, 0.97, away.name, ha="center", va="top", color="0.4", transform=words)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
