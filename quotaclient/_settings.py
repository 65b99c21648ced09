"""The parameters of a quota, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from quotaclient._core.ask import SECOND
from quotaclient._core.limits import Limit, limits_of
from quotaclient._core.options import (
    OnOutage,
    Unset,
    checked_guard,
    checked_key,
    checked_max_wait,
    checked_on_outage,
    checked_prefix,
    checked_profile,
    checked_replicas,
    wrong,
)
from quotaclient._core.profiles import Profile
from quotaclient._core.routes import limits_on, routes_of
from quotaclient._stores.redis import Connections, RedisParameter
from quotaclient._stores.replica import Fallback

Limits = str | Limit | Iterable[Limit]
Routes = Mapping[str, Limits] | None


class Parameters(TypedDict, total=False):
    """The parameters that quotas and transports hand on, as `QuotaClient` describes them."""

    redis: RedisParameter
    replicas: int | None
    on_outage: OnOutage
    max_wait: float | None
    guard: float | None
    prefix: str


class Settings:
    """The parameters of a quota, checked; by position only, `routes` and `profile` of a client."""

    def __init__(
        self,
        key: str | None,
        limit: Limits,
        routes: Routes = None,
        profile: str | Profile | None = None,
        /,
        *,
        redis: object = None,
        replicas: int | None = None,
        on_outage: OnOutage = "share",
        max_wait: float | None = 60.0,
        guard: float | None = None,
        prefix: str = "quota",
    ) -> None:
        self.key = None if key is None else checked_key(key)
        self.limits = limits_of(limit)
        self.routes = routes_of(routes)
        of_routes = (limit for route in self.routes for limit in route.limits)
        self.all_limits = (*self.limits, *of_routes)
        self.connections = None if redis is None else Connections(redis)
        self.replicas = checked_replicas(replicas)
        self.on_outage: OnOutage = checked_on_outage(on_outage)
        self.max_wait = checked_max_wait(max_wait)
        self.guard = checked_guard(guard, self.all_limits)
        self.profile = checked_profile(profile)  # None: that of each host
        self.prefix = checked_prefix(prefix)

    def fallback(self, server: str) -> Fallback:
        return Fallback(server, self.prefix, self.replicas, self.on_outage)

    def limits_for(self, method: str, target: bytes) -> tuple[Limit, ...]:
        """All limits that a request obeys: ours, then those of its routes."""
        return (*self.limits, *limits_on(self.routes, method, target))

    def key_or(self, key: str | None) -> str:
        if key is not None:
            return checked_key(key)
        if self.key is None:
            raise wrong("key", None, "given here or to the quota", "key='tenant-7'")
        return self.key

    def deadline(self, max_wait: float | Unset | None, now: int) -> int | None:
        """When waiting ends, on our clock; None for never."""
        patience = self.max_wait if isinstance(max_wait, Unset) else checked_max_wait(max_wait)
        return deadline_after(patience, now)


def deadline_after(patience: float | None, now: int) -> int | None:
    """`patience` in seconds from `now`, None for however long."""
    return None if patience is None else now + round(patience * SECOND)
