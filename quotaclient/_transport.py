"""Requests through a quota: a permit before each send, the upstream's word after it.

No HTTP library is imported here: `_client.py` puts these over the classes of httpx.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Any, ClassVar, Generic, Self, TypeVar

import anyio
import tenacity

from quotaclient._bodies import decoded, is_short_json
from quotaclient._core.ask import SECOND
from quotaclient._core.attempt import IDEMPOTENT, Chances, Deliver, Resend, after, after_success
from quotaclient._core.feedback import needs_body, read_feedback, says_something
from quotaclient._core.options import UNSET, RequestOptions, checked_key
from quotaclient._core.profiles import Profile, profile_of
from quotaclient._departure import AsyncDeparture, Course, Departure, StartOver
from quotaclient._quota import BaseAsyncQuota, BaseQuota
from quotaclient._retry import Attempts, checked_retry
from quotaclient._stores.memory import clock

MOST_DRAINED = 16_384  # bytes of a throttled answer that are read to keep its connection
DRAIN_TIME = 1.0  # seconds
USUAL_PORTS = {"http": 80, "https": 443}
DELIVERED = Deliver(None)

Request = TypeVar("Request")
Response = TypeVar("Response")
AnyQuota = TypeVar("AnyQuota", BaseQuota, BaseAsyncQuota)


class _Transport(Generic[Request, Response, AnyQuota]):
    """What both colours have in common: which quota a request draws on, and what an answer means.

    `origin`: requests elsewhere draw on nothing; with None all requests do, by default each on
    the quota of its own origin.
    """

    _byte_stream: ClassVar[type]  # the library's class of bodies that are bytes
    _peeked: ClassVar[type[Any]]  # makes bodies that have been looked into
    _tracing: ClassVar[type]  # its transport, which reports every departure to `trace`

    def _set_up(
        self,
        inner: Any,
        quota: AnyQuota,
        retry: tenacity.BaseRetrying,
        key: str | Callable[[Any], str] | None,
        origin: Callable[[], str | None],
    ) -> None:
        self._inner = inner
        # The library's own transport makes a new request of httpcore for everything it sends.
        self._sends_once = isinstance(inner, self._tracing)
        self._traces = self._sends_once  # others: once they have been seen to
        self._quota: AnyQuota = quota
        settings = quota._settings
        self._options = RequestOptions.read({}, settings.limits, settings.max_wait)
        self._retry = retry
        self._fixed_key = key if isinstance(key, str) else None
        self._key_of = None if key is None or isinstance(key, str) else key
        self._origin = origin

    def _course_of(self, request: Any) -> Course | None:
        """How a request is to go; None when this quota is none of its business."""
        origin, ours = origin_of(request.url), self._origin()
        if ours is not None and origin != ours:
            return None
        settings = self._quota._settings
        limits, options = settings.limits, self._options
        if settings.routes:
            limits = settings.limits_for(request.method, request.url.raw_path)
        if "quota" in request.extensions or len(limits) != len(settings.limits):
            given = request.extensions.get("quota", {})
            options = RequestOptions.read(given, limits, settings.max_wait)
        key = options.key
        if key is None and self._key_of is not None:
            key = checked_key(self._key_of(request))
        retry = self._retry if options.retry is UNSET else checked_retry(options.retry)
        return Course(key or self._fixed_key or origin, limits, options, retry, clock())

    def _profile_of(self, request: Any, response: Any) -> Profile | None:
        """By what to read an answer; None when it says nothing of a quota."""
        profile = self._quota._settings.profile or profile_of(request.url.host)
        names = b"\n".join([name for name, _ in response.headers.raw]).decode("latin-1")
        return profile if says_something(response.status_code, names, profile) else None

    def _needs_body(self, request: Any, response: Any, profile: Profile) -> bool:
        content_type = response.headers.get("content-type", "")
        path = request.url.path
        return is_short_json(response.headers) and needs_body(
            response.status_code, content_type, path, profile
        )

    def _verdict(
        self, request: Any, response: Any, course: Course, profile: Profile, body: bytes | None
    ) -> Deliver | Resend:
        """What the answer leads to."""
        feedback = read_feedback(
            response.status_code,
            response.headers.multi_items(),
            decoded(body, response.headers.get("content-encoding", "").lower()),
            now=datetime.now(UTC),
            path=request.url.path,
            profile=profile,
        )
        if not feedback.throttled:
            return DELIVERED if profile.by_resource else after_success(feedback)
        if course.attempts is None:
            course.attempts = Attempts(course.retry, course.began / SECOND)
        sends_left, backoff = course.attempts.answered(response, course.sends)
        chances = Chances(
            sends_left=sends_left,
            replayable=self._can_replay(request.stream),
            idempotent=request.method in IDEMPOTENT or "idempotency-key" in request.headers,
            backoff=backoff,
            patience=course.patience,
        )
        return after(feedback, chances)

    def _can_replay(self, stream: Any) -> bool:
        """Bytes, or a multipart whose files can be rewound; a generator has been read."""
        if isinstance(stream, self._byte_stream):
            return True
        fields = getattr(stream, "fields", None)
        return type(stream).__name__ == "MultipartStream" and all(
            isinstance(file, str | bytes) or (hasattr(file, "seekable") and file.seekable())
            for file in (getattr(field, "file", b"") for field in fields or ())
        )


def origin_of(url: Any) -> str:
    """scheme://host:port, by which APIs are told apart."""
    scheme = url.scheme
    return f"{scheme}://{url.host}:{url.port or USUAL_PORTS.get(scheme, '')}"


class SyncTransport(_Transport[Request, Response, BaseQuota]):
    """The sync colour, to be put over an httpx transport base."""

    def handle_request(self, request: Request) -> Response:
        """Send a request when the fleet may, and again when a throttled answer allows it."""
        course = self._course_of(request)
        if course is None:
            return self._inner.handle_request(request)  # type: ignore[no-any-return]
        while True:
            response, departure = self._send(request, course)
            try:
                profile = self._profile_of(request, response)
                verdict = self._hear(request, response, course, profile) if profile else DELIVERED
                if verdict.hold is not None:
                    departure.lane.hold(round(verdict.hold * SECOND))
            except BaseException:
                response.close()
                raise
            if isinstance(verdict, Deliver):
                response.extensions["quota"] = departure.decision(verdict.hold)
                return response  # type: ignore[no-any-return]
            _dispose(response, departure.timeouts)

    def _hear(
        self, request: Request, response: Any, course: Course, profile: Profile
    ) -> Deliver | Resend:
        """What an answer that says something leads to."""
        body = None
        if self._needs_body(request, response, profile):
            response.stream = peeked = self._peeked(response.stream)
            body = peeked.whole()
        return self._verdict(request, response, course, profile, body)

    def _send(self, request: Request, course: Course) -> tuple[Any, Departure]:
        """Send once, by a permit that has not expired when the headers are written."""
        raised, in_front = 0, False
        while True:
            since = clock()
            deadline = course.deadline(since)
            lane, permit = self._quota._draw(
                course.key,
                course.limits,
                course.options.costs,
                deadline,
                course.options.priority,
                in_front,
            )
            course.waited += clock() - since
            departure = Departure(lane, permit, course, request, deadline, raised, self._sends_once)
            try:
                response = self._inner.handle_request(departure.copy_of(request))
                course.sends += 1
                departure.take_over(request)
                self._traces = self._traces or departure.traced
                return response, departure
            except BaseException as error:
                self._traces = self._traces or departure.traced
                if not (isinstance(error, StartOver) and error.departure is departure):
                    if self._traces and departure.unused is not None:
                        lane.pass_on(departure.unused)
                    raise
                raised += 1
            if departure.permit is not None:
                course.late += 1
                lane.exchange(departure.permit, course.late)
            in_front = True

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._inner.__exit__(*exc_info)


class AsyncTransport(_Transport[Request, Response, BaseAsyncQuota]):
    """The async colour, to be put over an httpx transport base."""

    async def handle_async_request(self, request: Request) -> Response:
        """Send a request when the fleet may, and again when a throttled answer allows it."""
        course = self._course_of(request)
        if course is None:
            return await self._inner.handle_async_request(request)  # type: ignore[no-any-return]
        while True:
            response, departure = await self._send(request, course)
            try:
                profile = self._profile_of(request, response)
                verdict = (
                    await self._hear(request, response, course, profile) if profile else DELIVERED
                )
                if verdict.hold is not None:
                    await departure.lane.hold(round(verdict.hold * SECOND))
            except BaseException:
                await response.aclose()
                raise
            if isinstance(verdict, Deliver):
                response.extensions["quota"] = departure.decision(verdict.hold)
                return response  # type: ignore[no-any-return]
            await _adispose(response)

    async def _hear(
        self, request: Request, response: Any, course: Course, profile: Profile
    ) -> Deliver | Resend:
        """What an answer that says something leads to."""
        body = None
        if self._needs_body(request, response, profile):
            response.stream = peeked = self._peeked(response.stream)
            body = await peeked.whole()
        return self._verdict(request, response, course, profile, body)

    async def _send(self, request: Request, course: Course) -> tuple[Any, AsyncDeparture]:
        """Send once, by a permit that has not expired when the headers are written."""
        raised, in_front = 0, False
        while True:
            since = clock()
            deadline = course.deadline(since)
            lane, permit = await self._quota._draw(
                course.key,
                course.limits,
                course.options.costs,
                deadline,
                course.options.priority,
                in_front,
            )
            course.waited += clock() - since
            departure = AsyncDeparture(
                lane, permit, course, request, deadline, raised, self._sends_once
            )
            try:
                response = await self._inner.handle_async_request(departure.copy_of(request))
                course.sends += 1
                departure.take_over(request)
                self._traces = self._traces or departure.traced
                return response, departure
            except BaseException as error:
                self._traces = self._traces or departure.traced
                if not (isinstance(error, StartOver) and error.departure is departure):
                    if self._traces and departure.unused is not None:
                        lane.pass_on(departure.unused)
                    raise
                raised += 1
            if departure.permit is not None:
                course.late += 1
                lane.exchange(departure.permit, course.late)
            in_front = True

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._inner.__aexit__(*exc_info)


def _dispose(response: Any, timeouts: dict[str, float | None]) -> None:
    """Close a throttled answer; a short one is read first, which keeps its connection."""
    until = monotonic() + DRAIN_TIME
    timeouts["read"] = min(timeouts.get("read") or DRAIN_TIME, DRAIN_TIME)
    try:
        if _is_short(response):
            with suppress(Exception):  # whatever is wrong with it, nobody wanted it
                for _ in response.iter_raw():
                    if monotonic() > until:
                        break
    finally:
        response.close()


async def _adispose(response: Any) -> None:
    """Close a throttled answer; a short one is read first, which keeps its connection."""
    try:
        if _is_short(response):
            with suppress(Exception), anyio.move_on_after(DRAIN_TIME):  # nobody wanted it
                async for _ in response.aiter_raw():
                    pass
    finally:
        await response.aclose()


def _is_short(response: Any) -> bool:
    length = response.headers.get("content-length", "")
    return length.isdecimal() and len(length) < 9 and int(length) <= MOST_DRAINED
