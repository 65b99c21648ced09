"""A paid API with tenants: a quota for each, spent in requests and in tokens.

    python examples/tenants.py
    python examples/tenants.py https://llm.example.com --redis redis://localhost:6379/0

`key=` is a function from the request to the tenant it is billed to, so each tenant has windows of
its own. A request brings its `cost`: one request and so many tokens. Tenant 7 spends its tokens
and is told when it may go on, instead of waiting; tenant 8 does not notice. A call may name
another `key`: here the operator's own, for a request that no tenant is to pay for. Without a URL
the requests go to a server on this machine.
"""

from __future__ import annotations

import argparse

import httpx

from quotaclient import QuotaClient, QuotaExceeded
from quotaclient.testing import StrictUpstream

LIMIT = "500/min; 9000 tokens/min"


def tenant_of(request: httpx.Request) -> str:
    """Whose quota a request draws on."""
    return f"tenant-{request.headers['x-tenant']}"


def complete(client: QuotaClient, tenant: str, tokens: int) -> str:
    """Ask for a completion of so many tokens, now or not at all; what became of it."""
    try:
        response = client.post(
            "/v1/complete",
            headers={"x-tenant": tenant},
            json={"max_tokens": tokens},
            extensions={"quota": {"cost": {"requests": 1, "tokens": tokens}, "max_wait": 0}},
        )
    except QuotaExceeded as error:
        return f"tenant {tenant}: {error.limit} is used up, again in {error.retry_after:.0f} s"
    return f"tenant {tenant}: {response.status_code} for {tokens} tokens"


def run(url: str, redis: str | None) -> None:
    """Two tenants and the operator."""
    with QuotaClient(url, limit=LIMIT, key=tenant_of, redis=redis) as client:
        print(complete(client, "7", 5000))
        print(complete(client, "7", 5000))
        print(complete(client, "8", 5000))
        response = client.get("/v1/models", extensions={"quota": {"key": "operator", "cost": 0}})
        print(f"operator: {response.status_code}")
        for key in ("tenant-7", "tenant-8", "operator"):
            used = client.quota.peek(key=key).used
            print(f"{key}:", ", ".join(f"{units} of {limit}" for limit, units in used.items()))


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="A quota for each tenant of a paid API.")
    parser.add_argument("url", nargs="?", help="by default that of a server on this machine")
    parser.add_argument("--redis", help="where replicas share the quotas; by default this process")
    options = parser.parse_args()
    if options.url is not None:
        run(options.url, options.redis)
    else:
        with StrictUpstream(500, 60.0) as upstream:
            run(upstream.url, options.redis)


if __name__ == "__main__":
    main()
