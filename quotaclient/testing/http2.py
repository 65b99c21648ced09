"""What `ScriptedUpstream` is, over HTTP/2; needs the `h2` package, which httpx[http2] brings."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError

from ._http import Answer, Headers, Received
from ._loopback import BackgroundUpstream

# RFC 9113, 8.2.2: not allowed here; left out, so that one function of answers serves both versions.
_HTTP1_ONLY = ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")


class Http2Upstream(BackgroundUpstream):
    """An HTTP/2 server in a background thread whose behaviour is a plain function.

    Cleartext with prior knowledge (RFC 9113, 3.3), as `httpx.Client(http1=False, http2=True)`
    speaks it. Streams are answered as they come, each after its own `Answer.delay`.
    `Received.headers` has `:authority` as `host`.

    with Http2Upstream(lambda received: Answer(body=received.path.encode())) as upstream:
        httpx.Client(http1=False, http2=True).get(upstream.url)
    """

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that breaks the protocol has been told so by then, and loses its connection.
        with suppress(ProtocolError):
            await _Connection(self._answer, reader, writer).run()


class _Connection:
    """One client: reads events, and answers each stream in a task of its own."""

    def __init__(
        self,
        answer: Callable[[Received], Answer],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._answer = answer
        self._reader = reader
        self._writer = writer
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))
        self._heads: dict[int, Received] = {}
        self._bodies: dict[int, bytearray] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._moved = asyncio.Event()  # set when a flow-control window may have grown

    async def run(self) -> None:
        self._h2.initiate_connection()
        try:
            await self._flush()
            while data := await self._reader.read(65536):
                at = time.monotonic()
                try:
                    for event in self._h2.receive_data(data):
                        self._handle(event, at)
                finally:
                    await self._flush()
                self._moved.set()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _handle(self, event: Event, at: float) -> None:
        match event:
            case RequestReceived():
                self._heads[event.stream_id] = _head(event, at)
                self._bodies[event.stream_id] = bytearray()
            case DataReceived():
                self._bodies[event.stream_id] += event.data
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case StreamEnded():
                self._start(event.stream_id)
            case StreamReset():
                self._heads.pop(event.stream_id, None)
                self._bodies.pop(event.stream_id, None)
                if task := self._tasks.get(event.stream_id):
                    task.cancel()
            case _:
                pass  # settings, pings, window updates: h2 has dealt with them

    def _start(self, stream: int) -> None:
        head, body = self._heads.pop(stream), bytes(self._bodies.pop(stream))
        answer = self._answer(Received(head.method, head.path, head.headers, body, head.at))
        task = asyncio.get_running_loop().create_task(self._reply(stream, head.method, answer))
        self._tasks[stream] = task
        task.add_done_callback(lambda _: self._tasks.pop(stream))

    async def _reply(self, stream: int, method: str, answer: Answer) -> None:
        # The client may reset the stream or leave at any of these steps; that is its right.
        with suppress(OSError, ProtocolError):
            await asyncio.sleep(answer.delay)
            body = b"" if method == "HEAD" or answer.status in (204, 304) else answer.body
            headers = [(":status", str(answer.status))]
            pairs = ((name.lower(), value) for name, value in answer.headers)
            headers += [pair for pair in pairs if pair[0] not in _HTTP1_ONLY]
            if body and all(name != "content-length" for name, _ in headers):
                headers.append(("content-length", str(len(body))))
            self._h2.send_headers(stream, headers, end_stream=not body)
            while body:
                room = self._h2.local_flow_control_window(stream)
                room = min(room, self._h2.max_outbound_frame_size)
                if room <= 0:
                    self._moved.clear()
                    await self._flush()
                    await self._moved.wait()
                    continue
                self._h2.send_data(stream, body[:room], end_stream=room >= len(body))
                body = body[room:]
            await self._flush()

    async def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())
        await self._writer.drain()


def _head(event: RequestReceived, at: float) -> Received:
    pairs: Headers = tuple((_text(name), _text(value)) for name, value in event.headers)
    pseudo = {name: value for name, value in pairs if name.startswith(":")}
    headers = tuple(pair for pair in pairs if not pair[0].startswith(":"))
    if ":authority" in pseudo:
        headers = (("host", pseudo[":authority"]), *headers)
    return Received(pseudo[":method"], pseudo.get(":path", ""), headers, b"", at)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")
