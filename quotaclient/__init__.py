"""The httpx client for a fleet of processes that share one API quota.

Names are resolved when they are first used, so that what needs no httpx does not import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quotaclient._client import (
        AsyncQuota,
        AsyncQuotaClient,
        AsyncQuotaTransport,
        Quota,
        QuotaClient,
        QuotaTransport,
    )
    from quotaclient._core.feedback import Feedback
    from quotaclient._core.limits import InvalidLimit, Limit, day, hour, minute, second
    from quotaclient._core.profiles import Profile, Sign
    from quotaclient._decision import Decision, Usage
    from quotaclient._feedback import read_feedback
    from quotaclient.errors import QuotaError, QuotaExceeded, StoreUnavailable

__all__ = [
    "AsyncQuota",
    "AsyncQuotaClient",
    "AsyncQuotaTransport",
    "Decision",
    "Feedback",
    "InvalidLimit",
    "Limit",
    "Profile",
    "Quota",
    "QuotaClient",
    "QuotaError",
    "QuotaExceeded",
    "QuotaTransport",
    "Sign",
    "StoreUnavailable",
    "Usage",
    "day",
    "hour",
    "minute",
    "read_feedback",
    "second",
]

_HOMES = {
    "quotaclient._client": (
        "AsyncQuota",
        "AsyncQuotaClient",
        "AsyncQuotaTransport",
        "Quota",
        "QuotaClient",
        "QuotaTransport",
    ),
    "quotaclient._core.feedback": ("Feedback",),
    "quotaclient._core.limits": ("InvalidLimit", "Limit", "day", "hour", "minute", "second"),
    "quotaclient._core.profiles": ("Profile", "Sign"),
    "quotaclient._decision": ("Decision", "Usage"),
    "quotaclient._feedback": ("read_feedback",),
    "quotaclient.errors": ("QuotaError", "QuotaExceeded", "StoreUnavailable"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return __all__
