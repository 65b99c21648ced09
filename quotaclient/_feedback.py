"""`read_feedback` for users: any shape of answer in, a `Feedback` out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from quotaclient._core import feedback
from quotaclient._core.feedback import Feedback
from quotaclient._core.options import checked_profile
from quotaclient._core.profiles import Profile, profile_of


@runtime_checkable
class _Headers(Protocol):
    def multi_items(self) -> list[tuple[str, str]]: ...


def read_feedback(
    status: int,
    headers: Iterable[tuple[str, str]] | _Headers,
    body: bytes | str | None = None,
    *,
    url: object = "",
    method: str = "GET",  # noqa: ARG001 - no API known says anything else to another method
    now: datetime | None = None,
    profile: str | Profile | None = None,
) -> Feedback:
    """What an answer says about the quota: refused or not, and how long nobody should send.

    Parameters
    ----------
    headers
        Pairs of name and value, one per line as received, or httpx.Headers.
    body
        What there is of it. Where the profile says that it may tell more it is looked at, as JSON
        of up to 16 KiB.
    url
        That of the request, a text or an httpx.URL: its host chooses the profile.
    now
        When the answer arrived; by default, now. Without a zone it is UTC.
    profile
        A `Profile`, or the name of one of ours, in place of the host's. ValueError for a name that
        is none.

    Whatever the upstream sent, nothing is raised.
    """
    host, path = _host_and_path(str(url))
    lines = headers.multi_items() if isinstance(headers, _Headers) else headers
    return feedback.read_feedback(
        status,
        lines,
        body,
        now=now or datetime.now(UTC),
        path=path,
        profile=checked_profile(profile) or profile_of(host),
    )


def _host_and_path(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.path
    except ValueError:  # "http://[": it names no host that we know
        return "", ""
