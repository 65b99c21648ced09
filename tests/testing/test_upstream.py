import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from h2.connection import H2Connection
from h2.events import DataReceived

from quotaclient.testing import (
    Answer,
    Arrival,
    Http2Upstream,
    Received,
    Report,
    ScriptedUpstream,
    StrictUpstream,
)

BOTH = pytest.mark.parametrize("kind", [ScriptedUpstream, Http2Upstream])
Kind = type[ScriptedUpstream] | type[Http2Upstream]


def client_for(kind: Kind) -> httpx.Client:
    """A client that speaks what this kind of upstream does, and no proxy."""
    http2 = kind is Http2Upstream
    return httpx.Client(http1=not http2, http2=http2, trust_env=False)


def echo(received: Received) -> Answer:
    """What came in, as the body of the answer."""
    text = f"{received.method} {received.path} {received.header('x-name', '-')} "
    return Answer(200, (("X-Seen", "yes"),), text.encode() + received.body)


def eventually(condition: Callable[[], bool], within: float = 3.0) -> bool:
    """Whether the condition comes true in so many seconds."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def alive(pid: int) -> bool:
    """Whether this process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended stays in the table until its parent, perhaps a lazy init, has looked.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


# Scripted, over HTTP/1.1 and HTTP/2


@BOTH
def test_answers_by_the_function(kind: Kind) -> None:
    """Method, path, headers and body reach the function; status, headers and body come back."""
    before = time.monotonic()
    with kind(echo) as upstream, client_for(kind) as client:
        response = client.post(f"{upstream.url}/a?b=c", content=b"body", headers={"X-Name": "n"})
        assert (response.status_code, response.text) == (200, "POST /a?b=c n body")
        assert response.headers["x-seen"] == "yes"
        (received,) = upstream.received
        assert received.header("host") == upstream.url.removeprefix("http://")
        assert received.body == b"body"
        assert before < received.at < time.monotonic()


@BOTH
def test_bodies_without_a_length(kind: Kind) -> None:
    """A body that comes in pieces is received whole, and the connection goes on."""
    with kind(echo) as upstream, client_for(kind) as client:
        for _ in range(2):
            pieces = iter([b"one ", b"two ", b"three"])
            assert client.put(upstream.url, content=pieces).text == "PUT / - one two three"
        assert upstream.accepted == 1


@BOTH
def test_big_bodies(kind: Kind) -> None:
    """Bodies larger than any window or buffer pass in both directions."""
    big = os.urandom(1_000_000)
    with kind(lambda got: Answer(body=got.body)) as upstream, client_for(kind) as client:
        assert client.post(upstream.url, content=big).content == big


@BOTH
def test_no_body_where_none_belongs(kind: Kind) -> None:
    """HEAD, 204 and 304 have no body, and the connection goes on."""

    def answers(received: Received) -> Answer:
        return Answer(int(received.path[1:]), body=b"text")

    with kind(answers) as upstream, client_for(kind) as client:
        for method, path in [("HEAD", "/200"), ("GET", "/204"), ("GET", "/304")]:
            response = client.request(method, upstream.url + path)
            assert (response.status_code, response.content) == (int(path[1:]), b"")
        assert client.get(f"{upstream.url}/200").content == b"text"
        assert upstream.accepted == 1


@BOTH
def test_connections_are_counted(kind: Kind) -> None:
    """Connections are kept alive and counted, those accepted and those open now."""
    with kind(echo) as upstream:
        with client_for(kind) as one, client_for(kind) as two:
            for _ in range(3):
                one.get(upstream.url)
            two.get(upstream.url)
            assert (upstream.accepted, upstream.connections) == (2, 2)
            assert "accepted=2 connections=2" in repr(upstream)
        assert eventually(lambda: upstream.connections == 0)
        assert upstream.accepted == 2


@BOTH
def test_late_handshake(kind: Kind) -> None:
    """The first request of a connection is late by the handshake delay, the second is not."""
    with kind(echo, handshake_delay=0.3) as upstream, client_for(kind) as client:
        took: list[float] = []
        for _ in range(2):
            start = time.monotonic()
            client.get(upstream.url)
            took.append(upstream.received[-1].at - start)
        assert took[0] >= 0.3
        assert took[1] < 0.3


@BOTH
def test_failing_function(kind: Kind) -> None:
    """An error in the function answers 500 and is raised where the with-block ends."""

    def fail(received: Received) -> Answer:
        raise LookupError(received.path)

    raises = pytest.raises(LookupError, match="/there")
    with raises, kind(fail) as upstream, client_for(kind) as client:
        assert client.get(f"{upstream.url}/there").status_code == 500


@BOTH
def test_end_with_open_connections(kind: Kind) -> None:
    """Leaving the with-block ends the thread at once, with requests unanswered too."""
    before = threading.active_count()
    errors: list[Exception] = []

    def ask(url: str) -> None:
        with client_for(kind) as client:
            try:
                client.get(url)
            except httpx.TransportError as exc:
                errors.append(exc)

    with kind(lambda got: Answer(delay=60)) as upstream:
        asking = threading.Thread(target=ask, args=(upstream.url,))
        asking.start()
        assert eventually(lambda: len(upstream.received) == 1)
        start = time.monotonic()
    assert time.monotonic() - start < 1
    asking.join(5)
    assert len(errors) == 1
    assert threading.active_count() == before


def test_streams_are_concurrent() -> None:
    """On one HTTP/2 connection each stream is answered after its own delay, in any order."""
    order: list[str] = []

    async def ask(client: httpx.AsyncClient, url: str) -> None:
        order.append((await client.get(url)).text)

    async def main(url: str) -> None:
        async with httpx.AsyncClient(http1=False, http2=True, trust_env=False) as client:
            await client.get(url)  # the connection stands
            await asyncio.gather(ask(client, f"{url}/slow"), ask(client, f"{url}/quick"))

    def answers(received: Received) -> Answer:
        return Answer(body=received.path.encode(), delay=0.3 if received.path == "/slow" else 0)

    with Http2Upstream(answers) as upstream:
        asyncio.run(main(upstream.url))
        assert [received.path for received in upstream.received] == ["/", "/slow", "/quick"]
        assert order == ["/quick", "/slow"]
        assert upstream.accepted == 1


def test_a_client_in_no_hurry() -> None:
    """An answer waits for the client's windows; a stream that it resets is dropped alone."""
    body = os.urandom(200_000)  # over three times the window that RFC 9113 begins with

    def answers(received: Received) -> Answer:
        return Answer(body=body, delay=60 if received.path == "/slow" else 0)

    with Http2Upstream(answers) as upstream:
        address = ("127.0.0.1", int(upstream.url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=5) as connection:
            client = H2Connection()
            client.initiate_connection()
            for stream, path in [(1, "/slow"), (3, "/quick"), (5, "/unfinished")]:
                start = [(":method", "GET"), (":scheme", "http"), (":path", path)]
                client.send_headers(stream, [*start, (":authority", "x")], end_stream=stream < 5)
            client.reset_stream(1)
            client.reset_stream(5)
            connection.sendall(client.data_to_send())
            got = b""
            while len(got) < len(body):
                for event in client.receive_data(connection.recv(65536)):
                    if isinstance(event, DataReceived):
                        assert event.stream_id == 3
                        got += event.data
                        client.acknowledge_received_data(event.flow_controlled_length, 3)
                connection.sendall(client.data_to_send())
            assert got == body
            assert [received.path for received in upstream.received] == ["/slow", "/quick"]
            client.close_connection()
            connection.sendall(client.data_to_send())
        assert eventually(lambda: upstream.connections == 0)


@BOTH
def test_another_protocol(kind: Kind) -> None:
    """A client that speaks another protocol loses its connection, and nobody else does."""
    other = Http2Upstream if kind is ScriptedUpstream else ScriptedUpstream
    with kind(echo) as upstream:
        with client_for(other) as stranger, pytest.raises(httpx.TransportError):
            stranger.get(upstream.url)
        with client_for(kind) as client:
            assert client.get(upstream.url).status_code == 200


def test_http1_headers_over_http2() -> None:
    """Headers that only HTTP/1.1 knows are left out over HTTP/2."""
    answer = Answer(headers=(("Connection", "close"), ("X-Other", "1")))
    with Http2Upstream(lambda got: answer) as upstream, client_for(Http2Upstream) as client:
        headers = client.get(upstream.url).headers
        assert ("connection" in headers, headers["x-other"]) == (False, "1")


@pytest.mark.parametrize("side", ["request", "answer"])
def test_connection_close(side: str) -> None:
    """`Connection: close` from either side closes the connection after the answer."""
    close = (("connection", "close"),)
    answer = Answer(headers=close if side == "answer" else ())
    with ScriptedUpstream(lambda got: answer) as upstream, client_for(ScriptedUpstream) as client:
        for _ in range(2):
            client.get(upstream.url, headers=dict(close) if side == "request" else {})
        assert upstream.accepted == 2


# Strict


def fire(url: str, times: int, **headers: str) -> list[http.client.HTTPResponse]:
    """So many requests in a row over one connection."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    responses: list[http.client.HTTPResponse] = []
    try:
        for _ in range(times):
            sent = {"x-departed": repr(time.monotonic()), **headers}
            connection.request("POST", "/items", b"body", sent)
            responses.append(connection.getresponse())
            responses[-1].read()
    finally:
        connection.close()
    return responses


def test_exactly_the_limit() -> None:
    """Exactly `count` are admitted in any period, to the millisecond that Retry-After tells."""
    with StrictUpstream(3, 1.0) as upstream:
        answers = fire(upstream.url, 5, **{"x-replica": "a"})
        told = time.monotonic()
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        wait = answers[-1].headers["retry-after"]
        assert wait == f"{float(wait):.3f}"
        assert 0 < float(wait) <= 1.0
        time.sleep(max(0.0, told + float(wait) - time.monotonic()))
        assert fire(upstream.url, 1, **{"x-replica": "b"})[0].status == 200
        report = upstream.report()

    assert (report.count, report.period) == (3, 1.0)
    assert (report.sent, report.admitted, report.refused) == (6, 4, 2)
    first, *_, refused, last = report.arrivals
    exact = first.at + 1.0 - refused.at
    assert exact <= float(wait) < exact + 0.0011
    assert last.at - first.at >= 1.0
    assert report.most_in_any_window() == 5
    assert {name: part.sent for name, part in report.by_replica().items()} == {"a": 5, "b": 1}
    assert 0 < report.spread() < 1.0


def test_delay_comes_after_the_stamp() -> None:
    """`delay` delays the answer, not the stamp."""
    with StrictUpstream(10, 1.0, delay=0.2) as upstream:
        start = time.monotonic()
        fire(upstream.url, 1)
        assert time.monotonic() - start >= 0.2
        assert upstream.report().arrivals[0].at < start + 0.2


def test_long_report_of_many_connections() -> None:
    """A report of thousands of arrivals over many connections is whole and in order of time."""
    with StrictUpstream(10**6, 60) as upstream:
        threads = [threading.Thread(target=fire, args=(upstream.url, 150)) for _ in range(8)]
        for thread in threads:
            thread.start()
        upstream.report()
        for thread in threads:
            thread.join()
        report = upstream.report()
    assert report.sent == report.admitted == report.most_in_any_window() == 1200
    assert list(report.arrivals) == sorted(report.arrivals, key=lambda arrival: arrival.at)


def test_odd_requests() -> None:
    """No header breaks the judge: an unreadable departure is none, a lying length a lost peer."""
    with StrictUpstream(10, 1.0) as upstream:
        fire(upstream.url, 1, **{"x-departed": "nan"})
        fire(upstream.url, 1, **{"x-departed": "soon"})
        with pytest.raises(http.client.BadStatusLine):
            fire(upstream.url, 1, **{"content-length": "-"})
        report = upstream.report()
    assert [arrival.departed is None for arrival in report.arrivals[:2]] == [True, True]
    assert report.sent == 3
    assert report.arrivals[0].replica == ""


def test_report_arithmetic() -> None:
    """Windows are open at their start, shares count what was admitted, nothing divides by 0."""

    def arrivals(*times: float, admitted: bool = True) -> tuple[Arrival, ...]:
        return tuple(Arrival(at, "", admitted) for at in times)

    assert Report(2, 1.0, arrivals(0, 0.5, 1.0, 1.5)).most_in_any_window() == 2
    assert Report(2, 1.0, arrivals(0, 0.5, 0.75, 1.75)).most_in_any_window() == 3
    steady = Report(2, 1.0, arrivals(0, 0.5, 1.0, 1.5, 2.0))
    assert steady.used() == 5 / 4
    assert steady.used(0.1, 2.1) == 1.0
    assert steady.used(3.0, 4.0) == 0.0
    assert Report(2, 1.0, arrivals(0, 1.0, admitted=False)).used() == 0.0
    assert Report(2, 1.0, arrivals(0)).used() == 0.0
    empty = Report(2, 1.0, ())
    assert (empty.used(), empty.most_in_any_window(), empty.spread()) == (0.0, 0, 0.0)
    assert empty.by_replica() == {}
    late = (Arrival(1.0, "", True, 0.75), Arrival(2.0, "", True, 1.5), Arrival(3.0, "", True))
    assert Report(2, 1.0, late).spread() == 0.25


@pytest.mark.parametrize("arguments", [(0, 1.0), (1, 0.0), (1, float("nan")), (1, float("inf"))])
def test_limits_that_are_none(arguments: tuple[int, float]) -> None:
    """A limit that is none is refused with the value and a correct example."""
    with pytest.raises(ValueError, match=r"StrictUpstream\(100, 2\.0"):
        StrictUpstream(*arguments)


def test_after_the_end() -> None:
    """After the with-block the process is gone and there is no report."""
    with StrictUpstream(1, 1.0) as upstream:
        url = upstream.url
    with pytest.raises(ConnectionRefusedError):
        fire(url, 1)
    with pytest.raises(RuntimeError, match="with-block"):
        upstream.report()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_parent_dies(number: signal.Signals) -> None:
    """Whatever ends the process that started it, kill -9 too, ends the strict upstream."""
    script = (
        "import time; from quotaclient.testing import StrictUpstream\n"
        "with StrictUpstream(1, 1.0) as upstream:\n"
        "    print(upstream._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(number)
    assert eventually(lambda: not alive(pid))


@pytest.mark.parametrize("part", ["RedisServer", "StrictUpstream", "ScriptedUpstream"])
def test_parts_cost_only_their_imports(part: str) -> None:
    """Redis and the HTTP/1.1 upstreams come without httpx, redis and h2."""
    script = (
        f"import sys; from quotaclient.testing import {part}\n"
        "print(sorted({'httpx', 'redis', 'h2', 'anyio'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert run.stdout.strip() == "[]"


def test_names() -> None:
    """Every public name resolves, and no other does."""
    import quotaclient.testing as testing

    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name
    assert dir(testing) == testing.__all__
    with pytest.raises(AttributeError, match="Clock"):
        _ = testing.Clock
