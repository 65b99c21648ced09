"""The permit is presented at the point of departure.

Between hand-out and departure lie the event loop, the connection pool and the handshakes: a cold
burst of 25 requests in one process was seen to leave 60-80 ms late. httpcore's `trace` extension
is called right before request headers are written; there a permit that has expired is exchanged.

HTTP/1.1    The callback may sit out a wait up to the guard, store calls included. Anything longer
            raises `StartOver`. That costs the connection, so it happens twice in a row at most.
HTTP/2      The stream's id is taken already: a callback that yields even once would let another
            request write first and break the connection. It compares clocks and raises, nothing
            else, and the connection survives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from quotaclient._async_lane import AsyncLane
from quotaclient._core.ask import SECOND, Permit
from quotaclient._core.limits import Limit
from quotaclient._core.options import RequestOptions
from quotaclient._decision import Booking, Decision
from quotaclient._retry import Attempts, Policy
from quotaclient._stores.memory import clock
from quotaclient._sync_lane import SyncLane

HEADERS_NEXT = ".send_request_headers.started"
MOST_RAISED = 2  # departures of one request in a row that may cost a connection each

AnyLane = TypeVar("AnyLane", SyncLane, AsyncLane)


class StartOver(Exception):
    """The permit ran out on the way: come back with another. Never leaves this package.

    It passes through whatever transports stand between, another quota's maybe: `departure` says
    whose it is.
    """

    def __init__(self, departure: object) -> None:
        super().__init__("the permit ran out on the way")
        self.departure = departure


@dataclass(slots=True)
class Course:
    """One request's way through the transport. Times are whole microseconds."""

    key: str
    limits: tuple[Limit, ...]
    options: RequestOptions
    retry: Policy
    began: int  # on our clock
    attempts: Attempts | None = None  # there from the first throttled answer on
    sends: int = 0
    waited: int = 0
    late: int = 0  # how often a permit expired before this request left

    @property
    def patience(self) -> float | None:
        """Seconds that are left of max_wait; None: unbounded."""
        max_wait = self.options.max_wait
        return None if max_wait is None else max(0.0, max_wait - self.waited / SECOND)

    def deadline(self, now: int) -> int | None:
        """When patience ends, if waiting begins now."""
        max_wait = self.options.max_wait
        return None if max_wait is None else now + max(0, round(max_wait * SECOND) - self.waited)


class _Departure(Generic[AnyLane]):
    """One send of a request, and the permit for it; None once that was given back."""

    def __init__(
        self,
        lane: AnyLane,
        permit: Permit,
        course: Course,
        request: Any,
        deadline: int | None,
        raised: int,
        sends_once: bool,
    ) -> None:
        self.lane: AnyLane = lane
        self.permit: Permit | None = permit
        self.traced = self._presented = False
        self._course = course
        self._costs = permit.costs
        self._deadline = deadline
        self._raised = raised
        self._sends_once = sends_once
        self._method: str = request.method
        self._user_trace = request.extensions.get("trace")
        self.timeouts: dict[str, float | None] = dict(request.extensions.get("timeout", {}))

    def copy_of(self, request: Any) -> Any:
        """The request for the inner transport. The caller's own travels on, to redirects."""
        extensions = {**request.extensions, "trace": self.trace, "timeout": self.timeouts}
        extensions.pop("quota", None)
        self._copy: Any = object.__new__(request.__class__)
        self._copy.__dict__.update(request.__dict__, extensions=extensions)
        return self._copy

    def take_over(self, request: Any) -> None:
        """Let the caller's request have what the inner transport did to its copy: read the body."""
        copy, self._copy = self._copy, None  # a cycle, by `trace`: bodies would wait for the gc
        if copy.stream is not request.stream:
            request.__dict__.update(copy.__dict__, extensions=request.extensions)

    def trace(self, name: str, info: dict[str, Any]) -> Any:
        raise NotImplementedError

    @property
    def unused(self) -> Permit | None:
        """After a failure of a transport that traces: the permit, if no headers were written."""
        return None if self._presented else self.permit

    def decision(self, hold: float | None) -> Decision:
        """What the response tells of its permit; `hold`: seconds that its upstream asked for."""
        assert self.permit is not None  # it was presented
        return Decision(
            self.lane.lane.remaining(self._costs),
            self._course.waited / SECOND,
            self.permit.ticket.source,
            self._course.sends,
            hold,
            Booking(self.lane.lane.limits, self.permit, self.lane.settle),
        )

    def _departs(self, info: dict[str, Any]) -> bool:
        """Whether the headers that come next are ours; those of a CONNECT to a proxy are not."""
        method = self._method.encode("ascii", "replace")
        if getattr(info.get("request"), "method", method) != method:
            return False
        if self._presented:  # a transport inside ours that sends again needs another permit
            self.permit, self._presented = None, False
        return True

    def _depart(self, name: str, info: dict[str, Any]) -> None:
        """The permit is spent.

        On HTTP/1.1 httpcore's request goes on without our `trace`: nothing that follows is ours
        to know, and each event costs time. On HTTP/2 the same request may depart once more, when
        the server went away before it looked at it.
        """
        self._presented = True
        if self._sends_once and self._user_trace is None and name.startswith("http11."):
            sent = info["request"]
            extensions = dict(sent.extensions)
            if extensions.pop("trace", None) == self.trace:  # no other is around it
                sent.extensions = extensions

    def _is_late(self) -> bool:
        return self.permit is None or clock() > self.permit.expires

    def _exchange_until(self, name: str) -> int | None:
        """How long the callback may wait for another permit; StartOver if not at all."""
        if name.startswith("http2."):
            raise StartOver(self)
        if self._raised >= MOST_RAISED:
            return self._deadline
        return clock() + self.lane.lane.guard


class Departure(_Departure[SyncLane]):
    """In a thread."""

    def trace(self, name: str, info: dict[str, Any]) -> None:
        self.traced = True
        if self._user_trace is not None:
            self._user_trace(name, info)
        if not (name.endswith(HEADERS_NEXT) and self._departs(info)):
            return
        if self._is_late():
            self._exchange(self._exchange_until(name))
        self._depart(name, info)

    def _exchange(self, deadline: int | None) -> None:
        since = clock()
        options = self._course.options
        while self._is_late():
            if self.permit is not None:
                self._course.late += 1
                self.lane.exchange(self.permit, self._course.late)
                self.permit = None
            outcome = self.lane.acquire(self._costs, deadline, options.priority, in_front=True)
            if not isinstance(outcome, Permit):
                raise StartOver(self)
            self.permit = outcome
        self._course.waited += clock() - since


class AsyncDeparture(_Departure[AsyncLane]):
    """On an event loop."""

    async def trace(self, name: str, info: dict[str, Any]) -> None:
        self.traced = True
        if self._user_trace is not None:
            await self._user_trace(name, info)
        if not (name.endswith(HEADERS_NEXT) and self._departs(info)):
            return
        if self._is_late():
            await self._exchange(self._exchange_until(name))
        self._depart(name, info)

    async def _exchange(self, deadline: int | None) -> None:
        since = clock()
        options = self._course.options
        while self._is_late():
            if self.permit is not None:
                self._course.late += 1
                self.lane.exchange(self.permit, self._course.late)
                self.permit = None
            outcome = await self.lane.acquire(
                self._costs, deadline, options.priority, in_front=True
            )
            if not isinstance(outcome, Permit):
                raise StartOver(self)
            self.permit = outcome
        self._course.waited += clock() - since
