"""The upstream says 429 or 503: wait as told, tell the fleet, send again or hand the answer on."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest
import redis as redis_py
import tenacity

from quotaclient import AsyncQuotaClient, Limit, QuotaExceeded
from quotaclient.testing import Answer, Received, RedisServer, ScriptedUpstream
from tests.shells.colours import Colour, Recording, eventually, results, stopwatch

QUICK = tenacity.wait_fixed(0.05)


def throttled(wait: str | None, status: int = 429, **headers: str) -> Answer:
    """A throttled answer with this Retry-After."""
    stated = () if wait is None else (("retry-after", wait),)
    more = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Answer(status, (*stated, *more), b'{"error": "slow down"}')


def script(*answers: Answer) -> Callable[[Received], Answer]:
    """These answers, one a request; the last for ever."""
    left = list(answers)
    return lambda received: left.pop(0) if len(left) > 1 else left[0]


def gaps(upstream: ScriptedUpstream) -> list[float]:
    """Seconds between the requests that arrived."""
    at = [received.at for received in upstream.received]
    return [later - earlier for earlier, later in pairwise(at)]


def test_a_throttled_request_is_sent_again_after_the_wait(
    any_colour: Colour, key: str, redis: str | None
) -> None:
    """429 with Retry-After, then 200: a second send by a second permit, not before the time."""
    with ScriptedUpstream(script(throttled("0.2"), Answer())) as upstream:
        client = any_colour.client(upstream.url, limit="9/min", key=key, redis=redis)
        response = client.get("/")
        assert response.status_code == 200
        (gap,) = gaps(upstream)
        assert 0.2 <= gap < 0.5
        decision = response.extensions["quota"]
        assert decision.attempts == 2
        assert decision.waited >= 0.15
        assert decision.hold is None
        assert client.quota.used() == 2
        client.close()


def test_a_hold_binds_everybody_with_the_key(
    colour: Colour, other: Colour, key: str, either: str | None
) -> None:
    """What one client was told binds another of the other colour: refused or late, never early."""
    with ScriptedUpstream(script(throttled("0.4"), Answer())) as upstream:
        parameters: dict[str, Any] = {"limit": "9/min", "key": key, "redis": either}
        told = colour.client(upstream.url, retry=0, **parameters)
        bound = other.client(upstream.url, **parameters)
        assert told.get("/").extensions["quota"].hold == pytest.approx(0.4)
        with pytest.raises(QuotaExceeded) as caught:
            bound.get("/", extensions={"quota": {"max_wait": 0.1}})
        assert caught.value.limit is None
        assert 0.2 < caught.value.retry_after <= 0.41
        assert caught.value.source == ("store" if either else "local")
        assert 0.2 < (bound.quota.peek().hold or 0) <= 0.41
        with pytest.raises(QuotaExceeded):
            bound.quota.acquire(0, max_wait=0)  # cost 0 obeys holds
        assert bound.get("/").status_code == 200
        assert gaps(upstream)[0] >= 0.4


def test_a_hold_binds_those_who_wait_already(
    colour: Colour, other: Colour, key: str, either: str | None
) -> None:
    """Who stands in line with a reservation when the hold comes goes after it."""
    with ScriptedUpstream(script(throttled("0.85"), Answer())) as upstream:
        parameters: dict[str, Any] = {"limit": "1/0.5s", "key": key, "redis": either, "retry": 0}
        told = colour.client(upstream.url, **parameters)
        bound = other.client(upstream.url, **parameters)
        told.quota.acquire()
        first = told.start("/")  # reserves 0.55 s from now, is told then to hold for 0.85 s
        time.sleep(0.05)
        second = bound.start("/")  # reserves 1.1 s from now: before the hold ends
        outcomes = results([first, second])
        assert [response.status_code for response in outcomes] == [429, 200]
        assert gaps(upstream)[0] >= 0.85


def test_a_wait_longer_than_max_wait_hands_the_answer_over_at_once(
    colour: Colour, key: str, redis: str | None
) -> None:
    """The upstream's own 429 comes back at once, and its whole wait is held for everybody."""
    with ScriptedUpstream(script(throttled("30"), Answer())) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key, redis=redis, max_wait=1)
        with stopwatch() as took:
            response = client.get("/")
        assert took.seconds < 0.5
        assert response.status_code == 429
        assert response.json() == {"error": "slow down"}
        decision = response.extensions["quota"]
        assert (decision.attempts, decision.hold) == (1, 30)
        with stopwatch() as took, pytest.raises(QuotaExceeded) as caught:
            client.get("/")
        assert took.seconds < 0.5
        assert caught.value.limit is None
        assert 29 < caught.value.retry_after <= 30
        assert len(upstream.received) == 1
        assert client.quota.used() == 1


def test_max_wait_covers_all_waits_together(colour: Colour, key: str) -> None:
    """A second wait that no longer fits hands the second answer over."""
    with ScriptedUpstream(script(throttled("0.3"))) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key, max_wait=0.5, retry=5)
        with stopwatch() as took:
            response = client.get("/")
        assert response.status_code == 429
        assert response.extensions["quota"].attempts == 2
        assert took.seconds < 0.5


def test_attempts_used_up_hand_the_answer_over(colour: Colour, key: str) -> None:
    """retry=2 means three sends; then the upstream's answer comes back, body and all."""
    with ScriptedUpstream(script(throttled("0.05"))) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key)
        response = client.get("/")
        assert response.status_code == 429
        assert response.json() == {"error": "slow down"}
        assert response.extensions["quota"].attempts == 3
        assert response.extensions["quota"].hold == pytest.approx(0.05)
        assert len(upstream.received) == 3
        assert client.quota.used() == 3


@pytest.mark.parametrize("kind", ["generator", "file"])
def test_a_body_that_can_be_read_once_is_sent_once(colour: Colour, key: str, kind: str) -> None:
    """Generators and file-like content are not sent twice: the 429 comes back at once."""
    with ScriptedUpstream(script(throttled("0.05"), Answer())) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key)
        content: Any = colour.body(b"one", b"two")
        if kind == "file" and colour.name == "sync":
            content = io.BytesIO(b"onetwo")
        response = client.request("POST", "/", content=content)
        assert response.status_code == 429
        assert [received.body for received in upstream.received] == [b"onetwo"]


@pytest.mark.parametrize(
    "body",
    [
        {"content": b"bytes" * 1000},
        {"json": {"a": [1, 2, 3]}},
        {"data": {"a": "b"}},
        {"data": {"a": "b"}, "files": {"file": ("name.bin", b"\0\1\2" * 1000)}},
        {"files": {"file": lambda: io.BytesIO(b"seekable" * 1000)}},
        {"files": [("f", lambda: io.BytesIO(b"one")), ("f", lambda: io.BytesIO(b"two"))]},
        {},
    ],
    ids=["bytes", "json", "form", "multipart-bytes", "multipart-file", "multipart-files", "none"],
)
def test_a_body_that_can_be_read_again_is_sent_again(
    colour: Colour, key: str, body: dict[str, Any]
) -> None:
    """Bytes, JSON, forms and multipart with seekable files arrive the same the second time."""
    files = body.get("files")
    if isinstance(files, dict):
        files = {name: file() if callable(file) else file for name, file in files.items()}
    elif files:
        files = [(name, make()) for name, make in files]
    with ScriptedUpstream(script(throttled("0.05"), Answer())) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key)
        response = client.request("POST", "/", **{**body, **({"files": files} if files else {})})
        assert response.status_code == 200
        first, second = upstream.received
        assert (first.method, first.path, first.headers, first.body) == (
            second.method,
            second.path,
            second.headers,
            second.body,
        )
        assert bool(first.body) is bool(body)


def test_a_multipart_file_that_cannot_be_rewound_is_sent_once(colour: Colour, key: str) -> None:
    """A pipe in a multipart body is not sent twice."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation

        def tell(self) -> int:
            raise io.UnsupportedOperation

        def fileno(self) -> int:
            raise io.UnsupportedOperation

    with ScriptedUpstream(script(throttled("0.05"), Answer())) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key)
        response = client.request("POST", "/", files={"file": Pipe(b"once")})
        assert response.status_code == 429
        assert len(upstream.received) == 1


@pytest.mark.parametrize(
    ("method", "status", "headers", "sends"),
    [
        ("POST", 429, {}, 2),
        ("PATCH", 429, {}, 2),
        ("POST", 420, {}, 2),
        ("GET", 503, {}, 2),
        ("PUT", 503, {}, 2),
        ("DELETE", 503, {}, 2),
        ("POST", 503, {}, 1),
        ("PATCH", 503, {}, 1),
        ("POST", 503, {"Idempotency-Key": "k"}, 2),
        ("POST", 529, {}, 1),
        ("GET", 529, {}, 2),
    ],
)
def test_what_is_sent_again(
    colour: Colour, key: str, method: str, status: int, headers: dict[str, str], sends: int
) -> None:
    """Refusals are sent again by any method, overload only where twice means the same as once."""
    with ScriptedUpstream(script(throttled("0.05", status), Answer())) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key)
        response = client.request(method, "/", headers=headers)
        assert len(upstream.received) == sends
        assert response.status_code == (200 if sends == 2 else status)
        assert response.extensions["quota"].attempts == sends


def test_a_post_that_is_not_sent_again_is_held_all_the_same(colour: Colour, key: str) -> None:
    """503 with Retry-After on a POST comes back at once, and later requests wait."""
    with ScriptedUpstream(script(throttled("0.25", 503), Answer())) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key)
        assert client.request("POST", "/").status_code == 503
        assert client.get("/").status_code == 200
        assert gaps(upstream)[0] >= 0.25


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 502, 503, 504])
def test_other_errors_pass_through(colour: Colour, key: str, status: int) -> None:
    """What is no throttling, such as a bare 503, is handed on: one send, no hold."""
    with ScriptedUpstream(script(Answer(status, body=b"why"))) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key)
        with stopwatch() as took:
            response = client.get("/")
        assert (response.status_code, response.content) == (status, b"why")
        assert took.seconds < 0.3
        assert len(upstream.received) == 1
        assert client.quota.peek().hold is None


def test_retry_after_zero_for_ever_is_bounded(colour: Colour, key: str) -> None:
    """`Retry-After: 0` is no licence to spin: back-off between sends, and an end to them."""
    with ScriptedUpstream(script(throttled("0"))) as upstream:
        client = colour.client(upstream.url, limit="99/min", key=key, retry=1)
        response = client.get("/")
        assert response.status_code == 429
        assert len(upstream.received) == 2
        assert gaps(upstream)[0] >= 0.5


@pytest.mark.parametrize("streamed", [False, True])
def test_a_throttled_answer_is_closed_before_the_wait(
    colour: Colour, key: str, streamed: bool
) -> None:
    """With one connection, ten throttled answers in a row, and it is free for each next send."""
    answers = [throttled("0.01")] * 10 + [Answer(body=b"at last")]
    with ScriptedUpstream(script(*answers)) as upstream:
        client = colour.client(
            upstream.url, limit="99/min", key=key, retry=10,
            limits=httpx.Limits(max_connections=1), timeout=httpx.Timeout(5, pool=0.5),
        )  # fmt: skip
        if streamed:
            response, body = client.stream("GET", "/")
        else:
            response = client.get("/")
            body = response.content
        assert (response.status_code, body) == (200, b"at last")
        assert response.extensions["quota"].attempts == 11
        assert client.get("/").status_code == 200
        assert upstream.accepted == 1  # short answers are read out, which keeps the connection


def test_the_connection_is_free_while_waiting(colour: Colour, key: str) -> None:
    """During the wait after a 429 nothing is held: another origin's request gets the connection."""
    with (
        ScriptedUpstream(script(throttled("0.4"), Answer())) as upstream,
        ScriptedUpstream(lambda received: Answer()) as elsewhere,
    ):
        client = colour.client(
            upstream.url, limit="9/min", key=key, limits=httpx.Limits(max_connections=1)
        )
        waiting = client.start("/")
        assert eventually(lambda: len(upstream.received) == 1)
        time.sleep(0.05)
        with stopwatch() as took:
            client.get(elsewhere.url)
        assert took.seconds < 0.25
        assert waiting.result(5).status_code == 200


@pytest.mark.parametrize("size", [16_000, 20_000, 3_000_000])
def test_a_large_throttled_answer_is_closed_too(any_colour: Colour, key: str, size: int) -> None:
    """A throttled answer of any size is closed without being read to its end."""
    large = Answer(429, (("retry-after", "0.05"),), b"x" * size)
    with ScriptedUpstream(script(large, large, Answer())) as upstream:
        client = any_colour.client(
            upstream.url, limit="9/min", key=key,
            limits=httpx.Limits(max_connections=1), timeout=httpx.Timeout(5, pool=0.5),
        )  # fmt: skip
        with stopwatch() as took:
            assert client.get("/").status_code == 200
        assert took.seconds < 1
        assert client.get("/").status_code == 200
        client.close()


@contextmanager
def stalling() -> Iterator[str]:
    """An upstream whose first answer is a 429 that never ends; the others are 200."""
    served = threading.Event()
    closing = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            if not served.is_set():
                served.set()
                head = b"HTTP/1.1 429 x\r\nretry-after: 0.05\r\ncontent-length: 900\r\n\r\nhalf"
                connection.sendall(head)
                closing.wait(3)
            else:
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                )

    def accept() -> None:
        while not closing.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        closing.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_throttled_answer_that_never_ends_delays_nobody_for_long(
    colour: Colour, key: str
) -> None:
    """An unwanted body that stalls is given up after about a second, not at the read timeout."""
    with stalling() as url:
        client = colour.client(url, limit="9/min", key=key)
        with stopwatch() as took:
            assert client.get("/").status_code == 200
        assert took.seconds < 2
        client.close()


def test_a_tenacity_policy_is_honoured(colour: Colour, key: str) -> None:
    """stop and wait of a tenacity object decide: four sends, 50 ms between them."""
    kinds = [tenacity.Retrying, tenacity.AsyncRetrying]
    for number, kind in enumerate(kinds):
        policy = kind(stop=tenacity.stop_after_attempt(4), wait=QUICK)
        with ScriptedUpstream(script(throttled(None))) as upstream:
            client = colour.client(upstream.url, limit="9/min", key=f"{key}-{number}", retry=policy)
            response = client.get("/")
            assert response.status_code == 429
            assert response.extensions["quota"].attempts == 4
            assert len(upstream.received) == 4
            assert all(0.05 <= gap < 0.4 for gap in gaps(upstream))


def test_a_tenacity_policy_counts_each_request_anew(colour: Colour, key: str) -> None:
    """One policy serves many requests at once: each has its own attempts."""
    policy = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_fixed(0.01))
    with ScriptedUpstream(script(throttled(None))) as upstream:
        client = colour.client(upstream.url, limit="99/min", key=key, retry=policy)
        responses = results([client.start("/") for _ in range(5)])
        assert [response.extensions["quota"].attempts for response in responses] == [2] * 5
        assert len(upstream.received) == 10


def test_stop_after_delay_is_honoured(colour: Colour, key: str) -> None:
    """A policy that stops by time stops."""
    policy = tenacity.Retrying(stop=tenacity.stop_after_delay(0.3), wait=tenacity.wait_fixed(0.1))
    with ScriptedUpstream(script(throttled(None))) as upstream:
        client = colour.client(upstream.url, limit="99/min", key=key, retry=policy)
        with stopwatch() as took:
            assert client.get("/").status_code == 429
        assert 0.3 <= took.seconds < 0.8
        assert 3 <= len(upstream.received) <= 4


def test_a_stated_wait_goes_before_the_policys(colour: Colour, key: str) -> None:
    """Retry-After is kept as it is, be the policy's own wait shorter or longer."""
    for number, own in enumerate([0.01, 5.0]):
        policy = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_fixed(own)
        )
        with ScriptedUpstream(script(throttled("0.2"), Answer())) as upstream:
            client = colour.client(upstream.url, limit="9/min", key=f"{key}-{number}", retry=policy)
            assert client.get("/").status_code == 200
            assert 0.2 <= gaps(upstream)[0] < 0.5


def test_a_policy_that_fails_leaks_no_response(colour: Colour, key: str) -> None:
    """When the user's own wait function raises, its error comes out and the answer is closed."""

    def broken(state: tenacity.RetryCallState) -> float:
        raise ZeroDivisionError

    policy = tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=broken)
    with ScriptedUpstream(script(throttled(None), Answer())) as upstream:
        client = colour.client(
            upstream.url, limit="9/min", key=key, retry=policy,
            limits=httpx.Limits(max_connections=1), timeout=httpx.Timeout(5, pool=0.5),
        )  # fmt: skip
        with pytest.raises(ZeroDivisionError):
            client.get("/")
        assert client.get("/").status_code == 200


@pytest.mark.parametrize("wait", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_policy_with_a_mad_wait_neither_spins_nor_hangs(
    colour: Colour, key: str, wait: float
) -> None:
    """nan, inf, negative and huge back-offs end in an answer: in time, after at most two sends."""
    policy = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=lambda state: wait)
    with ScriptedUpstream(script(throttled(None))) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key, retry=policy, max_wait=0.5)
        with stopwatch() as took:
            assert client.get("/").status_code == 429
        assert took.seconds < 2
        assert len(upstream.received) <= 2


@pytest.mark.parametrize("retry", [0, 1, 4])
def test_retry_counts_resends(colour: Colour, key: str, retry: int) -> None:
    """retry=N means N + 1 sends."""
    with ScriptedUpstream(script(throttled("0.01"))) as upstream:
        client = colour.client(upstream.url, limit="99/min", key=key, retry=retry)
        assert client.get("/").extensions["quota"].attempts == retry + 1
        assert len(upstream.received) == retry + 1


def test_x_should_retry_false(colour: Colour, key: str) -> None:
    """`x-should-retry: false` forbids the resend; the stated wait is still held."""
    answers = script(throttled("0.3", x_should_retry="false"), Answer())
    with ScriptedUpstream(answers) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key)
        with stopwatch() as took:
            response = client.get("/")
        assert response.status_code == 429
        assert took.seconds < 0.2
        assert response.extensions["quota"].hold == pytest.approx(0.3)
        assert client.get("/").status_code == 200
        assert gaps(upstream)[0] >= 0.3


def test_holds_merge_by_maximum(colour: Colour, key: str, either: str | None) -> None:
    """A later, smaller hold does not shorten the one there is, nor do they add up."""
    with ScriptedUpstream(
        lambda received: {
            "/long": throttled("0.3"),
            "/short": Answer(429, (("retry-after", "0.1"),), delay=0.1),
            "/": Answer(),
        }[received.path]
    ) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key, redis=either, retry=0)
        results([client.start("/short"), client.start("/long")])
        assert client.get("/").status_code == 200
        at = {received.path: received.at for received in upstream.received}
        assert 0.3 <= at["/"] - at["/long"] < 0.5


def test_ten_at_once_throttled_together_go_together(colour: Colour, key: str) -> None:
    """Ten in flight that are all told to wait are all sent again after it, with no other wait."""
    first: set[str] = set()

    def answers(received: Received) -> Answer:
        if received.path in first:
            return Answer()
        first.add(received.path)
        # All are in flight before the first is answered.
        return Answer(429, (("retry-after", "0.2"),), delay=0.1)

    with ScriptedUpstream(answers) as upstream:
        client = colour.client(upstream.url, limit="99/min", key=key)
        with stopwatch() as took:
            responses = results([client.start(f"/{number}") for number in range(10)])
        assert [response.status_code for response in responses] == [200] * 10
        assert took.seconds < 0.7


def test_the_loop_runs_on_while_a_hold_is_on(key: str, redis: str | None) -> None:
    """Two answers in a row that hold, with a waiter in line, stop nobody else on the loop."""

    async def main() -> float:
        latest = 0.0

        async def beat() -> None:
            nonlocal latest
            while True:
                since = time.monotonic()
                await asyncio.sleep(0.01)
                latest = max(latest, time.monotonic() - since - 0.01)

        answers = {"/a": throttled("0.35"), "/b": throttled("0.35"), "/c": Answer()}
        slow = {"/a": 0.1, "/b": 0.15, "/c": 0.0}

        def answer(received: Received) -> Answer:
            reply = answers[received.path]
            return Answer(reply.status, reply.headers, reply.body, slow[received.path])

        with ScriptedUpstream(answer) as upstream:
            async with AsyncQuotaClient(
                upstream.url, limit="99/min", key=key, redis=redis, retry=0
            ) as client:
                await client.get("/c")
                heart = asyncio.create_task(beat())
                first = [asyncio.create_task(client.get(path)) for path in ("/a", "/b")]
                await asyncio.sleep(0.12)  # "/a" has been answered, "/b" not yet
                third = asyncio.create_task(client.get("/c"))
                await asyncio.gather(*first, third)
                heart.cancel()
        return latest

    assert asyncio.run(main()) < 0.15


def calls_of_scripts(server: RedisServer) -> int:
    """How many scripts this Redis has run."""
    with redis_py.Redis(port=server.port) as client:
        stats = client.info("commandstats")
    assert isinstance(stats, dict)
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


def test_a_hold_that_redis_forgot_starts_no_storm(
    colour: Colour, redis_server: RedisServer, key: str
) -> None:
    """A Redis that lost the hold is not asked again and again until the hold ends, nor obeyed."""
    with ScriptedUpstream(script(throttled("0.6"), Answer())) as upstream:
        client = colour.client(upstream.url, limit="99/min", key=key, redis=redis_server.url)
        waiting = [client.start("/")]
        assert eventually(lambda: len(upstream.received) == 1)
        time.sleep(0.1)
        with redis_py.Redis(port=redis_server.port) as admin:
            admin.flushall()
        before = calls_of_scripts(redis_server)
        waiting += [client.start("/") for _ in range(3)]
        assert [response.status_code for response in results(waiting)] == [200] * 4
        assert calls_of_scripts(redis_server) - before < 20
        assert all(later.at - upstream.received[0].at >= 0.6 for later in upstream.received[1:])
        client.close()


def test_throttled_by_a_transport_without_trace_events(colour: Colour, key: str) -> None:
    """The resend works over a mock transport as well, with the same body."""
    answers = [httpx.Response(429, headers={"retry-after": "0.05"}), httpx.Response(200)]
    inner = Recording(lambda request: answers.pop(0))
    client = colour.client("http://a.test", limit="9/min", key=key, transport=inner)
    assert client.request("POST", "/", json=[1]).status_code == 200
    assert [request.read() for request in inner.requests] == [b"[1]", b"[1]"]


def test_a_quota_that_is_too_small_for_the_resend(colour: Colour, key: str) -> None:
    """A resend whose permit cannot come within max_wait is a QuotaExceeded with that limit."""
    with ScriptedUpstream(script(throttled("0.05"), Answer())) as upstream:
        client = colour.client(upstream.url, limit="1/min", key=key, max_wait=1)
        with stopwatch() as took, pytest.raises(QuotaExceeded) as caught:
            client.get("/")
        assert caught.value.limit == Limit(1, 60)
        assert took.seconds < 1.3
        assert len(upstream.received) == 1


GARBAGE = [
    [("retry-after", "\x00\x01")],
    [("retry-after", "9" * 5000)],
    [("retry-after", "-1"), ("retry-after", "nan"), ("retry-after", "inf"), ("retry-after", "")],
    [("retry-after", "1e9"), ("retry-after", "0x10"), ("retry-after", "१")],
    [("retry-after", "Wed, 99 Foo 2026 99:99:99 GMT")],
    [("retry-after-ms", "NaN"), ("retry-after-ms", "1" * 400)],
    [("date", "never"), ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")],
    [("ratelimit", '"' * 3000), ("ratelimit-policy", ";;;=,=,\\"), ("x-ratelimit-reset", "∞")],
    [(f"x-{number}", "y" * 50) for number in range(5000)],
    [("retry-after", ",".join("1" * 3000))],
    [("x-should-retry", "perhaps\xff")],
    [("retry-after", "h" * 127), ("retry-after", "1h" * 64)],
]


@pytest.mark.parametrize("headers", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("status", [200, 404, 429, 503])
def test_garbage_in_headers_raises_nothing(
    colour: Colour, key: str, headers: list[tuple[str, str]], status: int
) -> None:
    """No header, however huge or odd, makes a request fail: the upstream's answer comes back."""
    raw = [(name.encode(), value.encode("utf-8")) for name, value in headers]
    inner = Recording(lambda request: httpx.Response(status, headers=raw, content=b"body"))
    client = colour.client(
        "http://a.test", limit="99/min", key=key, transport=inner, retry=0, max_wait=0.5
    )
    with stopwatch() as took:
        response = client.get("/")
    assert (response.status_code, response.content) == (status, b"body")
    assert took.seconds < 0.3


def test_garbage_on_the_wire(colour: Colour, key: str) -> None:
    """Four thousand header lines and bytes of no charset on a real 429 are no trouble either."""
    many = tuple((f"x-{number}", "é" * 5) for number in range(4000))
    with ScriptedUpstream(
        script(Answer(429, (*many, ("retry-after", "ÿ\x7f"), ("retry-after", "0.05"))), Answer())
    ) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key)
        assert client.get("/").status_code == 200
        assert len(upstream.received) == 2


def test_retry_of_one_request(colour: Colour, key: str) -> None:
    """How often one request is sent again may be its own affair: a number, or tenacity's."""
    with ScriptedUpstream(lambda _: throttled("0.05")) as upstream:
        client = colour.client(upstream.url, limit="99/s", key=key, retry=1)
        sends = [
            client.get("/", extensions={"quota": quota}).extensions["quota"].attempts
            for quota in (
                {},
                {"retry": 0},
                {"retry": 2},
                {"retry": tenacity.Retrying(stop=tenacity.stop_after_attempt(4), wait=QUICK)},
            )
        ]
        assert sends == [2, 1, 3, 4]
