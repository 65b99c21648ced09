"""The SDKs of OpenAI and Anthropic, sending through a client of ours.

They stand on httpx2 and have retries of their own: with `max_retries=0` there is one layer, ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from quotaclient import httpx2
from quotaclient.testing import Answer, Received, ScriptedUpstream
from tests.shells.test_throttled import gaps, script

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

JSON = ("content-type", "application/json")
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "small",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "hello"},
        }
    ],
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "small",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
ASKED: list[Any] = [{"role": "user", "content": "hello?"}]
SPENT = {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "…"}}
BUSY = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
RATE = {"error": {"code": "rate_limit_exceeded", "type": "requests", "message": "Rate limit"}}


def told(status: int, body: Any, *headers: tuple[str, str]) -> Answer:
    """An answer in their dialect."""
    return Answer(status, (JSON, *headers), json.dumps(body).encode())


REFUSED = told(429, RATE, ("retry-after-ms", "400"), ("x-ratelimit-remaining-requests", "0"))

Text = Callable[[str, str], str]


def of_openai(url: str, key: str) -> str:
    """What OpenAI's SDK makes of one exchange."""
    with httpx2.QuotaClient(limit="9/min", key=key, profile="openai", verify=False) as ours:
        sdk = openai.OpenAI(api_key="k", base_url=url, max_retries=0, http_client=ours)
        completion = sdk.chat.completions.create(model="small", messages=ASKED)
        return str(completion.choices[0].message.content)


def of_openai_async(url: str, key: str) -> str:
    """The same on a loop."""

    async def call() -> str:
        async with httpx2.AsyncQuotaClient(
            limit="9/min", key=key, profile="openai", verify=False
        ) as ours:
            sdk = openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0, http_client=ours)
            completion = await sdk.chat.completions.create(model="small", messages=ASKED)
            return str(completion.choices[0].message.content)

    return anyio.run(call)


def of_anthropic(url: str, key: str) -> str:
    """What Anthropic's SDK makes of one exchange."""
    with httpx2.QuotaClient(limit="9/min", key=key, profile="anthropic", verify=False) as ours:
        sdk = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0, http_client=ours)
        message = sdk.messages.create(model="small", max_tokens=9, messages=ASKED)
        return str(message.content[0].text)


def of_anthropic_async(url: str, key: str) -> str:
    """The same on a loop."""

    async def call() -> str:
        async with httpx2.AsyncQuotaClient(
            limit="9/min", key=key, profile="anthropic", verify=False
        ) as ours:
            sdk = anthropic.AsyncAnthropic(
                api_key="k", base_url=url, max_retries=0, http_client=ours
            )
            message = await sdk.messages.create(model="small", max_tokens=9, messages=ASKED)
            return str(message.content[0].text)

    return anyio.run(call)


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (of_openai, COMPLETION),
        (of_openai_async, COMPLETION),
        (of_anthropic, MESSAGE),
        (of_anthropic_async, MESSAGE),
    ],
)
def test_a_refusal_is_waited_out(ask: Text, answer: Any, key: str) -> None:
    """One layer of retries, and no early send: the SDK's caller sees only the answer."""
    with ScriptedUpstream(script(REFUSED, told(200, answer))) as upstream:
        assert ask(upstream.url, key) == "hello"
        (gap,) = gaps(upstream)
        assert 0.4 <= gap < 1.2


def test_no_credit_is_told_at_once(key: str) -> None:
    """What no waiting mends is sent once, and the SDK raises its own error with its body."""
    with ScriptedUpstream(lambda _: told(429, SPENT)) as upstream:
        with pytest.raises(openai.RateLimitError) as raised:
            of_openai(upstream.url, key)
        assert raised.value.code == "insufficient_quota"
        assert len(upstream.received) == 1


def test_an_overload_is_not_sent_twice(key: str) -> None:
    """529 may strike in mid-work: a POST without an Idempotency-Key comes back as it is."""
    with ScriptedUpstream(lambda _: told(529, BUSY)) as upstream:
        with pytest.raises(anthropic.APIStatusError) as raised:
            of_anthropic(upstream.url, key)
        assert raised.value.status_code == 529
        assert len(upstream.received) == 1


def test_a_stream_is_the_callers(key: str) -> None:
    """Server-sent events go through as they come."""
    events = (
        b"".join(
            b"data: " + json.dumps(part).encode() + b"\n\n"
            for part in (
                {
                    **COMPLETION,
                    "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
                }
                for text in ("hel", "lo")
            )
        )
        + b"data: [DONE]\n\n"
    )
    answer = Answer(200, (("content-type", "text/event-stream"),), events)
    with (
        ScriptedUpstream(lambda _: answer) as upstream,
        httpx2.QuotaClient(limit="9/min", key=key, profile="openai", verify=False) as ours,
    ):
        sdk = openai.OpenAI(api_key="k", base_url=upstream.url, max_retries=0, http_client=ours)
        parts = sdk.chat.completions.create(model="small", messages=ASKED, stream=True)
        assert "".join(part.choices[0].delta.content for part in parts) == "hello"


def test_a_quota_that_is_used_up_is_an_error_of_the_sdk(key: str) -> None:
    """QuotaExceeded is a TransportError of httpx2: the SDK shows it as the cause of its own."""
    received: list[Received] = []

    def answer(request: Received) -> Answer:
        received.append(request)
        return told(200, COMPLETION)

    with (
        ScriptedUpstream(answer) as upstream,
        httpx2.QuotaClient(limit="1/h", key=key, max_wait=0, verify=False) as ours,
    ):
        sdk = openai.OpenAI(api_key="k", base_url=upstream.url, max_retries=0, http_client=ours)
        sdk.chat.completions.create(model="small", messages=ASKED)
        with pytest.raises(openai.APIConnectionError) as raised:
            sdk.chat.completions.create(model="small", messages=ASKED)
    assert isinstance(raised.value.__cause__, httpx2.QuotaExceeded)
    assert len(received) == 1
    assert "httpx2" in sys.modules
