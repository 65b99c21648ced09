"""Real parts for tests and demonstrations of a shared quota: servers that run, break, count.

- `RedisServer`: a real redis-server that can be stopped, killed, frozen and started again.
- `StrictUpstream`: an HTTP server in a process of its own that admits exactly `count` requests
  in any `period`.
- `ScriptedUpstream`: an HTTP/1.1 server in a thread whose answers are a plain function.
- `Http2Upstream`: the same over HTTP/2 without TLS (needs the `h2` package).

Everything listens on 127.0.0.1 only. Names are resolved when first used, so that each part costs
only its own imports; Linux and macOS.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._http import Answer, Received
    from .http2 import Http2Upstream
    from .redis_server import RedisServer, find_redis_server
    from .upstream import Arrival, Report, ScriptedUpstream, StrictUpstream

__all__ = [
    "Answer",
    "Arrival",
    "Http2Upstream",
    "Received",
    "RedisServer",
    "Report",
    "ScriptedUpstream",
    "StrictUpstream",
    "find_redis_server",
]

_HOME = {
    "Answer": "._http",
    "Arrival": ".upstream",
    "Http2Upstream": ".http2",
    "Received": "._http",
    "RedisServer": ".redis_server",
    "Report": ".upstream",
    "ScriptedUpstream": ".upstream",
    "StrictUpstream": ".upstream",
    "find_redis_server": ".redis_server",
}


def __getattr__(name: str) -> object:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return __all__
