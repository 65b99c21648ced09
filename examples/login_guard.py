"""A login guard: 5 attempts per 15 minutes and address; who gets in starts afresh.

    python examples/login_guard.py
    python examples/login_guard.py --redis redis://localhost:6379/0

No HTTP client is involved. The quota has no key of its own: each call brings the address. An
attempt is spent before the password is looked at, so that many at once are counted as well, and
`reset` forgets an address after a success. While Redis is away nobody gets in
(`on_outage="reject"` raises StoreUnavailable); whoever would rather let people in catches that.
"""

from __future__ import annotations

import argparse
from hmac import compare_digest

from quotaclient import Quota

PASSWORD = "correct horse"  # in this example everybody's


def guard(redis: str | None = None) -> Quota:
    """One for the whole application. An attempt has no way to travel, so it needs no `guard`."""
    return Quota(None, "5/15min", redis=redis, on_outage="reject", guard=0, prefix="example-login")


def log_in(attempts: Quota, address: str, password: str) -> str:
    """Say "welcome", "wrong" or "locked"."""
    if attempts.try_acquire(key=address) is None:
        return "locked"
    if not compare_digest(password.encode(), PASSWORD.encode()):
        return "wrong"
    attempts.reset(key=address)
    return "welcome"


def main() -> None:
    """A guess too many from one address, a slip of the finger from another."""
    parser = argparse.ArgumentParser(description="5 attempts per 15 minutes and address.")
    parser.add_argument("--redis", help="where replicas share the count; by default this process")
    with guard(parser.parse_args().redis) as attempts:
        for address, passwords in {
            "203.0.113.7": ["123456", "password", "qwerty", "letmein", "dragon", PASSWORD],
            "198.51.100.2": ["correct hrose", PASSWORD, "correct hrose"],
        }.items():
            for password in passwords:
                print(f"{address}: {log_in(attempts, address, password)}")
            print(f"{address}: {attempts.peek(key=address).remaining} attempts left")


if __name__ == "__main__":
    main()
