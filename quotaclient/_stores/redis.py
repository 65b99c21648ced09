"""Windows in Redis: one script call an ask, one deadline around every call, never sent twice.

Connections are our own even when a client is handed in: its retries (ten by default, scripts
included) and its pool's limits are made for other work than a question that must be answered
within a quarter of a second or not at all.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from functools import partial
from time import monotonic
from typing import Any, cast
from urllib.parse import urlsplit

import anyio.to_thread
import redis as redis_sync
import redis.asyncio as redis_async
from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.asyncio.connection import UnixDomainSocketConnection as AsyncUnixConnection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import (
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,  # pyright: ignore[reportUnknownVariableType] - redis leaves it without types
)
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from quotaclient._core.ask import Answer, Ask, localize
from quotaclient._core.limits import Limit
from quotaclient._stores.memory import clock, wall
from quotaclient._stores.scripts import (
    HOLD,
    RESET,
    Script,
    hold_key,
    parse_reply,
    reserve_args,
    reserve_keys,
    reserve_script,
    window_keys,
)

COMMAND_TIMEOUT = 0.25  # seconds: a request would rather go on without Redis than wait longer
CALLS_AT_ONCE = 16  # per client: one call serves a whole lane, so more are tenants, who can queue

RedisParameter = str | redis_sync.Redis | redis_async.Redis | None
"""What users pass as `redis=`: a URL, a client of either colour, or None for none."""

_KEPT = frozenset({"host", "port", "db", "username", "password", "credential_provider", "path"})


# What redis-py lets through when a server is away, or when what answers is no Redis: bytes that
# are no RESP end in a ValueError.
_FAULTS = (RedisError, OSError, ValueError)


class StoreDown(Exception):
    """Redis did not answer within the deadline, or not as a Redis with our scripts would."""


class Connections:
    """How to reach one Redis: read from a URL or from a client, in both colours."""

    def __init__(self, redis: object) -> None:
        kwargs, kind = _settings(redis)
        self.kwargs: dict[str, Any] = {
            name: value
            for name, value in kwargs.items()
            if name in _KEPT or name.startswith("ssl_")
        }
        self._tls = issubclass(kind, SSLConnection | AsyncSSLConnection)
        self._unix = issubclass(kind, UnixDomainSocketConnection | AsyncUnixConnection)

    @property
    def server(self) -> str:
        """Which Redis this is, for people and for telling two apart. No secrets."""
        kwargs = self.kwargs
        if self._unix:
            return f"unix://{kwargs.get('path', '')}?db={kwargs.get('db', 0)}"
        scheme = "rediss" if self._tls else "redis"
        host, port = kwargs.get("host", "localhost"), kwargs.get("port", 6379)
        return f"{scheme}://{host}:{port}/{kwargs.get('db', 0)}"

    def pool(self) -> redis_sync.ConnectionPool:
        kind: Any = (
            SSLConnection
            if self._tls
            else UnixDomainSocketConnection
            if self._unix
            else redis_sync.Connection
        )
        return redis_sync.ConnectionPool(
            kind,
            max_connections=CALLS_AT_ONCE,
            retry=Retry(NoBackoff(), 0),
            **self._common(COMMAND_TIMEOUT),
        )

    def async_pool(self) -> redis_async.ConnectionPool:
        kind: Any = (
            AsyncSSLConnection
            if self._tls
            else AsyncUnixConnection
            if self._unix
            else redis_async.Connection
        )
        return redis_async.ConnectionPool(
            kind,
            max_connections=CALLS_AT_ONCE,
            retry=AsyncRetry(NoBackoff(), 0),
            **self._common(None),  # our own deadline is around the whole call
        )

    def _common(self, timeout: float | None) -> dict[str, Any]:
        # RESP2 spares a new connection the HELLO round trip; nothing we read differs in RESP3.
        deadlines = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        return {**self.kwargs, **deadlines, "protocol": 2}


def _settings(redis: object) -> tuple[dict[str, Any], type]:
    if isinstance(redis, str):
        try:
            kwargs: dict[str, Any] = dict(parse_url(redis))  # type: ignore[no-untyped-call]
            return kwargs, kwargs.get("connection_class", redis_sync.Connection)
        except ValueError as error:
            raise _unusable(_without_password(redis)) from error
    pool: Any = getattr(redis, "connection_pool", None)
    kind = getattr(pool, "connection_class", None)
    if not isinstance(kind, type) or "Sentinel" in kind.__name__:
        raise _unusable(f"<{type(redis).__name__}>")
    return dict(pool.connection_kwargs), kind


def _unusable(shown: str) -> ValueError:
    return ValueError(
        f"redis={shown} cannot be used: pass a URL such as 'redis://localhost:6379/0', or a"
        " redis.Redis or redis.asyncio.Redis client of a single server"
    )


def _without_password(url: str) -> str:
    try:
        secret = urlsplit(url).password if "://" in url else None
    except ValueError:
        return "<a URL that cannot be read>"
    return repr(url.replace(f":{secret}@", ":***@") if secret else url)


_Told = tuple[Any, int, int]  # what a script returned, when it was asked, when it answered


class RecordFault(StoreDown):
    """Redis is well, but a record under this key is not ours, or not as our script left it."""


def _fault(error: Exception) -> StoreDown:
    """Errors of a running script speak of its records; all others of the server."""
    text = _described(error)
    of_record = isinstance(error, ResponseError) and (
        text.startswith("WRONGTYPE") or (text.startswith("ERR") and "user_script" in text)
    )
    return RecordFault(text) if of_record else StoreDown(text)


def _described(error: Exception) -> str:
    """One line for a log, also for errors that have nothing to say."""
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else repr(error))


def _answer(ask: Ask, answer: object, asked: int, received: int) -> Answer:
    try:
        return localize(ask, parse_reply(ask, answer), "store", asked, received)
    except (TypeError, ValueError) as error:
        raise StoreDown(f"not an answer of our script: {answer!r:.100}") from error


class RedisStore:
    """The shared windows, for threads."""

    def __init__(self, connections: Connections, prefix: str) -> None:
        self._prefix = prefix
        self._pool = connections.pool()
        self._places = threading.BoundedSemaphore(CALLS_AT_ONCE)
        self._failures = 0  # who queued behind a call that failed does not try for itself

    def reserve(self, ask: Ask) -> Answer:
        keys, args = reserve_keys(self._prefix, ask), reserve_args(ask, wall())
        return _answer(ask, *self._run(reserve_script(ask), keys, args))

    def hold(self, key: str, wait: int) -> None:
        self._run(HOLD, [hold_key(self._prefix, key)], ["", wait])

    def reset(self, key: str, limits: tuple[Limit, ...]) -> None:
        self._run(RESET, window_keys(self._prefix, key, limits), [])

    def close(self) -> None:
        self._pool.disconnect()

    def _run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> _Told:
        failures = self._failures
        with self._places:
            if self._failures != failures:
                raise StoreDown("it failed the call before this one")
            asked = clock()
            try:
                return self._evaluate(script, keys, args), asked, clock()
            except _FAULTS as error:
                self._failures += 1
                raise _fault(error) from error

    def _evaluate(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        deadline = monotonic() + COMMAND_TIMEOUT
        connection: Any = cast(Any, self._pool).get_connection()
        try:
            # What connecting took is gone from the deadline: the library would start it anew.
            connection._sock.settimeout(max(0.001, deadline - monotonic()))
            try:
                connection.send_command("EVALSHA", script.sha, len(keys), *keys, *args)
                answer = connection.read_response()
            except NoScriptError:  # the server says that it ran nothing: sending again is safe
                connection._sock.settimeout(max(0.001, deadline - monotonic()))
                connection.send_command("EVAL", script.text, len(keys), *keys, *args)
                answer = connection.read_response()
            connection._sock.settimeout(COMMAND_TIMEOUT)
            return answer
        except BaseException:  # also Ctrl-C: the next caller must not read this call's reply
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)


class AsyncRedisStore:
    """The shared windows, for one asyncio event loop."""

    def __init__(self, connections: Connections, prefix: str) -> None:
        self._prefix = prefix
        self._pool = connections.async_pool()
        self._places = asyncio.Semaphore(CALLS_AT_ONCE)
        self._failures = 0

    async def reserve(self, ask: Ask) -> Answer:
        keys, args = reserve_keys(self._prefix, ask), reserve_args(ask, wall())
        return _answer(ask, *(await self._run(reserve_script(ask), keys, args)))

    async def hold(self, key: str, wait: int) -> None:
        await self._run(HOLD, [hold_key(self._prefix, key)], ["", wait])

    async def reset(self, key: str, limits: tuple[Limit, ...]) -> None:
        await self._run(RESET, window_keys(self._prefix, key, limits), [])

    async def close(self) -> None:
        await self._pool.disconnect()

    async def _run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> _Told:
        failures = self._failures
        async with self._places:
            if self._failures != failures:
                raise StoreDown("it failed the call before this one")
            asked = clock()
            try:
                answer = await _in_time(self._evaluate(script, keys, args))
                return answer, asked, clock()
            except _FAULTS as error:
                self._failures += 1
                raise _fault(error) from error

    async def _evaluate(
        self, script: Script, keys: Sequence[str], args: Sequence[str | int]
    ) -> Any:
        connection: Any = await cast(Any, self._pool).get_connection()
        try:
            try:
                await connection.send_command("EVALSHA", script.sha, len(keys), *keys, *args)
                return await connection.read_response()
            except NoScriptError:  # the server says that it ran nothing: sending again is safe
                await connection.send_command("EVAL", script.text, len(keys), *keys, *args)
                return await connection.read_response()
        except BaseException:  # also when cancelled: the next caller must not read this reply
            await connection.disconnect(nowait=True)
            raise
        finally:
            await self._pool.release(connection)


async def _in_time(call: Coroutine[Any, Any, Any]) -> Any:
    """What a call returns, if it does within the command deadline.

    By as much as the loop was late to notice the deadline, the call may be late too: a host that
    was kept busy may not even have sent it, and its Redis is well.
    """
    task, loop = asyncio.ensure_future(call), asyncio.get_running_loop()
    try:
        due = loop.time() + COMMAND_TIMEOUT
        await asyncio.wait((task,), timeout=COMMAND_TIMEOUT)
        if not task.done():
            await asyncio.wait((task,), timeout=min(loop.time() - due, COMMAND_TIMEOUT))
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))  # it closes its connection


class ThreadedRedisStore:
    """The shared windows for trio, on which redis.asyncio does not run: calls go to threads."""

    def __init__(self, connections: Connections, prefix: str) -> None:
        self._store = RedisStore(connections, prefix)

    async def reserve(self, ask: Ask) -> Answer:
        return await anyio.to_thread.run_sync(self._store.reserve, ask)

    async def hold(self, key: str, wait: int) -> None:
        await anyio.to_thread.run_sync(self._store.hold, key, wait)

    async def reset(self, key: str, limits: tuple[Limit, ...]) -> None:
        await anyio.to_thread.run_sync(partial(self._store.reset, key, limits))

    def close(self) -> None:
        self._store.close()
