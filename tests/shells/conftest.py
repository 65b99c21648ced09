"""The colours, and the stores, that every test of the shells runs through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quotaclient.testing import RedisServer
from tests.shells.colours import Colour, made


@pytest.fixture(params=["sync", "asyncio"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """Each colour."""
    with made(request.param) as colour:
        yield colour


@pytest.fixture(params=["sync", "asyncio", "trio"])
def any_colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """Each colour, the async one on both its loops."""
    with made(request.param) as colour:
        yield colour


@pytest.fixture
def other(colour: Colour) -> Iterator[Colour]:
    """The other colour than `colour`."""
    with made("asyncio" if colour.name == "sync" else "sync") as other:
        yield other


@pytest.fixture
def either(colour: Colour, shared_redis: RedisServer) -> str | None:
    """One store a colour: for tests that take their time, and tell the same on both."""
    return shared_redis.url if colour.name == "sync" else None


@pytest.fixture(params=["memory", "redis"])
def redis(request: pytest.FixtureRequest) -> str | None:
    """Each store, as one passes it to `redis=`."""
    if request.param == "memory":
        return None
    server: RedisServer = request.getfixturevalue("shared_redis")
    return server.url
