"""The demo's last word: a table of what the upstream saw, and whether the limit held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quotaclient import Limit
from quotaclient.cli.replica import Progress
from quotaclient.testing import Report


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the run, `start` to `end` in seconds of `time.monotonic()`."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A whole run. `phases` is empty without an outage; `calls`: script runs in Redis, or None."""

    limit: Limit
    span: Phase
    phases: tuple[Phase, ...]
    upstream: Report
    replicas: Sequence[Progress]
    calls: int | None


def quota_used(report: Report, count: int, span: Phase) -> float:
    """How full the sliding window of `count` units was from start to end of `span`, on average.

    Never more than 1 while the limit is kept; a plain count over time would be, where a span begins
    with a full quota or ends within a period.
    """
    filled = sum(
        max(0.0, min(span.end, arrival.at + report.period) - max(span.start, arrival.at))
        for arrival in report.arrivals
        if arrival.admitted
    )
    return filled / (count * (span.end - span.start))


def table(outcome: Outcome) -> str:
    """The run in figures: per replica, in total, per phase, and the calls to Redis."""
    limit, everything = outcome.limit, outcome.upstream
    by_replica = everything.by_replica()
    nothing = Report(limit.count, limit.period, ())
    rows: list[tuple[str, ...]] = [
        ("", "requests", "429", "errors", f"most in any {limit.period:g} s", "quota used")
    ]
    for number, progress in enumerate(outcome.replicas, 1):
        own = by_replica.get(str(number), nothing)
        rows.append(_row(f"replica {number}", own, outcome.span, str(progress.errors)))
    errors = str(sum(progress.errors for progress in outcome.replicas))
    rows.append(_row("all", everything, outcome.span, errors))
    for phase in outcome.phases:
        rows.append(_row(f"  {phase.name}", _during(everything, phase), phase, "", everything))
    return "\n".join((*_aligned(rows), *_calls(outcome)))


def failures(outcome: Outcome) -> list[str]:
    """What was promised and not kept, a sentence each."""
    limit, report = outcome.limit, outcome.upstream
    most = report.most_in_any_window()
    found: list[str] = []
    if report.refused:
        found.append(f"{report.refused} of {report.sent} requests were answered 429.")
    if most > limit.count:
        found.append(
            f"{most} requests arrived in one stretch of {limit.period:g} s: limit {limit}."
        )
    if not report.sent:
        found.append("No request was sent.")
    return found


def faults(outcome: Outcome) -> list[str]:
    """The first error of each replica that had any."""
    return [
        f"replica {number}: {progress.errors} errors, the first: {progress.fault}"
        for number, progress in enumerate(outcome.replicas, 1)
        if progress.errors
    ]


def _row(
    name: str, report: Report, span: Phase, errors: str, used_by: Report | None = None
) -> tuple[str, ...]:
    return (
        name,
        str(report.admitted),
        str(report.refused),
        errors,
        str(report.most_in_any_window()),
        f"{quota_used(used_by or report, report.count, span):.1%}",
    )


def _during(report: Report, phase: Phase) -> Report:
    arrivals = tuple(a for a in report.arrivals if phase.start <= a.at < phase.end)
    return Report(report.count, report.period, arrivals)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells))


def _calls(outcome: Outcome) -> list[str]:
    admitted = sum(progress.by_redis for progress in outcome.replicas)
    if outcome.calls is None or not admitted:
        return []
    return [
        "",
        f"Redis was called {outcome.calls} times for the {admitted} requests that it admitted:"
        f" {outcome.calls / admitted:.2f} calls a request.",
    ]
