"""The demo's picture: departures over time, and the sliding window against its limit."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from math import ceil
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quotaclient.cli.report import Outcome, Phase
from quotaclient.testing import Report

_MOST_BARS = 600  # more are thinner than a pixel


def draw(outcome: Outcome, file: Path) -> None:
    """Write the picture to `file`, in the format that its suffix names."""
    figure = Figure(figsize=(12, 6.5), dpi=120, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    _departures(above, outcome)
    _window(below, outcome)
    for phase in outcome.phases[1:2]:
        for axes in (above, below):
            _shade(axes, phase, outcome.span.start)
    figure.savefig(file)
