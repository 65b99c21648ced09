"""Routes: which requests they match, what becomes of their limits, and what is no route."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from quotaclient._core.account import Account, window_name
from quotaclient._core.ask import SECOND, Ask, Group
from quotaclient._core.limits import InvalidLimit, Limit, minute, second
from quotaclient._core.routes import limits_on, routes_of

NAN = float("nan")


def met(route: str, method: str, target: str) -> bool:
    """Whether a request is met by a route."""
    return limits_on(routes_of({route: "1/min"}), method, target.encode()) != ()


@pytest.mark.parametrize(
    ("route", "method", "target", "is_met"),
    [
        ("/export", "GET", "/export", True),
        ("/export", "POST", "/export", True),
        ("/export", "GET", "/export/", False),
        ("/export", "GET", "/exports", False),
        ("/export", "GET", "/v1/export", False),
        ("/export", "GET", "/Export", False),
        ("/export", "GET", "/export?format=csv", True),
        ("/export", "GET", "/export?", True),
        ("GET /export", "GET", "/export", True),
        ("GET /export", "HEAD", "/export", False),
        ("M-SEARCH /", "M-SEARCH", "/", True),
        ("/*", "GET", "/", True),
        ("/*", "PATCH", "/a/b?c=d", True),
        ("/search/*", "GET", "/search/", True),
        ("/search/*", "GET", "/search/a/b", True),
        ("/search/*", "GET", "/search", False),
        ("/search*", "GET", "/search", True),
        ("/*/items", "GET", "/a/b/items", True),
        ("/*/items", "GET", "/items", False),
        ("/*/items", "GET", "/a/items/7", False),
        ("/*items", "GET", "/items", True),
        ("/v*/items/*/tags", "GET", "/v1/items/7/tags", True),
        ("/v*/items/*/tags", "GET", "/v1/items/tags", False),
        ("/v*/items/*/tags", "GET", "/v1/items/a/items/b/tags", True),
        ("/a*b*b", "GET", "/a-b-b", True),
        ("/a*b*b", "GET", "/a-b", False),
        ("/a*a", "GET", "/a", False),
        ("/a**b", "GET", "/ab", True),
        ("/items.json", "GET", "/itemsxjson", False),
        ("/items.json", "GET", "/items.json", True),
        ("/(a|b)+[c]$", "GET", "/(a|b)+[c]$", True),
        ("/caf%C3%A9/*", "GET", "/caf%C3%A9/7", True),
        ("/a%2Fb", "GET", "/a/b", False),
        ("/*", "GET", "/a\nb", True),
    ],
)
def test_what_a_route_matches(route: str, method: str, target: str, is_met: bool) -> None:
    """Its own method, its whole path as it is sent, any query, and any text for a star."""
    assert met(route, method, target) is is_met


def test_all_that_match_count_in_their_order() -> None:
    """A request obeys the limits of all routes that it matches, each marked with its route."""
    routes = routes_of(
        {
            "GET /search/*": "30/min; 1000 rows/h",
            "/*": 5 / second,
            "POST /search/*": [1 / minute],
            "/search/deep": Limit(3, 60),
        }
    )
    assert limits_on(routes, "GET", b"/search/deep?page=2") == (
        Limit(30, 60, route="GET /search/*"),
        Limit(1000, 3600, name="rows", route="GET /search/*"),
        Limit(5, 1, route="/*"),
        Limit(3, 60, route="/search/deep"),
    )
    assert limits_on(routes, "PUT", b"/") == (Limit(5, 1, route="/*"),)


@pytest.mark.parametrize("value", [None, {}, MappingProxyType({})])
def test_no_routes(value: Any) -> None:
    """Without routes nothing comes on top."""
    assert routes_of(value) == ()
    assert limits_on((), "GET", b"/") == ()


def test_a_path_that_repeats_itself_takes_no_time() -> None:
    """Stars are not tried at every place: a long path that nearly matches is judged at once."""
    since = time.monotonic()
    assert not met("/" + "*a" * 50 + "*b", "GET", "/" + "a" * 60_000)
    assert not met("/*ab*ab*ab*c*", "GET", "/" + "ab" * 30_000)
    assert time.monotonic() - since < 1


@pytest.mark.parametrize(
    "route",
    [
        "", " ", "export", "GET", "GET ", "GET export", "*", "GET *", "* /export", "get /export",
        "Get /export", "GET  /export", " /export", "/export ", "GET\t/export", "GET/export",
        "GET, POST /export", "GET|POST /export", "G3T /export", "-GET /export", "/a b", "/export?",
        "/export?page=*", "/export#top", "/users/{id}", "/users/<id>", "/café", "/a\nb", "/\x00",
        "https://api.example.com/export", "GET https://api.example.com/", 5, None, True, NAN,
        b"/export", ("GET", "/export"), re.compile("/export"),
    ],
)  # fmt: skip
def test_what_is_no_route(route: Any) -> None:
    """A route that could never match is an error that shows it and a correct one."""
    with pytest.raises(ValueError, match=r"for example routes=\{'GET /search/\*'") as caught:
        routes_of({route: "1/min"})
    assert repr(route)[:10] in str(caught.value)


@pytest.mark.parametrize(
    "value",
    ["", "GET /search/*", "30/min", 5, True, NAN, [], ["/a"], [("/a", "1/min")], {"/a"}, b"/a"],
    ids=repr,
)
def test_routes_are_a_mapping(value: Any) -> None:
    """Anything but a mapping is an error that shows it and a correct one."""
    with pytest.raises(ValueError, match=r"for example routes=\{'GET /search/\*'") as caught:
        routes_of(value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("limit", ["", "30", "0/min", "1/min; 2/min", 30, None, NAN, [], {}, {"a"}])
def test_the_limit_of_a_route_that_cannot_be(limit: Any) -> None:
    """It is an InvalidLimit that names the route."""
    with pytest.raises(InvalidLimit, match=r"'/export' in routes=.*for example"):
        routes_of({"/fine": "1/min", "/export": limit})


def test_a_long_route_is_shown_short() -> None:
    """An error stays readable."""
    with pytest.raises(ValueError, match=r"is not a route") as caught:
        routes_of({"x" * 100_000: "1/min"})
    assert len(str(caught.value)) < 400


def test_a_limit_says_whose_it_is() -> None:
    """The route is part of what a limit is and of how it is shown, and stays when it is divided."""
    (limit,) = limits_on(routes_of({"/export": 10 / minute}), "GET", b"/export")
    assert (limit.route, str(limit)) == ("/export", "10/min on /export")
    assert limit != 10 / minute
    assert len({limit, 10 / minute, replace(limit, route="/other")}) == 3
    assert replace(limit, count=2).route == "/export"
    assert (10 / minute).route == ""


@pytest.mark.parametrize("route", [None, 5, True, b"/export"])
def test_the_route_of_a_limit_is_text(route: Any) -> None:
    """A Limit made by hand with anything else for its route is an InvalidLimit."""
    with pytest.raises(InvalidLimit, match="for example") as caught:
        Limit(10, 60, route=route)
    assert repr(route) in str(caught.value)


def test_a_route_has_a_record_of_its_own() -> None:
    """Its window is not the client's, nor another route's, and its name does not tell its path."""
    own = 10 / minute
    names = {window_name(replace(own, route=route)) for route in ("", "/export", "GET /export")}
    assert len(names) == 3
    assert window_name(own) in names
    assert not any("export" in name for name in names)
    raised = Limit(20, 60, route="/export")
    assert window_name(raised) == window_name(replace(own, route="/export"))


def test_a_route_books_in_all_its_windows_or_in_none() -> None:
    """What a route's window refuses is not booked in the client's."""
    account = Account()
    limits = (Limit(10, 60), Limit(1, 60, route="/export"))
    ask = Ask("key", limits, "lane", 0, groups=(Group(1, (1, 1)),), max_wait=SECOND)
    assert account.reserve(ask, SECOND).used == (1, 1)
    refused = account.reserve(ask, 2 * SECOND)
    assert refused.used == (1, 1)
    assert refused.refusal is not None
    assert refused.refusal.window == 1
