"""The beginning of a body, read before whoever asked for it: they still get every byte."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from quotaclient._core.feedback import MOST_READ


class Peeked:
    """The body of a sync answer. What went wrong as it was read goes wrong for its reader."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._rest: Iterator[bytes] = iter(stream)
        self._read: list[bytes] = []
        self._error: Exception | None = None

    def whole(self) -> bytes | None:
        """All of it, if it is short."""
        size = 0
        try:
            for chunk in self._rest:
                self._read.append(chunk)
                size += len(chunk)
                if size > MOST_READ:
                    return None
        except Exception as error:
            self._error = error
            return None
        return b"".join(self._read)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._read
        if self._error is not None:
            raise self._error
        yield from self._rest

    def close(self) -> None:
        self._stream.close()


class AsyncPeeked:
    """The body of an async answer."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._rest: AsyncIterator[bytes] = aiter(stream)
        self._read: list[bytes] = []
        self._error: Exception | None = None

    async def whole(self) -> bytes | None:
        """All of it, if it is short."""
        size = 0
        try:
            async for chunk in self._rest:
                self._read.append(chunk)
                size += len(chunk)
                if size > MOST_READ:
                    return None
        except Exception as error:
            self._error = error
            return None
        return b"".join(self._read)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._read:
            yield chunk
        if self._error is not None:
            raise self._error
        async for chunk in self._rest:
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def is_short_json(headers: Any) -> bool:
    """Whether a body may be looked at: one that streams events, or is long, is not."""
    length = headers.get("content-length", "")
    short = not length.isdecimal() or (len(length) < 9 and int(length) <= MOST_READ)
    return short and "json" in headers.get("content-type", "").lower()


def decoded(body: bytes | None, encoding: str) -> bytes | None:
    """What a body says, up to a little more than is looked at; None if that cannot be told."""
    if body is None or encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, MOST_READ + 1)
    except zlib.error:  # "deflate" without its header, or no such thing
        return None
