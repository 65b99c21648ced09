"""Over httpx2: the same quota, the same errors, without httpx."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import httpx
import pytest

import quotaclient
from quotaclient import QuotaClient, httpx2
from quotaclient.testing import Answer, Received, ScriptedUpstream
from tests.shells.test_throttled import gaps, script

httpx2_library = pytest.importorskip("httpx2")

THROTTLED = Answer(429, (("retry-after", "0.3"),))
SMALL_EVERY_HOUR = "2/h"


def in_async(client: httpx2.AsyncQuotaClient, method: str, *args: Any, **kwargs: Any) -> Any:
    """One request of an async client, on a loop of its own."""

    async def call() -> Any:
        async with client:
            return await client.request(method, *args, **kwargs)

    return anyio.run(call)


def test_the_same_names() -> None:
    """Whoever changes the library changes the import, and nothing else."""
    assert sorted(httpx2.__all__) == sorted(quotaclient.__all__)
    assert all(hasattr(httpx2, name) for name in httpx2.__all__)
    assert httpx2.Limit is quotaclient.Limit
    assert httpx2.read_feedback is quotaclient.read_feedback


def test_httpx_is_not_imported() -> None:
    """Who has httpx2 needs no httpx."""
    code = "import sys, quotaclient.httpx2; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_is_a_client_of_httpx2(key: str) -> None:
    """A request goes out, its response is one of httpx2's, and tells of its permit."""
    with (
        ScriptedUpstream(lambda _: Answer(200, body=b"hello")) as upstream,
        httpx2.QuotaClient(upstream.url, limit="9/min", key=key, verify=False) as client,
    ):
        assert isinstance(client, httpx2_library.Client)
        response = client.get("/")
        assert isinstance(response, httpx2_library.Response)
        assert (response.text, response.extensions["quota"].remaining) == ("hello", 8)


def test_it_is_an_async_client_of_httpx2(key: str) -> None:
    """The twin, too."""
    with ScriptedUpstream(lambda _: Answer(200, body=b"hello")) as upstream:
        client = httpx2.AsyncQuotaClient(upstream.url, limit="9/min", key=key, verify=False)
        assert isinstance(client, httpx2_library.AsyncClient)
        assert in_async(client, "GET", "/").text == "hello"


def test_clients_of_both_libraries_share_a_quota(key: str) -> None:
    """A window knows nothing of HTTP libraries."""
    with (
        ScriptedUpstream(lambda _: Answer()) as upstream,
        QuotaClient(upstream.url, limit=SMALL_EVERY_HOUR, key=key, verify=False) as one,
        httpx2.QuotaClient(upstream.url, limit=SMALL_EVERY_HOUR, key=key, verify=False) as other,
    ):
        assert [one.get("/").status_code, other.get("/").status_code] == [200, 200]
        with pytest.raises(httpx2.QuotaExceeded, match="try again") as refused:
            other.get("/")
        assert refused.value.retry_after > 3_000
        assert isinstance(refused.value, httpx2_library.TransportError)
        assert not isinstance(refused.value, httpx.TransportError)
        assert refused.value.request.url.path == "/"
        with pytest.raises(quotaclient.QuotaExceeded):
            one.get("/")


def test_a_throttled_answer_is_heard(key: str) -> None:
    """The wait is kept and the body sent again; one that can be read once is not."""

    def once() -> Any:
        yield b"once"

    bodies: list[bytes] = []
    answers = script(THROTTLED, Answer(), THROTTLED)

    def answer(received: Received) -> Answer:
        bodies.append(received.body)
        return answers(received)

    with (
        ScriptedUpstream(answer) as upstream,
        httpx2.QuotaClient(upstream.url, limit="9/min", key=key, verify=False) as client,
    ):
        assert client.post("/", content=b"again").extensions["quota"].attempts == 2
        assert 0.3 <= gaps(upstream)[0] < 0.8
        response = client.post("/", content=once())
        assert (response.status_code, response.extensions["quota"].attempts) == (429, 1)
    assert bodies == [b"again", b"again", b"once"]


def test_bodies_are_looked_into_and_whole(key: str) -> None:
    """What a profile reads of a body its caller reads, too, at once or in pieces."""
    spent = b'{"error": {"code": "insufficient_quota"}}'
    answer = Answer(429, (("content-type", "application/json"),), spent)
    with ScriptedUpstream(lambda _: answer) as upstream:
        parameters: dict[str, Any] = {"limit": "9/min", "profile": "openai", "verify": False}
        with httpx2.QuotaClient(upstream.url, key=key, **parameters) as client:
            assert client.get("/").content == spent
            with client.stream("GET", "/") as streamed:
                assert b"".join(streamed.iter_raw()) == spent
        client_of_loop = httpx2.AsyncQuotaClient(upstream.url, key=key, **parameters)
        response = in_async(client_of_loop, "GET", "/")
        assert response.content == spent
        assert response.extensions["quota"].attempts == 1


def test_transports_to_compose(key: str) -> None:
    """A transport of ours in a client of theirs."""
    with ScriptedUpstream(lambda _: Answer()) as upstream:
        transport = httpx2.QuotaTransport(limit=SMALL_EVERY_HOUR, key=key, max_wait=0)
        with httpx2_library.Client(transport=transport, verify=False) as client:
            assert client.get(upstream.url).status_code == 200
            assert transport.quota.peek().remaining == 1

        async def call() -> int:
            inner = httpx2.AsyncQuotaTransport(limit=SMALL_EVERY_HOUR, key=key, max_wait=0)
            async with httpx2_library.AsyncClient(transport=inner, verify=False) as client:
                await client.get(upstream.url)
                return (await inner.quota.peek()).remaining

        assert anyio.run(call) == 0
