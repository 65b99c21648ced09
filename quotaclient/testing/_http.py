"""As much HTTP/1.1 as a test server needs: heads, bodies of a length or in chunks, answers.

Own code rather than a library's, because a request has to be stamped the moment its head is read
and because a server that shares two cores with the fleet it judges must be cheap.
"""

import asyncio
import time
from dataclasses import dataclass
from http import HTTPStatus

Headers = tuple[tuple[str, str], ...]

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came in.

    `path` is the target as sent, query included; header names are in lower case, in the order sent;
    `at` is `time.monotonic()` when the head was complete, before any of the body was awaited.
    """

    method: str
    path: str
    headers: Headers
    body: bytes
    at: float

    def header(self, name: str, default: str = "") -> str:
        """The first value of the header `name` (lower case), else `default`."""
        return next((value for key, value in self.headers if key == name), default)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back, `delay` seconds after the request: a status from 200 up, headers, a body.

    `content-length` is added where `headers` bring none.
    """

    status: int = 200
    headers: Headers = ()
    body: bytes = b""
    delay: float = 0.0


async def read_head(reader: asyncio.StreamReader) -> Received | None:
    """The next request without its body; None when the peer has left or does not speak HTTP/1."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (EOFError, OSError, asyncio.LimitOverrunError):
        return None
    at = time.monotonic()
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    path, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        return None
    pairs = (line.partition(":") for line in lines)
    headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
    return Received(method, path, headers, b"", at)


async def read_body(reader: asyncio.StreamReader, head: Received) -> bytes:
    """The body that follows `head`. EOFError when the peer leaves early or frames it wrongly."""
    try:
        if "chunked" in head.header("transfer-encoding").lower():
            return await _read_chunks(reader)
        # Most requests have no body, and the await is not free at thousands a second.
        length = int(head.header("content-length", "0"))
        return await reader.readexactly(length) if length else b""
    except ValueError as exc:
        raise EOFError(f"the body of {head.method} {head.path} is framed wrongly: {exc}") from exc


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while (await reader.readline()).strip():
        pass  # trailers: nobody here asks for them
    return b"".join(chunks)


def render(answer: Answer, method: str = "GET") -> bytes:
    """`answer` as bytes on the wire, in reply to a request of this method."""
    names = {name.lower() for name, _ in answer.headers}
    lines = [f"HTTP/1.1 {answer.status} {_PHRASES.get(answer.status, '')}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    bodiless = answer.status in (204, 304)
    if not bodiless and names.isdisjoint(("content-length", "transfer-encoding")):
        lines.append(f"content-length: {len(answer.body)}")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head if bodiless or method == "HEAD" else head + answer.body


def closes(message: Received | Answer) -> bool:
    """Whether this request or answer is the last one on its connection."""
    return any(
        name.lower() == "connection" and value.lower() == "close" for name, value in message.headers
    )
