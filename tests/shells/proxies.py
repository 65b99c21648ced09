"""A real HTTP proxy in threads, as small as one can be."""

from __future__ import annotations

import http.client
import socketserver
import ssl
import threading
import time
from typing import Any, Self
from urllib.parse import urlsplit


class Proxy:
    """Forwards absolute requests to where they say; ends CONNECT's TLS itself and answers 200.

    `lines` are the first lines of all requests, `CONNECT` included. `silent`: never answers
    CONNECT. `delay`: seconds before CONNECT is answered.
    """

    def __init__(
        self, tls: ssl.SSLContext | None = None, *, silent: bool = False, delay: float = 0
    ) -> None:
        self.lines: list[str] = []
        self._tls = tls
        self._silent = silent
        self._delay = delay
        self._closing = threading.Event()
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                proxy._serve(self)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, handler: Any) -> None:
        handler.connection.settimeout(5)
        try:
            while line := self._head(handler.rfile):
                method, target, _ = line.split()
                if method != "CONNECT":
                    handler.wfile.write(self._forward(method, target))
                    continue
                if self._silent:
                    self._closing.wait(5)
                    return
                time.sleep(self._delay)
                handler.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                assert self._tls is not None
                with self._tls.wrap_socket(handler.connection, server_side=True) as tunnel:
                    while self._head(tunnel.makefile("rb", buffering=0)):
                        tunnel.sendall(_answer(200, b"tunnelled"))
                return
        except (OSError, ValueError):
            return  # the client has left

    def _head(self, stream: Any) -> str:
        """The first line of the next request, whose head is read; "" at the end."""
        first = stream.readline().decode("latin-1").strip()
        if first:
            self.lines.append(first)
            while stream.readline().strip():
                pass
        return str(first)

    @staticmethod
    def _forward(method: str, target: str) -> bytes:
        url = urlsplit(target)
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=5)
        try:
            connection.request(method, url.path or "/")
            response = connection.getresponse()
            return _answer(response.status, response.read())
        finally:
            connection.close()


def _answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)
