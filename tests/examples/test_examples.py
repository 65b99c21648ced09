"""Every example runs as it is, and shows what its docstring says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from examples import login_guard
from quotaclient import StoreUnavailable
from quotaclient.testing import RedisServer, StrictUpstream

CHECKOUT = Path(__file__).parents[2]
EXAMPLES = CHECKOUT / "examples"


def start(name: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """An example in a process of its own; a warning in it is an error."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str], *, stderr: str = "") -> list[str]:
    """The lines that it printed, once it has ended well."""
    with process:
        try:
            printed, complaints = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0, complaints
    assert re.fullmatch(stderr, complaints), complaints
    return printed.splitlines()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_it_can_be_imported_and_says_how_to_run_it(path: Path) -> None:
    """Importing it does nothing; its docstring has the command."""
    module = import_module(f"examples.{path.stem}")
    assert callable(module.main)
    assert f"    python examples/{path.name}\n" in (module.__doc__ or "")
    assert any(name.startswith(f"test_{path.stem}") for name in globals())


def test_quickstart() -> None:
    """Both clients send all they have, and a server with the same limit refuses none of it."""
    with StrictUpstream(10, 1.0) as upstream:
        elsewhere = start("quickstart", upstream.url)
        *lines, last = end(start("quickstart"))
        assert len(end(elsewhere)) == 30
        assert upstream.report().sent == 30
    for colour in ("sync", "async"):
        rows = [line.split() for line in lines if line.startswith(f"{colour} ")]
        assert [status for _, status, *_ in rows] == ["200"] * 15
        assert max(float(seconds) for _, _, _, seconds, *_ in rows) > 0.9
    assert last == "refused by the server: 0"


def test_scraper() -> None:
    """Without arguments it scrapes a server on this machine."""
    assert end(start("scraper")) == ["by local: 50", "status 200: 50"]


def test_scraper_replicas_share_one_quota(redis_server: RedisServer) -> None:
    """Three processes with 25 pages each send what one limit allows, and none is refused.

    The server's window is a little shorter than the limit's: this is about sharing, not about how
    punctual the machine is.
    """
    environment = {"SCRAPER_REDIS": redis_server.url, "SCRAPER_LIMIT": "20/s"}
    with StrictUpstream(20, 0.9) as upstream:
        replicas = [
            start(
                "scraper",
                f"{upstream.url}/page/{{}}",
                *("--replicas", "3", "--pages", "25"),
                **environment,
            )
            for _ in range(3)
        ]
        for replica in replicas:
            assert end(replica) == ["by store: 25", "status 200: 25"]
        report = upstream.report()
    assert (report.sent, report.refused) == (75, 0)


def test_scraper_without_its_redis_keeps_to_its_share(redis_server: RedisServer) -> None:
    """One of two replicas goes on with half the limit, and a warning."""
    redis_server.kill()
    with StrictUpstream(4, 10.0) as upstream:
        replica = start(
            "scraper",
            f"{upstream.url}/page/{{}}",
            *("--redis", redis_server.url, "--replicas", "2", "--limit", "4/10s", "--pages", "2"),
        )
        away = r"Redis at \S+ is away \(.*\): this replica keeps to its share until it is back\n"
        assert end(replica, stderr=away) == ["by share: 2", "status 200: 2"]


@pytest.mark.parametrize("where", ["this process", "Redis"])
def test_tenants(where: str, request: pytest.FixtureRequest) -> None:
    """A tenant that has used up its tokens is refused; the other and the operator are not."""
    arguments: list[str] = []
    if where == "Redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        arguments = ["--redis", server.url]
    lines = end(start("tenants", *arguments))
    refused = re.fullmatch(
        r"tenant 7: 9000 tokens/min is used up, again in ([0-9]+) s", lines.pop(1)
    )
    assert refused
    assert 50 <= int(refused[1]) <= 61
    assert lines == [
        "tenant 7: 200 for 5000 tokens",
        "tenant 8: 200 for 5000 tokens",
        "operator: 200",
        "tenant-7: 1 of 500/min, 5000 of 9000 tokens/min",
        "tenant-8: 1 of 500/min, 5000 of 9000 tokens/min",
        "operator: 0 of 500/min, 0 of 9000 tokens/min",
    ]


def test_login_guard() -> None:
    """The sixth attempt is locked out although it is right; a success starts afresh."""
    assert end(start("login_guard")) == [
        *["203.0.113.7: wrong"] * 5,
        "203.0.113.7: locked",
        "203.0.113.7: 0 attempts left",
        "198.51.100.2: wrong",
        "198.51.100.2: welcome",
        "198.51.100.2: wrong",
        "198.51.100.2: 4 attempts left",
    ]


def test_login_guard_is_shared(redis_server: RedisServer) -> None:
    """Attempts at one replica count at the other, and a success at one clears both."""
    address, password = "203.0.113.7", login_guard.PASSWORD
    with login_guard.guard(redis_server.url) as one, login_guard.guard(redis_server.url) as two:
        for attempts in (one, two, one, two):
            assert login_guard.log_in(attempts, address, "123456") == "wrong"
        assert login_guard.log_in(two, address, password) == "welcome"
        outcomes = [login_guard.log_in(one, address, "123456") for _ in range(6)]
        assert outcomes == ["wrong"] * 5 + ["locked"]
        assert login_guard.log_in(two, address, password) == "locked"


def test_login_guard_lets_nobody_in_without_its_redis(redis_server: RedisServer) -> None:
    """While Redis is away an attempt raises, whatever the password."""
    with login_guard.guard(redis_server.url) as attempts:
        redis_server.kill()
        with pytest.raises(StoreUnavailable):
            login_guard.log_in(attempts, "203.0.113.7", login_guard.PASSWORD)
