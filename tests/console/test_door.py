"""The console's door, as bytes: whom it answers, with what, and what each answer forbids."""

from __future__ import annotations

import msgspec
import pytest

from dragoman import Service
from dragoman.channel import Admitted, Denied, Guard, Handshake, Identity, Options
from dragoman.console import Watching
from dragoman.console.endpoint import LIMITS, STOP, VIEW, Console, new_secret
from dragoman.jsonrpc.errors import LocalError
from dragoman.web import CONTENT_SECURITY_POLICY

from .ends import Ends, listening, with_console

EVERY_ANSWER = {
    "content-security-policy": [CONTENT_SECURITY_POLICY],
    "cache-control": ["no-store"],
    "x-content-type-options": ["nosniff"],
    "referrer-policy": ["no-referrer"],
    "cross-origin-resource-policy": ["same-origin"],
    "cross-origin-opener-policy": ["same-origin"],
}
PATHS = ("now", "timeline", "methods", "errors", "connections", "services", "catalog", "machine")
OWN = "http://127.0.0.1:{port}"


def check_headers(headers: dict[str, list[str]]) -> None:
    assert {name: headers.get(name) for name in EVERY_ANSWER} == EVERY_ANSWER
    assert "set-cookie" not in headers
    assert not [name for name in headers if name.startswith("access-control-")]


def test_what_a_page_may_do() -> None:
    assert CONTENT_SECURITY_POLICY == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )


# name of a header (or "method", "target", "body"), its value, the status; {port} is the console's
CASES: dict[str, tuple[dict[str, str | None], int]] = {
    "a page of its own": ({"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, 200),
    "typed by a user": ({"Sec-Fetch-Site": "none"}, 200),
    "no browser": ({}, 200),
    "localhost": ({"Host": "localhost:{port}"}, 200),
    "localhost and its page": ({"Host": "localhost:{port}", "Origin": "http://localhost:{port}"}, 200),
    "IPv6": ({"Host": "[::1]:{port}"}, 200),
    "upper case": ({"Host": "LOCALHOST:{port}"}, 200),
    "no port": ({"Host": "127.0.0.1"}, 200),
    "rebound": ({"Host": "evil.example:{port}"}, 421),
    "almost loopback": ({"Host": "localhost.evil.example:{port}"}, 421),
    "another address": ({"Host": "192.168.1.7:{port}"}, 421),
    "two hosts": ({"Host": "127.0.0.1, evil.example"}, 400),
    "empty host": ({"Host": ""}, 400),
    "no host": ({"Host": None}, 400),
    "another page": ({"Origin": "https://evil.example"}, 403),
    "another page here": ({"Origin": "http://127.0.0.1:1"}, 403),
    "another name of here": ({"Origin": "http://localhost:{port}"}, 403),
    "another scheme": ({"Origin": "https://127.0.0.1:{port}"}, 403),
    "a page without an origin": ({"Origin": "null"}, 403),
    "empty origin": ({"Origin": ""}, 403),
    "cross-site": ({"Sec-Fetch-Site": "cross-site"}, 403),
    "same-site": ({"Sec-Fetch-Site": "same-site"}, 403),
    "its origin, cross-site": ({"Origin": OWN, "Sec-Fetch-Site": "cross-site"}, 403),
    "no secret": ({"Authorization": None}, 401),
    "empty secret": ({"Authorization": "Bearer "}, 401),
    "wrong secret": ({"Authorization": "Bearer 0123456789abcdef"}, 401),
    "secret as Basic": ({"Authorization": "Basic {secret}"}, 401),
    "secret and more": ({"Authorization": "Bearer {secret}x"}, 401),
    "secret in part": ({"Authorization": "Bearer {half}"}, 401),
    "secret twice": ({"Authorization": "Bearer {secret}, Bearer {secret}"}, 401),
    "secret as a cookie": ({"Authorization": None, "Cookie": "secret={secret}"}, 401),
    "beyond ASCII": ({"Authorization": "Bearer \xff\xfe"}, 401),
}


def filled(ends: Ends, value: str | None) -> str | None:
    names = {"port": f"{ends.port}", "secret": ends.secret, "half": ends.secret[:20]}
    return None if value is None else value.format(**names)


@pytest.mark.parametrize("target", ["/api/now", "/api/stop", "/api/feed"])
async def test_whom_it_answers(target: str) -> None:
    method, body = ("POST", b'{"ids":[]}') if target == "/api/stop" else ("GET", b"")
    async with with_console(Service("s")) as ends:
        for name, (headers, status) in CASES.items():
            given = {one: filled(ends, value) for one, value in headers.items()}
            answer = await ends.send(ends.request(target, method, body, given))
            assert answer.status == status, name
            check_headers(answer.headers)
            if status == 401:
                assert answer.headers["www-authenticate"] == ['Bearer realm="dragoman console"']
            assert ends.secret.encode() not in answer.body


@pytest.mark.parametrize("target", ["/api/stop", "/api/end"])
async def test_a_post_is_json(target: str) -> None:
    types = {
        "application/json": 200,
        "application/json; charset=utf-8": 200,
        "Application/JSON": 200,
        "text/plain": 415,
        "text/plain; application/json": 415,
        "application/json; charset=latin-1": 415,
        "application/x-www-form-urlencoded": 415,
        "multipart/form-data; boundary=x": 415,
        "application/jsonp": 415,
        None: 415,
    }
    async with with_console(Service("s")) as ends:
        for kind, status in types.items():
            answer = await ends.send(ends.request(target, "POST", b'{"ids":[]}', {"Content-Type": kind}))
            assert answer.status == status, kind
            check_headers(answer.headers)


async def test_methods() -> None:
    async with with_console(Service("s")) as ends:
        for path in PATHS:
            assert (await ends.send(ends.request(f"/api/{path}"))).status == 200
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                answer = await ends.send(ends.request(f"/api/{path}", method, b"{}"))
                assert (answer.status, answer.headers["allow"]) == (405, ["GET"]), (path, method)
                check_headers(answer.headers)
        for path in ("stop", "end"):
            answer = await ends.send(ends.request(f"/api/{path}"))
            assert (answer.status, answer.headers["allow"]) == (405, ["POST"])
        answer = await ends.send(
            ends.request(
                "/api/now",
                "OPTIONS",
                headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"},
            )
        )
        assert answer.status in (403, 405)
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert (await ends.send(ends.request("/api/unknown"))).status == 404
        assert (await ends.send(ends.request("/", "POST", b'{"jsonrpc":"2.0","method":"x","id":1}'))).status == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"ids":"1"}',
        b'{"ids":[1]}',
        b'{"ids":[],"more":1}',
        b'{"ids":["\xff"]}',
        b"[" * 5000,
        msgspec.json.encode({"ids": [f"{one}" for one in range(1001)]}),
    ],
)
async def test_bodies_that_are_no_order(body: bytes) -> None:
    async with with_console(Service("s")) as ends:
        answer = await ends.send(ends.request("/api/stop", "POST", body))
        assert answer.status == 400
        assert "error" in answer.json
        check_headers(answer.headers)


async def test_a_long_body_is_refused() -> None:
    async with with_console(Service("s")) as ends:
        body = b'{"ids":["' + b"1" * LIMITS.message_size + b'"]}'
        assert (await ends.send(ends.request("/api/stop", "POST", body))).status == 413


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("timeline?q=what:ever", "what is nothing that a filter knows"),
        ("timeline?q=ms:fast", "needs a number"),
        ("timeline?q=method:", "nothing after the colon"),
        ("timeline?q=" + "x" * 501, "at most 500 characters"),
        ("timeline?q=" + "+".join("x" * 21), "at most 20 words"),
        ("timeline?limit=0", "limit is a whole number from 1 to 1000"),
        ("timeline?limit=1001", "limit"),
        ("timeline?limit=" + "9" * 5000, "limit"),
        ("timeline?before=now", "before is a time"),
        ("methods?seconds=901", "seconds"),
        ("methods?step=-1", "step"),
        ("now?" + "&".join("a=1" for _ in range(30)), "at most 20 parameters"),
        ("feed?q=ms:fast", "needs a number"),
    ],
)
async def test_queries_that_say_nothing(target: str, words: str) -> None:
    async with with_console(Service("s")) as ends:
        answer = await ends.send(ends.request(f"/api/{target}"))
        assert answer.status == 400
        assert words in answer.json["error"]


async def test_files_of_the_page_need_no_secret_and_no_foreign_page_gets_them() -> None:
    async with with_console(Service("s")) as ends:
        answer = await ends.send(ends.request("/", headers={"Authorization": None}))
        assert (answer.status, answer.headers["content-type"]) == (200, ["text/html; charset=utf-8"])
        check_headers(answer.headers | {"cache-control": ["no-store"]})  # it has no secret, and is asked for anew
        assert answer.headers["cache-control"] == ["no-cache"]
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert (await ends.send(ends.request("/", headers=headers))).status in (403, 404, 421)
        assert ends.console.page_url("http://127.0.0.1:9092") == f"http://127.0.0.1:9092/#{ends.secret}"


def test_a_secret_has_256_bits_and_is_new() -> None:
    assert len(new_secret()) >= 43  # six bits each
    assert new_secret() != new_secret()


def test_wrong_options() -> None:
    for secret in ("", "short", "x" * 15, "\xff" * 32, 7):
        with pytest.raises(LocalError, match="secret"):
            Console(Watching().source(dict), secret=secret)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="source"):
        Console(Service("s"), secret=None)  # type: ignore[arg-type]


# -- behind a guard


def guard_of(*scopes: str) -> Guard:
    async def guard(handshake: Handshake) -> Admitted | Denied:
        if not any(name == b"authorization" for name, _ in handshake.headers):
            return Admitted()
        return Admitted(identity=Identity(subject="ada", scopes=frozenset(scopes)))

    return guard


async def test_scopes_where_callers_have_an_identity() -> None:
    watching = Watching()
    console = Console(watching.source(dict), secret=None)
    for scopes, look, stop in (((), 403, 403), ((VIEW,), 200, 403), ((STOP,), 403, 200), ((VIEW, STOP), 200, 200)):
        async with listening(console, Options(limits=LIMITS, guard=guard_of(*scopes))) as port:
            ends = Ends(None, console, watching.recorder, port, "token-of-ada")  # type: ignore[arg-type]
            answer = await ends.send(ends.request("/api/services"))
            assert answer.status == look
            if look == 200:
                assert answer.json["may"] == [one for one in (VIEW, STOP) if one in scopes]
            else:
                assert answer.headers["www-authenticate"] == [f'Bearer error="insufficient_scope", scope="{VIEW}"']
            assert (await ends.send(ends.request("/api/stop", "POST", b'{"ids":[]}'))).status == stop
            nobody = await ends.send(ends.request("/api/now", headers={"Authorization": None}))
            assert nobody.status == 401
