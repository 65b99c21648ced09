"""What is peculiar to each API: the table itself, and each of its entries by an answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from quotaclient._core.feedback import MOST_READ, Feedback
from quotaclient._core.profiles import GENERIC, PROFILES, Profile, Sign, profile_of, values_at
from quotaclient._feedback import read_feedback

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_the_table_is_whole() -> None:
    """Names and hosts are there once, in order, as they are compared."""
    names = [profile.name for profile in PROFILES]
    hosts = [host for profile in PROFILES for host in profile.hosts]
    assert names == sorted(set(names))
    assert len(hosts) == len(set(hosts))
    assert all(host == host.lower().strip(".") for host in hosts)
    signs = [sign for profile in PROFILES for sign in profile.signs]
    assert all(bool(sign.at) + bool(sign.header) + sign.empty == 1 for sign in signs)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.github.com", "github"),
        ("shop.myshopify.com", "shopify"),
        ("en.wikipedia.org", "mediawiki"),
        ("notgithub.com", "generic"),
        ("myshopify.com.evil.test", "generic"),
        ("localhost", "generic"),
        ("", "generic"),
    ],
)
def test_hosts(host: str, name: str) -> None:
    """A profile is for its hosts and all below them."""
    assert profile_of(host).name == name


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("a.b", ["1", "x"]),
        ("a", ["5"]),
        ("a.b.c", []),
        ("truth", ["True"]),
        ("none", []),
        ("list", ["1", "2", "3"]),
        ("", []),
    ],
)
def test_paths(path: str, values: list[str]) -> None:
    """Lists are looked through, and what is neither text nor number is no value."""
    body = {"a": [{"b": 1}, {"b": "x"}, 5], "truth": True, "none": None, "list": [1, [2, [3]]]}
    assert list(values_at(body, path)) == values


def test_deep_bodies() -> None:
    """No body is too deep: what lies very deep in lists is not looked for."""
    body: Any = "x"
    for _ in range(10_000):
        body = [body]
    assert not list(values_at(body, ""))


REFUSED = Feedback(throttled=True)
FINE = Feedback(throttled=False)


def refused(wait: float) -> Feedback:
    """A refusal with a wait."""
    return Feedback(throttled=True, wait=wait)


@pytest.mark.parametrize(
    ("url", "status", "headers", "body", "expected"),
    [
        ("https://api.airtable.com/v0/x", 429, {}, None, refused(30)),
        (
            "https://dynamodb.us-east-1.amazonaws.com/",
            400,
            {},
            {"__type": "com.x#ThrottlingException"},
            REFUSED,
        ),
        (
            "https://dynamodb.us-east-1.amazonaws.com/",
            400,
            {},
            {"__type": "ValidationException"},
            FINE,
        ),
        ("https://api.cloudflare.com/client", 429, {}, None, refused(300)),
        ("https://graph.facebook.com/me", 400, {}, {"error": {"code": 17}}, REFUSED),
        ("https://graph.facebook.com/me", 400, {}, {"error": {"code": 100}}, FINE),
        ("https://api.github.com/x", 403, {"retry-after": "9"}, None, refused(9)),
        ("https://api.github.com/x", 403, {"x-ratelimit-remaining": "0"}, None, REFUSED),
        (
            "https://api.github.com/x",
            403,
            {"x-ratelimit-remaining": "5"},
            {"message": "Not yours"},
            FINE,
        ),
        ("https://api.github.com/graphql", 200, {}, {"errors": [{"type": "NOT_FOUND"}]}, FINE),
        ("https://api.github.com/x", 200, {}, {"errors": [{"type": "RATE_LIMITED"}]}, FINE),
        (
            "https://www.googleapis.com/x",
            403,
            {},
            {"error": {"errors": [{"reason": "forbidden"}]}},
            FINE,
        ),
        (
            "https://youtube.googleapis.com/x",
            429,
            {"retry-after": "5"},
            {"error": {"details": [{"retryDelay": "53.5s"}, {"retryDelay": "x"}]}},
            refused(53.5),
        ),
        ("https://api.hubapi.com/x", 429, {}, {"policyName": "TEN_SECONDLY_ROLLING"}, refused(10)),
        (
            "https://api.hubapi.com/x",
            429,
            {},
            {"policyName": "DAILY"},
            Feedback(True, terminal=True, wait=10),
        ),
        (
            "https://api.kraken.com/0/private/Balance",
            200,
            {},
            {"error": ["EAPI:Rate limit exceeded"]},
            refused(5),
        ),
        (
            "https://api.kraken.com/0/private/Balance",
            200,
            {},
            {"error": ["EGeneral:Temporary lockout"]},
            refused(900),
        ),
        ("https://api.kraken.com/0/private/Balance", 200, {}, {"error": [], "result": {}}, FINE),
        (
            "https://en.wikipedia.org/w/api.php",
            200,
            {"mediawiki-api-error": "ratelimited"},
            None,
            refused(5),
        ),
        (
            "https://en.wikipedia.org/w/api.php",
            200,
            {"mediawiki-api-error": "maxlag", "retry-after": "7"},
            None,
            refused(7),
        ),
        (
            "https://en.wikipedia.org/w/api.php",
            200,
            {"mediawiki-api-error": "badtoken"},
            None,
            FINE,
        ),
        (
            "https://x.my.salesforce.com/x",
            403,
            {},
            [{"errorCode": "REQUEST_LIMIT_EXCEEDED"}],
            Feedback(True, terminal=True),
        ),
        (
            "https://a.myshopify.com/admin/api/graphql.json",
            200,
            {},
            {"errors": [{"extensions": {"code": "THROTTLED"}}]},
            refused(2),
        ),
        (
            "https://api.stripe.com/v1/x",
            429,
            {"stripe-should-retry": "false"},
            None,
            Feedback(True, terminal=True),
        ),
        ("https://api.stripe.com/v1/x", 429, {"stripe-should-retry": "true"}, None, REFUSED),
        (
            "https://api.telegram.org/botX/y",
            429,
            {},
            {"parameters": {"retry_after": "soon"}},
            REFUSED,
        ),
        (
            "https://api.telegram.org/botX/y",
            429,
            {},
            {"parameters": {"retry_after": 10**9}},
            refused(32 * 86_400),
        ),
        ("https://example.com/x", 429, {}, {"parameters": {"retry_after": 17}}, REFUSED),
        (
            "https://example.com/x",
            429,
            {"content-type": "application/problem+json"},
            {"violated-policies": "x"},
            REFUSED,
        ),
        ("http://[", 429, {}, None, REFUSED),
    ],
)
def test_entries(
    url: str, status: int, headers: dict[str, str], body: Any, expected: Feedback
) -> None:
    """Each entry by an answer that it is for, and by one that it is not for."""
    text = None if body is None else json.dumps(body)
    assert read_feedback(status, headers.items(), text, url=url, now=NOW) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"{" * 9_000,
        b"[" * 9_000,
        b'{"parameters": {"retry_after": 17}}' + b" " * MOST_READ,
        b'{"parameters": {"retry_after": 17}',
        b"\xff\xfe\x00",
        b"9" * 5_000,
        b'{"parameters": {"retry_after": NaN}}',
        b'{"parameters": {"retry_after": -17}}',
        b'{"parameters": {"retry_after": true}}',
        b'{"parameters": {"retry_after": [[[{}]]]}}',
    ],
)
def test_bodies_that_say_nothing(body: bytes) -> None:
    """Too long, too deep, not JSON, or of other types: the body says nothing, the status does."""
    url = "https://api.telegram.org/botX/sendMessage"
    assert read_feedback(429, [], body, url=url, now=NOW) == REFUSED


def test_a_profile_of_ones_own() -> None:
    """A profile is what users make for an API of theirs, or the name of one of ours."""
    own = Profile(
        name="ours",
        signs=(Sign(statuses=frozenset({400}), at="code", is_=frozenset({"slow"}), wait=3),),
    )
    body = '{"code": "slow"}'
    assert read_feedback(400, [], body, profile=own, now=NOW) == refused(3)
    assert read_feedback(400, [], body, now=NOW) == FINE
    assert read_feedback(429, [], profile="airtable", now=NOW) == refused(30)
    assert read_feedback(429, [], url="https://api.airtable.com", profile=GENERIC) == REFUSED
    with pytest.raises(ValueError, match=r"profile='githup' is not a Profile or one of generic, "):
        read_feedback(429, [], profile="githup")
