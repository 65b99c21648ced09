"""What an answer says beyond its status: header fields, and bodies that are still the caller's."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import zlib
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from quotaclient import AsyncQuotaClient, Profile, QuotaExceeded
from quotaclient.testing import Answer, Received, RedisServer, ScriptedUpstream
from tests.shells.colours import Colour, Recording, stopwatch
from tests.shells.test_throttled import gaps, script

JSON = ("content-type", "application/json")
SPENT = {"error": {"code": "insufficient_quota", "message": "…"}}
TELEGRAM = {"ok": False, "parameters": {"retry_after": 0.3}}


def refusal(body: Any, *headers: tuple[str, str], status: int = 429) -> Answer:
    """An answer with this JSON body."""
    return Answer(status, (JSON, *headers), json.dumps(body).encode())


def test_a_success_with_nothing_left(colour: Colour, key: str, redis: str | None) -> None:
    """It is handed over at once; the next request waits for the reset, of any client of the key."""
    spent = Answer(200, (("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "0.4")))
    with ScriptedUpstream(script(spent, Answer())) as upstream:
        client, other = (
            colour.client(upstream.url, limit="9/min", key=key, redis=redis) for _ in range(2)
        )
        with stopwatch() as took:
            response = client.get("/")
        assert response.extensions["quota"].hold == pytest.approx(0.4)
        assert took.seconds < 0.3
        assert other.get("/").status_code == 200
        (gap,) = gaps(upstream)
        assert 0.38 <= gap < 0.8


def test_a_resource_with_nothing_left(colour: Colour, key: str) -> None:
    """Where each resource has a quota of its own, the others go on."""
    spent = Answer(200, (("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "40")))
    with ScriptedUpstream(lambda _: spent) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key, profile="github", max_wait=0)
        assert [client.get("/").extensions["quota"].hold for _ in range(2)] == [None, None]


def test_what_waits_is_heard_from_a_body(colour: Colour, key: str) -> None:
    """Where the profile says that the body states the wait, it is kept as any other."""
    with ScriptedUpstream(script(refusal(TELEGRAM), Answer())) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key, profile="telegram")
        assert client.get("/").extensions["quota"].attempts == 2
        (gap,) = gaps(upstream)
        assert 0.3 <= gap < 0.7


def test_what_no_waiting_mends_is_not_sent_again(colour: Colour, key: str) -> None:
    """An account without credit is refused with 429, too: the answer comes back, whole."""
    with ScriptedUpstream(lambda _: refusal(SPENT)) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key, profile="openai")
        response = client.request("POST", "/v1/responses", json={})
        assert response.json() == SPENT
        assert response.extensions["quota"].attempts == 1
        assert response.extensions["quota"].hold is None
        streamed, body = client.stream("GET", "/v1/models")
        assert (streamed.status_code, json.loads(body)) == (429, SPENT)


@pytest.mark.parametrize(
    ("encoding", "encode"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_bodies_that_are_compressed(colour: Colour, key: str, encoding: str, encode: Any) -> None:
    """What is sent packed is looked at unpacked, and unpacked once more for the caller."""
    answer = Answer(429, (JSON, ("content-encoding", encoding)), encode(json.dumps(SPENT).encode()))
    with ScriptedUpstream(lambda _: answer) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key, profile="openai")
        response = client.get("/")
        assert response.json() == SPENT
        assert response.extensions["quota"].attempts == 1


@pytest.mark.parametrize(
    "answer",
    [
        refusal({**SPENT, "more": "x" * 20_000}),
        Answer(429, (JSON, ("content-encoding", "br")), b"\x1b\x0f\x00\xf8"),
        Answer(429, (JSON, ("content-encoding", "gzip")), b"no such thing"),
        Answer(429, (("content-type", "text/event-stream"),), json.dumps(SPENT).encode()),
        Answer(429, (JSON,), b"{"),
    ],
    ids=["long", "another encoding", "broken", "no JSON by its type", "no JSON"],
)
def test_bodies_that_are_not_looked_at(colour: Colour, key: str, answer: Answer) -> None:
    """Then the status speaks: it is sent again, and its bytes are the caller's as they came."""
    with ScriptedUpstream(lambda _: answer) as upstream:
        client = colour.client(
            upstream.url, limit="9/min", key=key, profile="openai", retry=0, max_wait=0
        )
        response, body = client.raw("GET", "/")
        assert body == answer.body
        assert response.extensions["quota"].hold >= 1


def test_a_body_in_pieces(colour: Colour, key: str) -> None:
    """A body without a length is looked at up to 16 KiB, and none of it is lost, or read twice."""
    parts = [b'{"error": {"code": "', b"x" * 20_000, b'"}}', b" "]
    inner = Recording(
        lambda _: httpx.Response(
            429, headers={"content-type": "application/json"}, content=colour.body(*parts)
        )
    )
    client = colour.client(
        "http://api.test", limit="9/min", key=key, profile="openai", retry=0, transport=inner
    )
    assert client.get("/").content == b"".join(parts)


def test_a_body_that_breaks(colour: Colour, key: str) -> None:
    """What goes wrong as a body is looked at goes wrong for whoever reads it, not before."""
    inner = Recording(
        lambda _: httpx.Response(
            429,
            headers={"content-type": "application/json", "retry-after": "1"},
            content=colour.body(b"{", httpx.ReadError("cut")),
        )
    )
    client = colour.client(
        "http://api.test", limit="9/min", key=key, profile="openai", retry=0, transport=inner
    )
    with pytest.raises(httpx.ReadError, match="cut"):
        client.get("/")
    assert client.quota.peek().hold is not None


def test_a_profile_of_ones_own(colour: Colour, key: str) -> None:
    """For an API of which nobody else has heard."""
    own = Profile(name="ours", waits=("slow_down",), wait=9)
    with ScriptedUpstream(script(refusal({"slow_down": "250ms"}), Answer())) as upstream:
        client = colour.client(upstream.url, limit="9/min", key=key, profile=own)
        assert client.get("/").extensions["quota"].attempts == 2
        (gap,) = gaps(upstream)
        assert 0.25 <= gap < 0.7


def test_a_profile_that_there_is_not(colour: Colour) -> None:
    """A wrong name is an error, with all that are right."""
    with pytest.raises(ValueError, match=r"profile='githup' is not a Profile or one of generic, "):
        colour.client(limit="9/min", profile="githup")
    with pytest.raises(TypeError, match="profile"):
        colour.quota("key", "9/min", profile="github")


def test_one_connection_is_enough(colour: Colour, key: str) -> None:
    """Ten refusals in a row, each looked at: the eleventh request still gets the connection."""
    with ScriptedUpstream(lambda _: refusal(TELEGRAM)) as upstream:
        client = colour.client(
            upstream.url,
            limit="99/min",
            key=key,
            profile="telegram",
            retry=1,
            max_wait=0.4,
            limits=httpx.Limits(max_connections=1),
            timeout=httpx.Timeout(5, pool=0.5),
        )
        for _ in range(5):
            assert client.get("/").status_code == 429
        with pytest.raises(QuotaExceeded):
            client.get("/", extensions={"quota": {"max_wait": 0}})


def test_a_fleet_that_was_held_does_not_stampede(key: str, redis_server: RedisServer) -> None:
    """One of four clients is refused: a second later nobody sends, and a tenth goes at the end."""
    refused_at: list[float] = []

    def refuse_once(received: Received) -> Answer:
        if len(upstream.received) < 150 or refused_at:
            return Answer()
        refused_at.append(received.at)
        return Answer(429, (("retry-after", "2"),))

    async def work(client: AsyncQuotaClient, until: float) -> None:
        while time.monotonic() < until:
            await client.get("/")

    async def fleet() -> None:
        until = time.monotonic() + 5.5
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    AsyncQuotaClient(
                        upstream.url, limit="100/s", key=key, redis=redis_server.url, guard=0.1
                    )
                )
                for _ in range(4)
            ]
            await asyncio.gather(*(work(client, until) for client in clients for _ in range(20)))

    with ScriptedUpstream(refuse_once) as upstream:
        asyncio.run(fleet())
        arrivals = [received.at - refused_at[0] for received in upstream.received]
    assert not [at for at in arrivals if 1 < at < 2]
    after = [at for at in arrivals if at >= 2]
    assert sum(at < after[0] + 0.1 for at in after) <= 10
    assert sum(at < after[0] + 1 for at in after) >= 40
