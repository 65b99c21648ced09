"""Routes, through clients of both colours and both stores: whose windows a request draws on."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest
from redis import Redis

from quotaclient import Limit, QuotaExceeded, minute, second
from quotaclient.testing import RedisServer
from tests.shells.colours import Colour, Recording, SomeClient, eventually, results, stopwatch

HOST = "http://api.test"
OWN = Limit(100, 60)


def client_of(
    colour: Colour, key: str | None, routes: Any, redis: str | None = None, **parameters: Any
) -> SomeClient:
    """A client with these routes that never waits, unless told to, and whose upstream says 200."""
    defaults = {"limit": "100/min", "max_wait": 0, "transport": Recording()}
    return colour.client(HOST, key=key, routes=routes, redis=redis, **{**defaults, **parameters})


def refused(client: SomeClient, method: str, url: str, **kwargs: Any) -> QuotaExceeded:
    """The refusal of a request."""
    with pytest.raises(QuotaExceeded) as caught:
        client.request(method, url, **kwargs)
    return caught.value


def used(client: SomeClient) -> dict[str, int]:
    """The units used, by route."""
    return {limit.route: units for limit, units in client.quota.peek().used.items()}


def dump(url: str) -> dict[bytes, bytes]:
    """All keys in Redis, and their values as it serializes them."""
    with Redis.from_url(url) as connection:
        return {key: connection.dump(key) or b"" for key in connection.scan_iter()}


# Which windows


@pytest.mark.parametrize(
    ("route", "request_", "draws"),
    [
        ("/export", "GET /export", True),
        ("/export", "DELETE /export", True),
        ("/export", "GET /export?page=2&q=/x", True),
        ("/export", "GET /export#top", True),
        ("/export", "GET /exports", False),
        ("GET /export", "GET /export", True),
        ("GET /export", "get /export", True),
        ("GET /export", "POST /export", False),
        ("GET /search/*", "GET /search/", True),
        ("GET /search/*", "GET /search/a/b?c", True),
        ("GET /search/*", "GET /search?a=/search/b", False),
        ("/*/items", "GET /v1/x/items", True),
        ("/", "GET ", True),
        ("/caf%C3%A9/*", "GET /café/1", True),
        ("/a%20b", "GET /a b", True),
        ("/a%2fb", "GET /a%2fb", True),
        ("/a%2fb", "GET /a/b", False),
        ("/b", "GET /a/../b", True),
    ],
)
def test_which_requests_draw_on_a_route(
    colour: Colour, key: str, route: str, request_: str, draws: bool
) -> None:
    """Those of its method, if it has one, and of its path as it is sent, whatever their query."""
    client = client_of(colour, key, {route: "1/min"})
    method, _, url = request_.partition(" ")
    response = client.request(method, url)
    assert response.extensions["quota"].remaining == (0 if draws else 99)
    assert used(client) == {"": 1, route: 1 if draws else 0}


def test_the_windows_of_all_routes_that_match_come_on_top(
    colour: Colour, key: str, redis: str | None
) -> None:
    """A request draws on the client's window and on those of both its routes, and on no others."""
    routes = {"GET /search/*": "5/min", "/search/deep": 3 / minute, "/export": "1/min"}
    client = client_of(colour, key, routes, redis)
    assert client.get("/search/deep").extensions["quota"].remaining == 2
    assert client.get("/search/flat").extensions["quota"].remaining == 3
    assert client.get("/other").extensions["quota"].remaining == 97
    assert used(client) == {"": 3, "GET /search/*": 2, "/search/deep": 1, "/export": 0}


def test_the_path_of_base_url_is_part_of_the_path(colour: Colour, key: str) -> None:
    """The path is compared as it is sent: with that of base_url."""
    client = colour.client(
        f"{HOST}/v1/", limit="100/min", key=key, transport=Recording(),
        routes={"/v1/items": "5/min", "/items": "5/min"},
    )  # fmt: skip
    client.get("items")
    client.get("/items")
    assert used(client) == {"": 2, "/v1/items": 2, "/items": 0}


def test_another_origin_draws_on_no_route(colour: Colour, key: str) -> None:
    """A request to another origin than base_url's draws on nothing, whatever its path."""
    client = client_of(colour, key, {"/*": "1/min"})
    for _ in range(3):
        client.get("http://elsewhere.test/export")
    assert used(client) == {"": 0, "/*": 0}


def test_a_transport_has_routes(colour: Colour, key: str, redis: str | None) -> None:
    """QuotaTransport takes them too; without a key each origin has routes of its own."""
    transport = colour.transport(
        Recording(), limit="100/min", routes={"/export": "1/min"}, redis=redis, max_wait=0
    )
    client = colour.plain_client(transport=transport)
    for host in (f"http://{key}.test", f"http://{key}-b.test"):
        client.get(f"{host}/export")
        error = refused(client, "GET", f"{host}/export")
        assert error.limit == Limit(1, 60, route="/export")
        client.get(f"{host}/other")


def test_a_quota_has_no_routes(colour: Colour, key: str) -> None:
    """Without HTTP there are no paths, so routes= does not pass for something."""
    with pytest.raises(TypeError, match="routes"):
        colour.quota(key, "5/min", routes={"/export": "1/min"})


def test_clients_share_the_window_of_a_route(
    colour: Colour, other: Colour, key: str, redis: str | None
) -> None:
    """One key and one route are one window, for clients of either colour; each keeps its limit."""
    tight = client_of(colour, key, {"/export": "2/min"}, redis)
    loose = client_of(other, key, {"/export": "3/min", "GET /export": "9/min"}, redis)
    loose.get("/export")
    tight.get("/export")
    assert refused(tight, "GET", "/export").limit == Limit(2, 60, route="/export")
    loose.get("/export")
    assert refused(loose, "GET", "/export").limit == Limit(3, 60, route="/export")
    assert used(tight) == {"": 3, "/export": 3}
    assert used(loose) == {"": 3, "/export": 3, "GET /export": 2}


def test_a_tenant_has_routes_of_its_own(colour: Colour, key: str, redis: str | None) -> None:
    """A key, by function or by request, names the windows of its routes as well."""

    def tenant(request: httpx.Request) -> str:
        return f"{key}-{request.headers['x-tenant']}"

    client = client_of(colour, None, {"/export": "1/min"}, redis)
    by_function = colour.client(
        HOST, limit="100/min", key=tenant, routes={"/export": "1/min"}, redis=redis, max_wait=0,
        transport=Recording(),
    )  # fmt: skip
    for name in ("a", "b"):
        client.get("/export", extensions={"quota": {"key": f"{key}-{name}"}})
        error = refused(by_function, "GET", "/export", headers={"x-tenant": name})
        assert error.limit == Limit(1, 60, route="/export")
        by_function.get("/other", headers={"x-tenant": name})


# What is full


def test_a_full_route_is_named(colour: Colour, key: str, redis: str | None) -> None:
    """The error knows the route and its message shows it; the client's own limit has none."""
    client = client_of(colour, key, {"GET /search/*": "1/min"}, redis, limit="2/min")
    client.get("/search/a")
    error = refused(client, "GET", "/search/b")
    assert error.limit is not None
    assert error.limit.route == "GET /search/*"
    assert "1/min on GET /search/* is used up" in str(error)
    assert 58 < error.retry_after <= 61
    client.get("/other")
    error = refused(client, "GET", "/other")
    assert error.limit == Limit(2, 60)
    assert error.limit.route == ""
    assert "on GET" not in str(error)


def test_a_refusal_books_in_no_window(colour: Colour, key: str, redis: str | None) -> None:
    """All windows or none: what a full route refuses counts nowhere."""
    client = client_of(colour, key, {"/export": "1/min", "/*": "50/min"}, redis)
    client.get("/export")
    for _ in range(3):
        refused(client, "GET", "/export")
    assert used(client) == {"": 1, "/export": 1, "/*": 1}


def test_a_full_client_refuses_its_routes(colour: Colour, key: str, redis: str | None) -> None:
    """A route is no way past the client's own limit."""
    client = client_of(colour, key, {"/export": "50/min"}, redis, limit="2/min")
    client.get("/a")
    client.get("/export")
    assert refused(client, "GET", "/export").limit == Limit(2, 60)
    assert used(client) == {"": 2, "/export": 1}


def test_who_waits_for_a_route_keeps_nobody_back(
    colour: Colour, key: str, redis: str | None
) -> None:
    """While requests wait for a full route the others of the client go at once."""
    client = client_of(colour, key, {"/export": "1/0.5s"}, redis, max_wait=10)
    client.get("/export")
    waiting = [client.start("/export") for _ in range(2)]
    time.sleep(0.05)
    with stopwatch() as took:
        for _ in range(20):
            assert client.get("/other").extensions["quota"].waited < 0.2
    assert took.seconds < 0.5
    assert not any(future.done() for future in waiting)
    assert [response.status_code for response in results(waiting)] == [200, 200]


def test_a_route_waits_for_its_turn(colour: Colour, key: str, either: str | None) -> None:
    """Five through a route of two in 0.3 s take two periods, though the client's limit is wide."""
    client = client_of(colour, key, {"/export": 2 / (0.3 * second)}, either, max_wait=10)
    with stopwatch() as took:
        assert not any(
            isinstance(outcome, Exception)
            for outcome in results([client.start("/export") for _ in range(5)])
        )
    assert 0.6 <= took.seconds < 1.5


def test_a_redirect_draws_on_the_route_where_it_leads(
    colour: Colour, key: str, redis: str | None
) -> None:
    """Each leg draws on the routes of its own path and method."""

    def answer(request: httpx.Request) -> httpx.Response:
        moved = {"/old": "/new", "/new": "/newest"}.get(request.url.path)
        return httpx.Response(303, headers={"location": moved}) if moved else httpx.Response(200)

    client = client_of(
        colour, key, {"POST /old": "5/min", "GET /new": "5/min", "/newest": "1/min"}, redis,
        transport=Recording(answer), follow_redirects=True,
    )  # fmt: skip
    assert client.request("POST", "/old").status_code == 200
    assert used(client) == {"": 3, "POST /old": 1, "GET /new": 1, "/newest": 1}
    error = refused(client, "POST", "/old")
    assert error.limit == Limit(1, 60, route="/newest")
    assert error.request.url.path == "/newest"


def test_a_resend_draws_on_the_route_again(colour: Colour, key: str, redis: str | None) -> None:
    """After a 429 the request takes another permit, from the route's window too."""
    answers = [httpx.Response(429, headers={"retry-after": "0.1"}), httpx.Response(200)]
    client = client_of(
        colour, key, {"/export": "5/min"}, redis, max_wait=5,
        transport=Recording(lambda _: answers.pop(0)),
    )  # fmt: skip
    assert client.get("/export").extensions["quota"].attempts == 2
    assert used(client) == {"": 2, "/export": 2}


# Costs


def test_costs_of_a_route(colour: Colour, key: str, redis: str | None) -> None:
    """A number draws on every window, a mapping by name, be it the client's or a route's."""
    client = client_of(colour, key, {"POST /chat": "50 tokens/min; 20/min"}, redis)

    def post(cost: Any) -> None:
        client.request("POST", "/chat", extensions={"quota": {"cost": cost}})

    post({"requests": 1, "tokens": 30})
    assert list(client.quota.peek().used.values()) == [1, 30, 1]
    post({"tokens": 10})
    assert list(client.quota.peek().used.values()) == [1, 40, 1]
    post(10)
    assert list(client.quota.peek().used.values()) == [11, 50, 11]
    post(0)
    post({"requests": 2})
    with pytest.raises(QuotaExceeded, match="50 tokens/min on POST /chat"):
        post({"tokens": 1})


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (21, "cost=21 can never be met by the limit 20/min on POST /chat"),
        ({"tokens": 51}, "cost=51 can never be met by the limit 50 tokens/min on POST /chat"),
        ({"requests": 21}, "cost=21 can never be met by the limit 20/min on POST /chat"),
        (101, "cost=101 can never be met by the limit 100/min;"),
        ({"token": 5}, r"\{'token': 5\} .* \(requests and tokens; a route's where it matches\)"),
        (-1, "cost=-1 .* for example cost=5"),
        (True, "cost=True .* for example cost=5"),
        (1.0, "cost=1.0 .* for example cost=5"),
        ("1", "cost='1' .* for example cost=5"),
        (float("nan"), "cost=nan .* for example cost=5"),
        ({"tokens": -1}, "cost=-1 .* for example cost=5"),
        ({"tokens": float("nan")}, "cost=nan .* for example cost=5"),
    ],
    ids=repr,
)
def test_a_cost_that_a_route_cannot_meet(colour: Colour, key: str, cost: Any, message: str) -> None:
    """It is a ValueError that names the limit and its route, before anything is sent or spent."""
    inner = Recording()
    client = client_of(
        colour, key, {"POST /chat": "50 tokens/min; 20/min"}, "redis://127.0.0.1:1/0",
        replicas=1, transport=inner,
    )  # fmt: skip
    with pytest.raises(ValueError, match=message):
        client.request("POST", "/chat", extensions={"quota": {"cost": cost}})
    assert inner.requests == []
    assert set(client.quota.peek().used.values()) == {0}


def test_a_cost_for_a_route_that_does_not_match(colour: Colour, key: str) -> None:
    """Units that nothing would count are an error, which says that only a route's match counts."""
    client = client_of(colour, key, {"POST /chat": "50 tokens/min"})
    cost = {"cost": {"requests": 1, "tokens": 30}}
    client.request("POST", "/chat", extensions={"quota": cost})
    with pytest.raises(ValueError, match=r"\(requests; a route's where it matches\)"):
        client.get("/chat", extensions={"quota": cost})
    assert list(client.quota.peek().used.values()) == [1, 30]


# The guard


def test_the_guard_fits_the_shortest_period_of_all(colour: Colour, key: str) -> None:
    """guard= is at most half the shortest period, be it a route's."""
    assert client_of(colour, key, {"/export": "1/10s"}, guard=5)
    for routes in ({"/export": "1/9s"}, {"/a": "1/min", "/b": "1/h; 5/s"}):
        with pytest.raises(ValueError, match="half the shortest period"):
            client_of(colour, key, routes, guard=5)


# peek, reset, repr


def test_peek_and_reset_know_the_routes(colour: Colour, key: str, redis: str | None) -> None:
    """peek lists a route's use and tells what the client's own windows have left; reset is all."""
    client = client_of(colour, key, {"/export": "3/min"}, redis)
    for _ in range(3):
        client.get("/export")
    usage = client.quota.peek()
    assert usage.used == {OWN: 3, Limit(3, 60, route="/export"): 3}
    assert usage.remaining == 97
    client.quota.reset()
    assert used(client) == {"": 0, "/export": 0}
    client.get("/export", extensions={"quota": {"cost": 3}})


# In Redis


def test_nothing_in_redis_tells_a_key_or_a_route(colour: Colour, redis_server: RedisServer) -> None:
    """No key in Redis shows whose it is or which path it counts, and no value does."""
    secret = "tenant-of-great-importance"
    routes = {"GET /files/secret/*": "5/min", "/*": "50/min"}
    client = client_of(colour, None, routes, redis_server.url)
    client.get("/files/secret/1", extensions={"quota": {"key": secret}})
    stored = dump(redis_server.url)
    assert len(stored) == 4  # the lanes, and a record for each of three limits
    assert not any(b"/" in name for name in stored)
    for name, value in stored.items():
        for text in (secret, "files", "secret", "GET", "api.test"):
            assert text.encode() not in name + value


def test_a_route_expires(colour: Colour, redis_server: RedisServer) -> None:
    """When nothing of it counts any more, nothing of it is in Redis."""
    client = client_of(colour, "k", {"/export": "5/0.2s"}, redis_server.url, limit="50/0.3s")
    client.get("/export")
    client.get("/other")
    assert dump(redis_server.url)
    client.close()
    assert eventually(lambda: not dump(redis_server.url), within=4)


# Without Redis


def test_a_route_is_shared_out_in_an_outage(colour: Colour, key: str) -> None:
    """While Redis is away this replica keeps to its share of the route's limit, too."""
    client = client_of(
        colour, key, {"/export": "8/min", "/rare": "1/min"}, "redis://127.0.0.1:1/0", replicas=4
    )
    assert [client.get("/export").extensions["quota"].source for _ in range(2)] == ["share"] * 2
    assert refused(client, "GET", "/export").limit == Limit(8, 60, route="/export")
    assert client.get("/other").extensions["quota"].remaining == 22
    with pytest.raises(httpx.TransportError, match=r"0 of 1/min on /rare"):
        client.get("/rare")
