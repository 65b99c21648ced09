"""The README's code runs and prints what its comments say; what it lists is what there is."""

from __future__ import annotations

import asyncio
import builtins
import inspect
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import httpx
import pytest
import redis

import quotaclient
import quotaclient.errors
import quotaclient.testing
from quotaclient import AsyncQuota, AsyncQuotaClient, Limit, Quota, QuotaClient
from quotaclient._core.ask import SECOND
from quotaclient._core.guard import default_guard
from quotaclient._core.options import RequestOptions
from quotaclient._stores.memory import MemoryStore
from quotaclient.cli import _parser
from quotaclient.testing import Answer, Received, RedisServer, ScriptedUpstream

CHECKOUT = Path(__file__).parents[1]
README = (CHECKOUT / "README.md").read_text("utf-8")
API, REDIS = "https://api.example.com", "redis://localhost:6379/0"


@dataclass(frozen=True)
class Block:
    section: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.section}:{self.line}"

    @property
    def printed(self) -> list[str]:
        """What the comments behind its prints say."""
        return re.findall(r"^ *print\(.*\)  # (.*)$", self.code, re.MULTILINE)


def _blocks() -> list[Block]:
    blocks = []
    for match in re.finditer(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        before = README[: match.start(1)]
        section = re.findall(r"^#+ (.*)$", before, re.MULTILINE)[-1]
        blocks.append(Block(section, before.count("\n"), match[1]))
    return blocks


BLOCKS = _blocks()


def _section(title: str) -> str:
    return re.split(r"^#+ ", README.split(f"# {title}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def _rows(title: str, header: str) -> list[list[str]]:
    """The cells of a table, found by its section and first column."""
    table = _section(title).split(f"| {header} |")[1].split("\n\n")[0]
    return [
        [cell.strip().strip("`") for cell in row.strip("|").split(" | ")]
        for row in table.splitlines()[2:]
    ]


def _upstream() -> ScriptedUpstream:
    refusals = [Answer(429, (("retry-after", "1"),))]

    def answer(received: Received) -> Answer:
        return refusals.pop() if received.path == "/reports" and refusals else Answer()

    return ScriptedUpstream(answer)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_code_runs_and_prints_what_it_says(
    block: Block,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each block runs against a real upstream and a real Redis in place of the addresses in it."""
    assert block.printed
    monkeypatch.setattr(MemoryStore, "_everywhere", {})  # its keys may serve another test, too
    code = block.code
    if REDIS in code:
        server: RedisServer = request.getfixturevalue("redis_server")
        code = code.replace(REDIS, server.url)
        if block.section == "When Redis is down":
            server.kill()
    elif "RedisServer()" in code:
        request.getfixturevalue("shared_redis")  # skips where there is none
    with _upstream() as upstream:
        code = code.replace(API, upstream.url)
        assert "example.com" not in code
        assert "localhost" not in code
        source = "\n" * block.line + code  # so that a traceback names the README's own line
        exec(compile(source, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.splitlines() == block.printed


def test_there_are_blocks() -> None:
    """Each promise of the first sections is shown by code that runs."""
    assert [block.section for block in BLOCKS][:3] == [
        "quotaclient",
        "When Redis is down",
        "On a 429",
    ]
    assert len(BLOCKS) == README.count("```") // 2


def test_options_are_those_of_the_clients() -> None:
    """The table names each parameter of both clients, with its default, in their order."""
    rows = [(name, default) for name, default, _ in _rows("Options", "parameter")]
    for client in (QuotaClient, AsyncQuotaClient):
        parameters = list(inspect.signature(client).parameters.values())
        assert parameters.pop().kind is inspect.Parameter.VAR_KEYWORD
        assert rows == [
            (
                parameter.name,
                "required"
                if parameter.default is parameter.empty
                else repr(parameter.default).replace("'", '"'),
            )
            for parameter in parameters
        ]


def test_options_of_a_request_are_those_that_are_read() -> None:
    """The table names each option of a request; a value for each is taken."""
    names = [name for name, _, _ in _rows("For one request", "option")]
    limits = Limit.parse("10/s")
    values = {"cost": 2, "key": "tenant-7", "max_wait": 0.5, "priority": 1, "retry": 3}
    assert names == list(values)
    read = RequestOptions((2,), "tenant-7", 0.5, 1, 3)
    assert RequestOptions.read(values, limits, 60.0) == read
    with pytest.raises(ValueError, match="made of cost, key, max_wait, priority, retry;"):
        RequestOptions.read({"costs": 2}, limits, 60.0)


def test_guard_costs_what_the_table_says() -> None:
    """Guards are the default ones, and L * W / (W + guard) is what remains."""
    rows = _rows("The guard", "limit")
    assert len(rows) == 4
    for text, guard, remains in rows:
        (limit,) = Limit.parse(text)
        seconds = default_guard((limit,)) / SECOND
        assert guard == f"{seconds:g} s"
        assert remains == f"{limit.period / (limit.period + seconds):.1%}".replace("%", " %")


def test_errors_are_drawn_as_they_are() -> None:
    """In the tree, each class derives from the one above it that is less indented."""
    known = {**vars(builtins), **vars(quotaclient.errors)}
    drawing = _section("Errors").split("```")[0]
    above: dict[int, type] = {}
    drawn = set()
    for indent, name in re.findall(r"^    ( *)(?:httpx\.)?(\w+)", drawing, re.MULTILINE):
        error = httpx.TransportError if name == "TransportError" else known[name]
        if indent:
            assert issubclass(error, above[len(indent) - 2])
        above[len(indent)] = error
        drawn.add(name)
    assert drawn == {*quotaclient.errors.__all__, "TransportError", "ValueError"}


@pytest.mark.parametrize("module", [quotaclient, quotaclient.testing], ids=lambda m: m.__name__)
def test_every_public_name_is_mentioned(module: ModuleType) -> None:
    """What can be imported can be found in the README."""
    helpers = {"Answer", "Arrival", "Received", "Report", "find_redis_server"}
    assert [
        n for n in module.__all__ if n not in helpers and not re.search(rf"\b{n}\b", README)
    ] == []


def test_house_is_drawn_as_it_is() -> None:
    """The tree lists what exists, and every module of the package."""
    tree = _section("Development").split("\n\n")[2]
    folders: dict[int, str] = {}
    listed: set[str] = set()
    for indent, name in re.findall(r"^    ( *)([\w./]+)(?:  .*)?$", tree, re.MULTILINE):
        depth = len(indent)
        path = (folders.get(depth - 2, "") if depth else "") + name
        folders[depth] = path
        listed.add(path)
    assert {path for path in listed if not (CHECKOUT / path).exists()} == set()
    package = CHECKOUT / "quotaclient"
    modules = {
        path.relative_to(CHECKOUT).as_posix()
        for path in [*package.glob("*.py"), *(package / "_core").glob("[!_]*.py")]
    }
    assert modules - listed == set()


def test_links_lead_somewhere() -> None:
    """Every link without a host is a file or a section."""
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if target.startswith("#"):
            titles = re.findall(r"^#+ (.*)$", README, re.MULTILINE)
            assert target[1:] in {title.lower().replace(" ", "-") for title in titles}
        else:
            assert (CHECKOUT / target).is_file(), target


def test_commands_exist() -> None:
    """Every `make` command of the README is a target, and the demo takes the options shown."""
    makefile = (CHECKOUT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"(?:^    |`)make ([a-z]+)", README, re.MULTILINE))
    assert targets >= {"demo", "test", "check"}
    assert targets <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    shown = re.findall(r'make demo ARGS="(.*?)"', README)
    assert shown
    for arguments in shown:
        _parser().parse_args(["demo", *shlex.split(arguments)])


def test_redis_holds_what_is_said(redis_server: RedisServer) -> None:
    """Five kinds of keys, hashed and expiring."""
    refusal = Answer(429, (("retry-after", "30"),))
    with (
        ScriptedUpstream(lambda _: refusal) as upstream,
        QuotaClient(
            upstream.url,
            limit="5/min; 9/day fixed",
            routes={"/": "5/min"},
            redis=redis_server.url,
            max_wait=1,
        ) as client,
    ):
        assert client.get("/").extensions["quota"].hold == 30.0
    drawn = set(re.findall(r"^    quota:\{hash of the key\}:(.+?)  ", README, re.MULTILINE))
    assert len(drawn) == 5
    with redis.Redis.from_url(redis_server.url) as connection:
        keys = [key.decode() for key in connection.scan_iter()]
        bare = {re.sub(r"^quota:\{[0-9a-f]{32}\}:", "", key) for key in keys}
        assert {re.sub(r"^[0-9a-f]{16}:", "<hash of the route>:", key) for key in bare} == drawn
        assert all(connection.pttl(key) > 0 for key in keys)


def test_spent_is_what_was_presented(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read timeout is spent, a refused connection is not, a mock's error is."""
    monkeypatch.setattr(MemoryStore, "_everywhere", {})

    def fails(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no")

    with (
        ScriptedUpstream(lambda _: Answer(delay=5)) as upstream,
        QuotaClient(upstream.url, limit="5/min", timeout=0.1) as client,
    ):
        with pytest.raises(httpx.ReadTimeout):
            client.get("/")
        assert client.quota.peek().remaining == 4
    with QuotaClient(upstream.url, limit="5/min", key="nobody listens any more") as client:
        with pytest.raises(httpx.ConnectError):
            client.get("/")
        assert client.quota.peek().remaining == 5
    mock = httpx.MockTransport(fails)
    with QuotaClient("http://mock", limit="5/min", transport=mock) as client:
        with pytest.raises(httpx.ConnectError):
            client.get("/")
        assert client.quota.peek().remaining == 4


def test_one_async_quota_serves_several_loops(redis_server: RedisServer) -> None:
    """On each loop it has its own connections; the windows are the same."""
    quota = AsyncQuota("loops", "5/min", redis=redis_server.url)

    async def acquire(*, last: bool) -> int:
        decision = await quota.acquire()
        if last:
            await quota.aclose()
        else:  # as aclose() does for this loop, but the quota goes on
            closing = quota._here.store.close()
            assert closing is not None
            await closing
        return decision.remaining

    assert [asyncio.run(acquire(last=last)) for last in (False, True)] == [4, 3]


FORK = """
import os, sys
from quotaclient import Quota

local, shared = Quota("fork", "5/min"), Quota("fork", "5/min", redis=sys.argv[1])
local.acquire(), shared.acquire()
if not os.fork():
    print("child", local.acquire().remaining, shared.acquire().remaining, flush=True)
    os._exit(0)
os.wait()
print("parent", local.acquire().remaining, shared.acquire().remaining)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_of_a_fork_is_a_process_of_its_own(redis_server: RedisServer) -> None:
    """Windows in the process are copied and count apart, those in Redis are shared."""
    done = subprocess.run(
        [sys.executable, "-c", FORK, redis_server.url],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.stdout.splitlines(), done.stderr) == (["child 3 3", "parent 3 2"], "")


def test_replicas_with_less_than_one_may_not_send(redis_server: RedisServer) -> None:
    """Without replicas=, and with a share below one, a request says what is missing."""
    redis_server.kill()
    for replicas, reason in ((None, "pass replicas="), (6, "one of 6 replicas may send 0")):
        with (
            Quota("share", "5/min", redis=redis_server.url, replicas=replicas) as quota,
            pytest.raises(quotaclient.StoreUnavailable, match=reason),
        ):
            quota.acquire()
