"""Upstreams over HTTP/1.1: `StrictUpstream` judges a fleet, `ScriptedUpstream` plays a part."""

import asyncio
import http.client
import json
import math
import os
import select
import signal
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ._http import Answer, Received, closes, read_body, read_head, render
from ._loopback import BackgroundUpstream, LoopbackServer

_START_DEADLINE = 10.0  # seconds; an interpreter takes a tenth of one, on a starved machine more
_STOP_DEADLINE = 5.0


class ScriptedUpstream(BackgroundUpstream):
    """An HTTP/1.1 server in a background thread whose behaviour is a plain function.

    with ScriptedUpstream(lambda received: Answer(429, (("retry-after", "1"),))) as upstream:
        httpx.get(upstream.url)
    """

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await read_head(reader)) is not None:
            body = await read_body(reader, head)
            answer = self._answer(Received(head.method, head.path, head.headers, body, head.at))
            if answer.delay:
                await asyncio.sleep(answer.delay)
            writer.write(render(answer, head.method))
            await writer.drain()
            if closes(head) or closes(answer):
                return


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request at a `StrictUpstream`.

    `at`: `time.monotonic()` when its head was read. `replica`: its header `x-replica`, or "".
    `departed`: its header `x-departed`, the sender's `time.monotonic()` at departure, or None;
    comparable with `at` because the monotonic clocks of Linux and macOS are the machine's, not the
    process's.
    """

    at: float
    replica: str
    admitted: bool
    departed: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a `StrictUpstream` saw: `arrivals` in order of time, against `count` per `period` s."""

    count: int
    period: float
    arrivals: tuple[Arrival, ...]

    @property
    def sent(self) -> int:
        """Requests that arrived."""
        return len(self.arrivals)

    @property
    def admitted(self) -> int:
        """Requests answered 200."""
        return sum(arrival.admitted for arrival in self.arrivals)

    @property
    def refused(self) -> int:
        """Requests answered 429."""
        return self.sent - self.admitted

    def most_in_any_window(self) -> int:
        """The most arrivals, admitted or refused, in any (t - period, t]."""
        most = first = 0
        for last, arrival in enumerate(self.arrivals):
            while self.arrivals[first].at <= arrival.at - self.period:
                first += 1
            most = max(most, last - first + 1)
        return most

    def used(self, start: float | None = None, end: float | None = None) -> float:
        """The share of the quota used: admitted in [start, end] / (count * (end - start) / period).

        `start` and `end` are `time.monotonic()` seconds, by default those of the first and the last
        arrival. A quota that lay unused before `start` may be spent at once, so the share may reach
        1 + period / (end - start). 0.0 for an empty or pointlike span.
        """
        if not self.arrivals:
            return 0.0
        start = self.arrivals[0].at if start is None else start
        end = self.arrivals[-1].at if end is None else end
        if end <= start:
            return 0.0
        admitted = sum(a.admitted for a in self.arrivals if start <= a.at <= end)
        return admitted / (self.count * (end - start) / self.period)

    def spread(self) -> float:
        """Slowest minus quickest way from departure to arrival, seconds; 0.0 if none is known."""
        ways = [a.at - a.departed for a in self.arrivals if a.departed is not None]
        return max(ways) - min(ways) if ways else 0.0

    def by_replica(self) -> "dict[str, Report]":
        """A report of each replica's own arrivals, sorted by label."""
        labels = sorted({arrival.replica for arrival in self.arrivals})
        return {
            label: Report(
                self.count, self.period, tuple(a for a in self.arrivals if a.replica == label)
            )
            for label in labels
        }


class StrictUpstream:
    """A real HTTP/1.1 server that admits exactly `count` requests in any (t - period, t].

    It keeps an exact sliding log: each request is stamped as soon as its head is read and answered
    200, or 429 with the exact seconds in Retry-After, rounded up to three decimals. What it refuses
    does not count against the limit. It lives in a process of its own, so that the work of its
    clients does not delay its stamps, and ends with the with-block or with the process that started
    it, whatever ends that.

    with StrictUpstream(100, 2.0) as upstream:
        ...
        assert upstream.report().refused == 0
    """

    def __init__(self, count: int, period: float, *, delay: float = 0.0) -> None:
        """`count` requests, at least 1, per `period` seconds, over 0; `delay` s before an answer.

        ValueError where one is out of range.
        """
        if count < 1 or not 0 < period < math.inf or not 0 <= delay < math.inf:
            raise ValueError(
                f"StrictUpstream({count!r}, {period!r}, delay={delay!r}): count must be at"
                " least 1, period positive and delay not negative, for example"
                " StrictUpstream(100, 2.0, delay=0.05)"
            )
        self.count = count
        self.period = period
        self._delay = delay
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # The child must find this very package, also where the parent runs from a checkout.
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, (self.count, self.period, self._delay))],
            stdin=subprocess.PIPE,  # never written to: its end tells the child that we are gone
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            # The terminal's Ctrl-C is for us; the child outlives it until we have asked for its
            # report.
            start_new_session=True,
        )
        try:
            self._port = _announced_port(process)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def url(self) -> str:
        """The origin, `http://127.0.0.1:PORT`. Any path may be called but `/_report`."""
        return f"http://127.0.0.1:{self._port}"

    def report(self) -> Report:
        """Everything that has arrived until now; may be asked for while requests are coming in.

        RuntimeError outside the with-block.
        """
        if self._process is None:
            raise RuntimeError("ask a StrictUpstream for its report inside its with-block")
        # http.client, because urllib would go through the proxies of the environment.
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", "/_report", headers={"connection": "close"})
            rows = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return Report(self.count, self.period, tuple(Arrival(*row) for row in rows))

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes the pipes and waits
            # Not by the pipe alone: a forked child of ours may still hold it open.
            process.terminate()
            try:
                process.wait(_STOP_DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()


def _announced_port(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _START_DEADLINE)
    line = process.stdout.readline() if ready else b""
    if not line:
        raise RuntimeError("the strict upstream did not start; its error stands on stderr")
    return int(line)


# What follows runs in the process of the StrictUpstream.

_JSON = ("content-type", "application/json")


class _Judge:
    """The exact sliding log and the record of all arrivals."""

    def __init__(self, count: int, period: float, delay: float) -> None:
        self._count = count
        self._period = period
        self._delay = delay
        self._log = deque[float]()  # admitted in (now - period, now], never more than count
        # Plain tuples: the garbage collector soon stops looking at them, so long runs bring no
        # pauses.
        self._arrivals: list[tuple[float, str, bool, float | None]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await read_head(reader)) is not None:
            if head.path == "/_report":
                reply = await self._report()
            else:
                # Before the body is awaited, so that the log is in the order of the stamps.
                reply = self._judge(head)
                await read_body(reader, head)
                if self._delay:
                    await asyncio.sleep(self._delay)
            writer.write(reply)
            await writer.drain()
            if closes(head):
                return

    def _judge(self, head: Received) -> bytes:
        wait = self._wait(head.at)
        self._arrivals.append(
            (head.at, head.header("x-replica"), wait == 0, _number(head.header("x-departed")))
        )
        if wait == 0:
            answer = Answer(200, (_JSON,), b'{"ok":true}')
        else:
            headers = (_JSON, ("retry-after", f"{wait:.3f}"))
            answer = Answer(429, headers, b'{"error":"too many requests"}')
        return render(answer, head.method)

    def _wait(self, at: float) -> float:
        """0 and booked when the log has room at `at`, else the seconds until it has."""
        while self._log and self._log[0] <= at - self._period:
            self._log.popleft()
        if len(self._log) < self._count:
            self._log.append(at)
            return 0
        return max(1, math.ceil((self._log[0] + self._period - at) * 1000)) / 1000

    async def _report(self) -> bytes:
        arrivals = self._arrivals[:]
        parts: list[str] = []
        for start in range(0, len(arrivals), 500):
            parts.append(json.dumps(arrivals[start : start + 500])[1:-1])
            await asyncio.sleep(0)  # requests are stamped between two parts
        body = f"[{','.join(parts)}]".encode()
        return render(Answer(200, (_JSON,), body))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


async def _main(count: int, period: float, delay: float) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin.fileno(), stop.set)  # readable means ended: the parent is gone
    async with LoopbackServer(_Judge(count, period, delay).serve) as server:
        print(server.port, flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
