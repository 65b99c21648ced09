"""Still an httpx client: every door, redirects, auth, streams, close, trace, hooks, errors."""

from __future__ import annotations

import copy
import pickle
import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import trustme

from quotaclient import Decision, Limit, QuotaError, QuotaExceeded, StoreUnavailable
from quotaclient.testing import Answer, Received, ScriptedUpstream
from tests.shells.colours import Colour, Recording, Threads
from tests.shells.proxies import Proxy

SLOW = "5/min"


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    """An upstream that answers 200 with the path, and moves /to:STATUS:URL there."""

    def answers(received: Received) -> Answer:
        if received.path.startswith("/to:"):
            status, _, target = received.path[4:].partition(":")
            return Answer(int(status), (("location", target),))
        return Answer(body=received.path.encode())

    with ScriptedUpstream(answers) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who signs the certificate of api.test."""
    return trustme.CA()


@pytest.fixture(scope="module")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    """What the tunnel's far end speaks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("api.test").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    """What believes it."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


# Doors


def test_a_transport_of_the_user_is_behind_the_quota(colour: Colour, key: str) -> None:
    """transport= is wrapped: its requests draw on the quota."""
    inner = Recording()
    client = colour.client("http://a.test", limit="2/min", key=key, max_wait=0, transport=inner)
    client.get("/")
    client.get("/")
    with pytest.raises(QuotaExceeded):
        client.get("/")
    assert len(inner.requests) == 2


def test_mounts_are_behind_the_quota(colour: Colour, key: str) -> None:
    """Each of mounts= is wrapped, and None still means the client's own transport."""
    main, mounted = Recording(), Recording()
    client = colour.client(
        limit="3/min",
        key=key,
        max_wait=0,
        transport=main,
        mounts={"http://a.test": mounted, "http://b.test": None},
    )
    client.get("http://a.test")
    client.get("http://b.test")
    client.get("http://c.test")
    for host in "abc":
        with pytest.raises(QuotaExceeded):
            client.get(f"http://{host}.test")
    assert len(mounted.requests) == 1
    assert len(main.requests) == 2


def test_a_proxy_is_behind_the_quota(colour: Colour, key: str, upstream: ScriptedUpstream) -> None:
    """proxy= forwards through the quota: two pass, the third is refused."""
    with Proxy() as proxy:
        client = colour.client(upstream.url, limit="2/min", key=key, max_wait=0, proxy=proxy.url)
        assert client.get("/a").text == "/a"
        assert client.get("/b").extensions["quota"].remaining == 0
        with pytest.raises(QuotaExceeded):
            client.get("/c")
        assert proxy.lines == [f"GET {upstream.url}/{name} HTTP/1.1" for name in "ab"]
        client.close()


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_proxies_of_the_environment_are_behind_the_quota(
    colour: Colour,
    key: str,
    upstream: ScriptedUpstream,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    """A proxy that the environment names is used, and is behind the quota."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Proxy() as proxy:
        monkeypatch.setenv(variable, proxy.url)
        client = colour.client(upstream.url, limit="1/min", key=key, max_wait=0)
        assert client.get("/a").text == "/a"
        assert len(proxy.lines) == 1
        with pytest.raises(QuotaExceeded):
            client.get("/b")
        client.close()


def test_no_proxy_is_honoured(
    colour: Colour, key: str, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What NO_PROXY excepts goes directly, through the quota all the same."""
    with Proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        client = colour.client(upstream.url, limit="1/min", key=key, max_wait=0)
        client.get("/a")
        with pytest.raises(QuotaExceeded):
            client.get("/b")
        assert proxy.lines == []
        assert len(upstream.received) == 1


def test_connect_takes_no_permit(
    colour: Colour, key: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """Through a tunnel the CONNECT is nobody's request: two GETs use two."""
    with Proxy(server_tls) as proxy:
        client = colour.client(
            "https://api.test", limit=SLOW, key=key, proxy=proxy.url, verify=client_tls
        )
        assert client.get("/a").text == "tunnelled"
        assert client.get("/b").text == "tunnelled"
        assert proxy.lines == ["CONNECT api.test:443 HTTP/1.1"] + [
            f"GET /{name} HTTP/1.1" for name in "ab"
        ]
        assert client.quota.used() == 2
        client.close()


def test_the_headers_of_connect_are_not_the_departure(
    colour: Colour, key: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """A permit that expires during CONNECT is still exchanged before the request's own headers."""
    delay, period = 0.2, 0.4
    with Proxy(server_tls, delay=delay) as proxy:
        client = colour.client(
            "https://api.test", limit=f"1/{period}s", guard=0.05, key=key, proxy=proxy.url,
            verify=client_tls,
        )  # fmt: skip
        client.get("/a")
        # Booked at the departure, not when the tunnel was begun: it is in the way till then.
        with pytest.raises(QuotaExceeded) as caught:
            client.quota.acquire(max_wait=0)
        assert caught.value.retry_after > period - delay + 0.05
        client.close()


def test_a_tunnel_that_fails_gives_its_permit_back(colour: Colour, key: str) -> None:
    """A proxy that never answers CONNECT costs nothing."""
    with Proxy(silent=True) as proxy:
        client = colour.client(
            "https://api.test", limit=SLOW, key=key, proxy=proxy.url, timeout=0.1
        )
        with pytest.raises(httpx.ReadTimeout):
            client.get("/")
        assert client.quota.used() == 0
        assert [line.split()[0] for line in proxy.lines] == ["CONNECT"]
        client.close()


# Redirects and auth


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_each_redirect_takes_a_permit(
    colour: Colour, key: str, upstream: ScriptedUpstream, status: int
) -> None:
    """A request that is moved once has used two."""
    client = colour.client(upstream.url, limit=SLOW, key=key, follow_redirects=True)
    response = client.get(f"/to:{status}:/there")
    assert response.text == "/there"
    assert client.quota.used() == 2
    assert response.extensions["quota"].attempts == 1
    assert response.history[0].extensions["quota"].attempts == 1


def test_a_redirect_keeps_the_options_of_its_request(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """Each leg of a redirect costs what its request was said to cost."""
    client = colour.client(upstream.url, limit=SLOW, key=key, follow_redirects=True)
    client.get("/to:302:/there", extensions={"quota": {"cost": 2}})
    assert client.quota.used() == 4


def test_a_redirect_into_a_full_window_is_refused(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """The second leg waits for its permit like anybody."""
    client = colour.client(upstream.url, limit="1/min", key=key, follow_redirects=True, max_wait=0)
    with pytest.raises(QuotaExceeded) as caught:
        client.get("/to:302:/there")
    assert caught.value.request.url.path == "/there"
    assert len(upstream.received) == 1


def test_another_origin_draws_nothing(colour: Colour, key: str, upstream: ScriptedUpstream) -> None:
    """A request to another origin than base_url's, redirected or not, is none of our business."""
    with ScriptedUpstream(lambda received: Answer(429, (("retry-after", "9"),))) as elsewhere:
        client = colour.client(
            upstream.url, limit="1/min", key=key, max_wait=0, follow_redirects=True
        )
        response = client.get(f"/to:307:{elsewhere.url}/there")
        assert response.status_code == 429
        assert "quota" not in response.extensions
        assert client.get(f"{elsewhere.url}/again").status_code == 429
        assert client.quota.used() == 1
        assert client.quota.peek().hold is None
        assert len(elsewhere.received) == 2


def test_without_base_url_a_redirect_draws_on_its_own_origin(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """Without base_url each leg draws on the quota of where it goes."""
    with ScriptedUpstream(lambda received: Answer()) as elsewhere:
        client = colour.client(limit=SLOW, follow_redirects=True)
        client.get(f"{upstream.url}/to:302:{elsewhere.url}/there")
        assert client.quota.used(key=upstream.url) == 1
        assert client.quota.used(key=elsewhere.url) == 1


def test_each_auth_round_takes_a_permit(colour: Colour, key: str) -> None:
    """Digest authentication asks twice, and both are sent."""

    def answers(received: Received) -> Answer:
        if received.header("authorization"):
            return Answer()
        challenge = 'Digest realm="r", nonce="n", qop="auth", algorithm=MD5'
        return Answer(401, (("www-authenticate", challenge),))

    with ScriptedUpstream(answers) as upstream:
        client = colour.client(
            upstream.url, limit=SLOW, key=key, auth=httpx.DigestAuth("me", "secret")
        )
        assert client.get("/").status_code == 200
        assert len(upstream.received) == 2
        assert client.quota.used() == 2


# Close


def test_close_is_forwarded_once(colour: Colour, key: str) -> None:
    """Closing the client, twice even, closes each transport once."""
    main, mounted = Recording(), Recording()
    client = colour.client(
        limit=SLOW,
        key=key,
        transport=main,
        mounts={"http://a.test": mounted, "http://b.test": None},
    )
    client.close()
    client.close()
    assert main.calls == mounted.calls == ["close"]
    with pytest.raises(RuntimeError, match="closed"):
        client.get("http://a.test")


def test_with_is_forwarded_once(colour: Colour, key: str) -> None:
    """`with` enters and leaves each transport once, and the quota is closed."""
    main, mounted = Recording(), Recording()
    client = colour.client(
        "http://a.test", limit=SLOW, key=key, transport=main, mounts={"http://a.test": mounted}
    )
    client.inside(lambda: None)
    assert main.calls == mounted.calls == ["enter", "exit"]
    client.close()
    assert main.calls == mounted.calls == ["enter", "exit"]
    with pytest.raises(RuntimeError, match="closed"):
        client.quota.acquire()


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_close_is_forwarded_once_through_layers(colour: Colour, key: str, layers: int) -> None:
    """A transport inside a transport inside a client is closed once, entered and left once."""

    def wrapped(inner: Any) -> Any:
        for number in range(layers):
            inner = colour.transport(inner, limit=SLOW, key=f"{key}-{number}")
        return inner

    closed, left = Recording(), Recording()
    client = colour.plain_client(transport=wrapped(closed))
    assert client.get("http://a.test").status_code == 200
    client.close()
    assert closed.calls == ["close"]
    colour.plain_client(transport=wrapped(left)).inside()
    assert left.calls == ["enter", "exit"]


def test_a_closed_transport_has_closed_its_quota(colour: Colour, key: str) -> None:
    """Closing a QuotaTransport closes the quota that it made."""
    transport = colour.transport(Recording(), limit=SLOW, key=key)
    client = colour.plain_client(transport=transport)
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        colour.call(transport.quota.acquire)


def test_a_transport_that_fails_to_close_does_not_keep_the_quota_open(
    colour: Colour, key: str
) -> None:
    """When the inner close raises, its error is seen and the quota is closed all the same."""

    class Stubborn(Recording):
        def close(self) -> None:
            raise OSError("stubborn")

        async def aclose(self) -> None:
            raise OSError("stubborn")

    client = colour.client(limit=SLOW, key=key, transport=Stubborn())
    with pytest.raises(OSError, match="stubborn"):
        client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.quota.acquire()


def test_layers_each_take_their_permit(colour: Colour, key: str) -> None:
    """Transports can be composed: one for the tenant around one for all."""
    inner = colour.transport(Recording(), limit="10/min", key=f"{key}-all")
    outer = colour.transport(inner, limit="2/min", key=f"{key}-tenant", max_wait=0)
    client = colour.plain_client(transport=outer)
    client.get("http://a.test")
    client.get("http://a.test")
    with pytest.raises(QuotaExceeded):
        client.get("http://a.test")
    assert colour.call(inner.quota.peek).remaining == 8


# What a request and a response bring along


def test_a_response_tells_of_its_permit(colour: Colour, key: str, redis: str | None) -> None:
    """response.extensions["quota"] is a Decision, beside what httpx puts there."""
    with ScriptedUpstream(lambda received: Answer()) as upstream:
        client = colour.client(upstream.url, limit="5/min; 50/h", key=key, redis=redis)
        response = client.get("/", extensions={"quota": {"cost": 2}})
        decision = response.extensions["quota"]
        assert isinstance(decision, Decision)
        assert decision.remaining == 3
        assert decision.attempts == 1
        assert 0 <= decision.waited < 0.5
        assert decision.source == ("store" if redis else "local")
        assert decision.hold is None
        assert response.extensions["http_version"] == b"HTTP/1.1"


def test_streaming(colour: Colour, key: str, upstream: ScriptedUpstream) -> None:
    """client.stream goes through the quota and its body arrives."""
    client = colour.client(upstream.url, limit="1/min", key=key, max_wait=0)
    response, body = client.stream("GET", "/streamed")
    assert body == b"/streamed"
    assert response.extensions["quota"].remaining == 0
    with pytest.raises(QuotaExceeded):
        client.stream("GET", "/streamed")


def test_the_callers_request_is_not_touched(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """Request.extensions come back as they were, and nothing of ours travels on a redirect."""
    client = colour.client(upstream.url, limit=SLOW, key=key, follow_redirects=True)
    mine = {"quota": {"cost": 1}, "mine": object()}
    request = client.inner.build_request("GET", "/to:302:/there", extensions=mine)
    before = dict(request.extensions)
    response = colour.call(client.inner.send, request)
    assert request.extensions == before
    assert response.history[0].request is request
    assert "trace" not in response.request.extensions
    assert response.request.extensions["quota"] == {"cost": 1}
    assert mine.keys() == {"quota", "mine"}


def test_the_inner_transport_sees_the_request(colour: Colour, key: str) -> None:
    """Method, URL, headers, body and the user's other extensions arrive; "quota" does not."""
    inner = Recording()
    client = colour.client("http://a.test", limit=SLOW, key=key, transport=inner)
    client.request(
        "POST", "/x?y=1", content=b"body", headers={"x-a": "1"},
        extensions={"quota": {"cost": 1}, "sni_hostname": "b.test"},
    )  # fmt: skip
    (request,) = inner.requests
    assert (request.method, str(request.url)) == ("POST", "http://a.test/x?y=1")
    assert request.headers["x-a"] == "1"
    assert request.read() == b"body"
    assert request.extensions["sni_hostname"] == "b.test"
    assert "quota" not in request.extensions


def test_event_hooks_still_work(colour: Colour, key: str, upstream: ScriptedUpstream) -> None:
    """Hooks see every request and response, and the response's Decision."""
    seen: list[Any] = []

    def on_request(request: httpx.Request) -> None:
        seen.append(request.url.path)

    def on_response(response: httpx.Response) -> None:
        seen.append(response.extensions["quota"].remaining)

    async def on_request_async(request: httpx.Request) -> None:
        on_request(request)

    async def on_response_async(response: httpx.Response) -> None:
        on_response(response)

    sync = isinstance(colour, Threads)
    hooks: dict[str, list[Any]] = {
        "request": [on_request if sync else on_request_async],
        "response": [on_response if sync else on_response_async],
    }
    colour.client(upstream.url, limit=SLOW, key=key, event_hooks=hooks).get("/a")
    assert seen == ["/a", 4]


def test_a_trace_of_the_user_gets_every_event(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """The same events arrive at a user's trace as without us, in the same order."""
    ours: list[str] = []
    plain: list[str] = []
    client = colour.client(upstream.url, limit=SLOW, key=key)
    client.get("/", extensions={"trace": colour.trace(ours)})
    colour.plain_client().get(upstream.url, extensions={"trace": colour.trace(plain)})
    assert ours == plain
    assert "http11.send_request_headers.started" in ours


def test_an_error_in_a_trace_of_the_user_is_the_users(
    colour: Colour, key: str, upstream: ScriptedUpstream
) -> None:
    """What a user's trace raises comes out, and the permit of a request not sent is given back."""

    def trace(name: str, info: Any) -> None:
        if name == "http11.send_request_headers.started":
            raise ZeroDivisionError

    async def trace_async(name: str, info: Any) -> None:
        trace(name, info)

    client = colour.client(upstream.url, limit=SLOW, key=key)
    with pytest.raises(ZeroDivisionError):
        client.get(
            "/",
            extensions={"trace": trace if isinstance(colour, Threads) else trace_async},
        )
    assert client.quota.used() == 0
    assert client.get("/").status_code == 200


def test_transports_without_trace_events(colour: Colour, key: str) -> None:
    """WSGI, ASGI and mock transports work, draw permits and tell of them."""

    def wsgi(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("content-type", "text/plain")])
        return [environ["PATH_INFO"].encode()]

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    own: Any = (
        httpx.WSGITransport(app=wsgi)
        if isinstance(colour, Threads)
        else httpx.ASGITransport(app=asgi)
    )
    mock = httpx.MockTransport(lambda request: httpx.Response(200, text=request.url.path))
    for number, inner in enumerate((own, mock)):
        client = colour.client(
            "http://a.test", limit="2/min", key=f"{key}-{number}", max_wait=0, transport=inner
        )
        assert client.get("/a").text == "/a"
        assert client.get("/b").extensions["quota"].remaining == 0
        with pytest.raises(QuotaExceeded):
            client.get("/c")


def test_a_generator_body_survives_a_redirect_as_it_does_in_httpx(colour: Colour, key: str) -> None:
    """A generator's body that a mock transport has read goes along on a redirect, as in httpx."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/a":
            return httpx.Response(307, headers={"location": "/b"})
        return httpx.Response(200, content=request.content)

    mock = httpx.MockTransport(answer)
    plain = colour.plain_client(base_url="http://a.test", transport=mock, follow_redirects=True)
    client = colour.client(
        "http://a.test", limit=SLOW, key=key, transport=mock, follow_redirects=True
    )
    assert plain.request("POST", "/a", content=colour.body(b"x", b"y")).content == b"xy"
    assert client.request("POST", "/a", content=colour.body(b"x", b"y")).content == b"xy"


# Errors


def test_the_error_tree(colour: Colour, key: str) -> None:
    """Our errors are httpx's TransportErrors, and carry the request that was not sent."""
    assert issubclass(QuotaError, httpx.TransportError)
    assert issubclass(QuotaExceeded, QuotaError)
    assert issubclass(StoreUnavailable, QuotaError)
    client = colour.client(
        "http://a.test", limit="1/min", key=key, max_wait=0, transport=Recording()
    )
    client.get("/")
    with pytest.raises(httpx.TransportError) as caught:
        client.get("/second")
    assert isinstance(caught.value, QuotaExceeded)
    assert caught.value.request.url.path == "/second"
    assert caught.value.limit == Limit(1, 60)


def test_rejecting_without_redis(colour: Colour, key: str) -> None:
    """With on_outage="reject" and nothing at Redis's port, StoreUnavailable comes at once."""
    client = colour.client(
        "http://a.test", limit=SLOW, key=key, redis="redis://127.0.0.1:1/0", on_outage="reject",
        transport=Recording(),
    )  # fmt: skip
    with pytest.raises(StoreUnavailable) as caught:
        client.get("/")
    assert caught.value.request.url.path == "/"
    assert "127.0.0.1:1" in str(caught.value)


def test_errors_can_be_pickled_and_copied(colour: Colour, key: str) -> None:
    """An error that crosses a process tells the same there, with and without a request."""
    client = colour.client(
        "http://a.test", limit="1/min", key=key, max_wait=0, transport=Recording()
    )
    client.get("/")
    errors: list[QuotaExceeded] = []
    for fail in (lambda: client.get("/"), client.quota.acquire):
        with pytest.raises(QuotaExceeded) as caught:
            fail()
        errors.append(caught.value)
    for error in errors:
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(twin) is QuotaExceeded
            assert str(twin) == str(error)
            assert (twin.retry_after, twin.limit, twin.source) == (
                error.retry_after,
                error.limit,
                error.source,
            )
    assert pickle.loads(pickle.dumps(errors[0])).request.url.host == "a.test"
    unavailable = pickle.loads(pickle.dumps(StoreUnavailable("away")))
    assert str(unavailable) == "away"
