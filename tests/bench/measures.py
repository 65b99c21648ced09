"""What the numbers of a bench mean: each measure is defined here, once, and the same for all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from quotaclient import Limit
from quotaclient.testing import Report


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed; nan of none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def inversions(journeys: Sequence[tuple[float, float]], more_than: float = 0.0) -> float:
    """How far one process is from first come, first served: 0 in order, 0.5 at random.

    The share of pairs, adjacent in order of departure, of which the second came before the first,
    by more than so many seconds. A burst that may leave at once leaves in any order, as the event
    loop and httpx's pool will have it; that somebody came much earlier is the limiter's doing.
    """
    came = [entered for entered, _ in sorted(journeys, key=lambda journey: journey[1])]
    return sum(a - b > more_than for a, b in pairwise(came)) / max(1, len(came) - 1)


def print_table(columns: Mapping[str, Mapping[str, str]]) -> None:
    """Print columns of rows side by side; "-" where a column has no such row."""
    rows = list(dict.fromkeys(row for column in columns.values() for row in column))
    label = max(map(len, rows))
    widths = {
        name: max(len(name), *(len(text) for text in column.values())) + 2
        for name, column in columns.items()
    }
    print(" " * label + "".join(f"{name:>{widths[name]}}" for name in columns))
    for row in rows:
        cells = (f"{column.get(row, '-'):>{widths[name]}}" for name, column in columns.items())
        print(f"{row:{label}}" + "".join(cells))


@dataclass(frozen=True)
class Run:
    """One fleet's run: `seconds` of standing demand, what the upstream and the processes saw.

    `journeys`: per process, when its requests came and departed. `scripts`: script runs in Redis,
    `script_seconds`: how long they took it. `longest`: the longest request, in seconds. `away`:
    when Redis was killed and when it was back.
    """

    limit: Limit
    seconds: float
    report: Report
    journeys: Sequence[Sequence[tuple[float, float]]]
    scripts: int
    script_seconds: float
    longest: float
    statuses: Counter[str]
    sources: Counter[str]
    away: tuple[float, float] | None = None

    @property
    def first(self) -> float:
        """When the first request arrived."""
        return self.report.arrivals[0].at

    @property
    def admitted(self) -> list[float]:
        """When those arrived that were admitted."""
        return [arrival.at for arrival in self.report.arrivals if arrival.admitted]

    @property
    def most(self) -> float:
        """The most that arrived in any period, admitted or not, over the limit."""
        return self.report.most_in_any_window() / self.limit.count

    @property
    def first_window(self) -> float:
        """What arrived in the first period, over the limit."""
        end = self.first + self.limit.period
        return sum(arrival.at < end for arrival in self.report.arrivals) / self.limit.count

    @property
    def refused(self) -> float:
        """The share of what arrived that was answered 429."""
        return self.report.refused / self.report.sent

    @property
    def used(self) -> float:
        """What was admitted in the time of demand, over all that could have been."""
        possible = self.limit.count * math.ceil(self.seconds / self.limit.period)
        return sum(at < self.first + self.seconds for at in self.admitted) / possible

    @property
    def scripts_per_request(self) -> float:
        """Script runs in Redis over requests that it admitted."""
        by_redis = self.sources["store"] if self.sources else self.report.admitted
        return self.scripts / by_redis if by_redis else math.nan

    @property
    def script_micros(self) -> float:
        """Microseconds of Redis per script run."""
        return self.script_seconds * 1e6 / self.scripts if self.scripts else math.nan

    @property
    def fairness(self) -> float:
        """The least over the most that a process had admitted after the first period."""
        after = self.first + self.limit.period
        until = self.first + self.seconds
        parts = [
            sum(after <= arrival.at < until for arrival in part.arrivals if arrival.admitted)
            for part in self.report.by_replica().values()
        ]
        return min(parts) / max(1, *parts)

    def inverted(self, more_than: float = 0.0) -> float:
        """`inversions` of the processes, on average; `more_than` in periods."""
        by = more_than * self.limit.period
        return sum(inversions(part, by) for part in self.journeys) / len(self.journeys)

    @property
    def lateness(self) -> list[float]:
        """How long a unit lay idle once it was free again, over the period; below 0: too early.

        Under standing demand the k-th departure of the fleet could leave a period after the one
        `limit` places before it, and not sooner. How much later it did leave takes in all there is:
        guard or buffer, polling, a busy event loop. It is known of every limiter, since only
        departures are looked at.
        """
        times = [a.departed for a in self.report.arrivals if a.departed is not None]
        times = sorted(at for at in times if at < self.first + self.seconds)
        late = zip(times, times[self.limit.count :], strict=False)
        return [(later - at) / self.limit.period - 1 for at, later in late]

    def rows(self) -> dict[str, str]:
        """All of it, to be printed."""
        redis = self.scripts > 0
        return {
            "sent, over the limit": f"{self.report.sent / self.limit.count:.2f}",
            "most in any period / limit": f"{self.most:.2f}",
            "in the first period / limit": f"{self.first_window:.2f}",
            "refused (429) / sent": f"{self.refused:.1%}",
            "admitted / all that was possible": f"{self.used:.1%}",
            "script runs / request": f"{self.scripts_per_request:.2f}" if redis else "-",
            "µs of Redis / script run": f"{self.script_micros:.0f}" if redis else "-",
            "µs of Redis / request": f"{self.script_micros * self.scripts_per_request:.0f}"
            if redis
            else "-",
            "out of order / pairs": f"{self.inverted():.1%}",
            "the same, by over a tenth of a period": f"{self.inverted(0.1):.1%}",
            "least / most of a process": f"{self.fairness:.2f}" if len(self.journeys) > 1 else "-",
            "idle once free / period, median": f"{quantile(self.lateness, 0.5):.1%}",
            "idle once free / period, p99": f"{quantile(self.lateness, 0.99):.1%}",
            "longest request / period": f"{self.longest / self.limit.period:.2f}",
            "spread on the way / period": f"{self.report.spread() / self.limit.period:.1%}",
            "other endings than 200, 429": listed(self.statuses, leave_out=("200", "429")),
            "decided by": listed(self.sources),
            **self._phases(),
        }

    def _phases(self) -> dict[str, str]:
        if self.away is None:
            return {}
        killed, back = self.away
        edges = {
            "up": (self.first, killed),
            "away": (killed, back),
            "back": (back, self.admitted[-1]),
        }
        return {
            f"admitted / limit, Redis {name}": format(
                sum(begin <= at < end for at in self.admitted)
                / (self.limit.count * (end - begin) / self.limit.period),
                ".1%",
            )
            for name, (begin, end) in edges.items()
        }


def listed(counts: Counter[str], leave_out: Sequence[str] = ()) -> str:
    """Counts as words."""
    rest = ((name, n) for name, n in counts.most_common() if name not in leave_out)
    return ", ".join(f"{n} {name}" for name, n in rest) or "-"
