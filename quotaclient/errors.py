"""Errors.

    httpx.TransportError
      QuotaError             anything this package raises while a request waits for its quota
        QuotaExceeded        no permit within max_wait
        StoreUnavailable     Redis is away, and this replica may not send alone
    ValueError
      InvalidLimit           a limit that cannot be

Bad costs, options and parameters raise ValueError.
"""

from __future__ import annotations

import httpx

from quotaclient._core.limits import InvalidLimit
from quotaclient._decision import Exceeded

__all__ = ["InvalidLimit", "QuotaError", "QuotaExceeded", "StoreUnavailable"]


class QuotaError(httpx.TransportError):
    """A request was not sent because of its quota. `.request` is it, when a client sent it."""


class QuotaExceeded(Exceeded, QuotaError):
    """No permit within `max_wait`; nothing was sent and nothing is booked.

    `retry_after`: seconds after which it can succeed, by what is known now. `limit`: the one
    that is used up, None when the upstream asked everybody to hold. `source`: who said so,
    "store" (Redis), "local" (the windows of this process) or "share" (this replica's, in an
    outage).
    """


class StoreUnavailable(QuotaError):
    """Redis is away: `on_outage="reject"`, or the share of one replica cannot be told."""
