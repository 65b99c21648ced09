"""What is peculiar to each API: a table, one readable entry a vendor.

Fields that say what is left, Retry-After and the statuses 429, 420, 418 and 529 are read from every
host; an entry says what else is evidence, of refusals with other statuses and of those that no
waiting mends, where a body states the wait, and how long to wait where nothing does. The sources
are the vendors' own pages on their limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

NESTED = 12  # how deep a path may look


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What in an answer says that the quota is used up.

    `statuses`: of which answers. `path`: only of requests whose path ends with this.
    `at`: where in a JSON body, as names with dots between; lists are looked through. `is_`: texts
    of which one must stand there; `has`: of which one must be in what stands there, in small
    letters. `header`: a field that must have one of `is_`, in place of a body. `empty`: in place of
    both, that header fields say that nothing is left, or how long to wait.

    `terminal`: waiting will not help, or for too long. `wait`: seconds, unless the answer says.
    """

    statuses: frozenset[int]
    at: str = ""
    is_: frozenset[str] = frozenset()
    has: tuple[str, ...] = ()
    header: str = ""
    path: str = ""
    empty: bool = False
    terminal: bool = False
    wait: float | None = None

    @property
    def in_body(self) -> bool:
        return bool(self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one API speaks of its quota.

    `hosts`: names of hosts, and of all below them. `signs`: see there; the first that fits counts.
    `waits`: where a JSON body states a wait in seconds, or as a span ("53s"). `wait`: seconds to
    wait after a refusal that states none; None: as long as the back-off says. `by_resource`: it has
    a quota for each method, resource or model: what is left of one says nothing of the others.
    """

    name: str
    hosts: tuple[str, ...] = ()
    signs: tuple[Sign, ...] = field(default=())
    waits: tuple[str, ...] = ()
    wait: float | None = None
    by_resource: bool = False

    def needs_body(self, status: int, path: str) -> bool:
        """Whether the body of an answer may say something."""
        if status >= 400 and self.waits:
            return True
        return any(
            sign.in_body and status in sign.statuses and path.endswith(sign.path)
            for sign in self.signs
        )


def values_at(body: Any, path: str) -> Iterator[str]:
    """The texts, numbers and truths that stand at a path of names."""
    names = path.split(".") if path else []
    return _values(body, names, NESTED)


def _values(body: Any, names: list[str], depth: int) -> Iterator[str]:
    if isinstance(body, list) and depth:
        for member in cast("list[object]", body):
            yield from _values(member, names, depth - 1)
    elif isinstance(body, dict) and names:
        yield from _values(cast("dict[str, Any]", body).get(names[0]), names[1:], depth)
    elif isinstance(body, str | int | float) and not names:
        yield str(body)


_REFUSED = frozenset({429})
_FORBIDDEN = frozenset({403, 429})
_FINE = frozenset({200})

GENERIC = Profile(name="generic")

PROFILES = (
    Profile(name="airtable", hosts=("api.airtable.com",), wait=30),
    Profile(name="anthropic", hosts=("api.anthropic.com",), by_resource=True),
    Profile(
        name="atlassian",
        hosts=("atlassian.net", "api.atlassian.com", "api.bitbucket.org"),
    ),
    Profile(
        name="aws",
        hosts=("amazonaws.com",),
        signs=(Sign(statuses=frozenset({400, 429}), at="__type", has=("throttl", "toomanyreq")),),
    ),
    Profile(
        name="azure-openai",
        hosts=("openai.azure.com", "cognitiveservices.azure.com"),
        by_resource=True,
    ),
    Profile(
        name="binance",
        hosts=("api.binance.com", "fapi.binance.com", "dapi.binance.com", "api.binance.us"),
        wait=60,
    ),
    Profile(name="cloudflare", hosts=("api.cloudflare.com",), wait=300),
    Profile(name="crossref", hosts=("api.crossref.org",)),
    Profile(
        name="discord",
        hosts=("discord.com", "discordapp.com"),
        by_resource=True,
        waits=("retry_after",),
    ),
    Profile(
        name="docker-hub",
        hosts=("docker.io", "hub.docker.com", "registry-1.docker.io"),
    ),
    Profile(name="eve-esi", hosts=("esi.evetech.net",)),
    Profile(
        name="facebook",
        hosts=("graph.facebook.com", "graph.instagram.com"),
        signs=(
            Sign(
                statuses=frozenset({400, 403, 429}),
                at="error.code",
                is_=frozenset({"4", "17", "32", "341", "613"}),
            ),
        ),
    ),
    Profile(
        name="github",
        hosts=("api.github.com",),
        by_resource=True,
        signs=(
            Sign(statuses=_FORBIDDEN, at="message", has=("secondary rate limit",), wait=60),
            Sign(statuses=_FORBIDDEN, at="message", has=("rate limit",)),
            Sign(statuses=_FORBIDDEN, empty=True),
            Sign(
                statuses=_FINE,
                at="errors.type",
                is_=frozenset({"RATE_LIMITED", "RATE_LIMIT"}),
                path="/graphql",
            ),
        ),
    ),
    Profile(name="gitlab", hosts=("gitlab.com",)),
    Profile(
        name="google",
        hosts=("googleapis.com",),
        signs=(
            Sign(
                statuses=_FORBIDDEN,
                at="error.errors.reason",
                is_=frozenset({"dailyLimitExceeded", "dailyLimitExceededUnreg"}),
                terminal=True,
            ),
            Sign(
                statuses=_FORBIDDEN,
                at="error.errors.reason",
                is_=frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"}),
            ),
            Sign(
                statuses=_FORBIDDEN,
                at="error.details.reason",
                is_=frozenset({"RATE_LIMIT_EXCEEDED"}),
            ),
        ),
        waits=("error.details.retryDelay",),
    ),
    Profile(
        name="hubspot",
        hosts=("api.hubapi.com",),
        signs=(Sign(statuses=_REFUSED, at="policyName", is_=frozenset({"DAILY"}), terminal=True),),
        wait=10,
    ),
    Profile(name="hugging-face", hosts=("huggingface.co",)),
    Profile(
        name="kraken",
        hosts=("api.kraken.com",),
        signs=(
            Sign(statuses=_FINE, at="error", has=("temporary lockout",), wait=900),
            Sign(statuses=_FINE, at="error", has=("rate limit exceeded", "too many requests")),
        ),
        wait=5,
    ),
    Profile(
        name="mediawiki",
        hosts=("wikipedia.org", "wikimedia.org", "wikidata.org", "wiktionary.org"),
        signs=(
            Sign(
                statuses=_FINE,
                header="mediawiki-api-error",
                is_=frozenset({"ratelimited", "maxlag"}),
            ),
        ),
        wait=5,
    ),
    Profile(name="notion", hosts=("api.notion.com",)),
    Profile(name="okta", hosts=("okta.com", "oktapreview.com"), by_resource=True),
    Profile(
        name="openai",
        hosts=("api.openai.com",),
        by_resource=True,
        signs=tuple(
            Sign(
                statuses=_REFUSED,
                at=at,
                is_=frozenset({"insufficient_quota", "billing_hard_limit_reached"}),
                terminal=True,
            )
            for at in ("error.code", "error.type")
        ),
    ),
    Profile(name="reddit", hosts=("oauth.reddit.com", "www.reddit.com")),
    Profile(
        name="salesforce",
        hosts=("salesforce.com", "force.com"),
        signs=(
            Sign(
                statuses=_FORBIDDEN,
                at="errorCode",
                is_=frozenset({"REQUEST_LIMIT_EXCEEDED"}),
                terminal=True,
            ),
        ),
    ),
    Profile(
        name="shopify",
        hosts=("myshopify.com",),
        signs=(
            Sign(
                statuses=_FINE,
                at="errors.extensions.code",
                is_=frozenset({"THROTTLED"}),
                path="/graphql.json",
            ),
        ),
        wait=2,
    ),
    Profile(name="slack", hosts=("slack.com",)),
    Profile(name="spotify", hosts=("api.spotify.com",)),
    Profile(
        name="stripe",
        hosts=("api.stripe.com",),
        signs=(
            Sign(
                statuses=_REFUSED,
                header="stripe-should-retry",
                is_=frozenset({"false"}),
                terminal=True,
            ),
        ),
    ),
    Profile(
        name="telegram",
        hosts=("api.telegram.org",),
        waits=("parameters.retry_after",),
    ),
    Profile(name="x", hosts=("api.x.com", "api.twitter.com"), by_resource=True),
    Profile(name="zendesk", hosts=("zendesk.com",)),
)

_BY_HOST = {host: profile for profile in PROFILES for host in profile.hosts}


@lru_cache(maxsize=1024)  # it is asked for with every answer
def profile_of(host: str) -> Profile:
    """The profile of a host: its own, or that of the name that it is below."""
    while host:
        profile = _BY_HOST.get(host)
        if profile is not None:
            return profile
        host = host.partition(".")[2]
    return GENERIC
