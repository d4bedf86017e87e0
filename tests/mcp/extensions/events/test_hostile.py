"""Receivers and subscribers that mean harm: one row each."""

from __future__ import annotations

import asyncio
import base64
import gc
import gzip
import json
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme
from msgspec import UNSET, Struct

from dragoman.channel import Options
from dragoman.jsonrpc.errors import LocalError, RpcError
from dragoman.mcp import Client
from dragoman.mcp.extensions.events import EventLimits, Events
from dragoman.mcp.extensions.events import model as m
from dragoman.mcp.extensions.events.delivery import Deliverer
from dragoman.mcp.extensions.events.sender import WebhookSender
from tests.mcp.http_wire import Place, body, meta, named_by, served, standard

from .receiving import (
    SECRET,
    MovedClock,
    OrderShipped,
    Posted,
    Receiver,
    echo,
    following,
    receiving,
    reply,
    settle,
    shop,
    subscribe,
    subscribe_params,
)

REFUSED = "connection_refused"


async def reason_of(client: Client, receiver: Receiver | str, **more: Any) -> Any:
    """Why a subscription is refused: the reason of -32015, or the code of another error."""
    with pytest.raises(RpcError) as caught:
        await subscribe(client, receiver, **more)
    if caught.value.code != -32015:
        return caught.value.code
    assert caught.value.data.keys() == {"reason"}
    return caught.value.data["reason"]


# -- where nobody may be posted to

ADDRESSES = [
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "localhost",
    "LOCALHOST",
    "%31%32%37.0.0.1",
    "%6cocalhost",
    "10.0.0.1",
    "10.255.255.255",
    "167772161",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "3232235521",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "0xa9fea9fe",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::10.0.0.1]",
    "[2002:7f00:1::]",
    "[2002:a00:1::]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fd12:3456::1]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[2606:4700::5efe:7f00:1]",
]


@pytest.mark.parametrize("address", ADDRESSES)
async def test_an_address_inside_is_not_posted_to(address: str) -> None:
    """In every spelling that the resolver reads as an address; nothing is sent to the port where a receiver listens."""
    app, events = shop(allow_private=())
    async with receiving() as receiver, following(app) as client:
        found = await reason_of(client, f"https://{address}:{receiver.port}/")
        assert found in (REFUSED, -32602)
        assert receiver.posted == []
        assert events._box().count() == 0


@pytest.mark.parametrize("address", ["127.0.0.2", "127.1.0.1", "[::ffff:127.0.0.2]", "10.0.0.1", "[::1]"])
async def test_an_allowed_network_allows_no_other(address: str) -> None:
    app, _ = shop(allow_private=["127.0.0.1/32"])
    async with following(app) as client:
        assert await reason_of(client, f"http://{address}:9/") == REFUSED


async def test_an_allowed_address_is_allowed_in_its_other_spelling() -> None:
    app, _ = shop()
    async with receiving() as receiver, following(app) as client:
        assert (await subscribe(client, f"http://2130706433:{receiver.port}/")).id
        assert WebhookSender(EventLimits(), allow_private=["127.0.0.1/32"]).allows("::ffff:127.0.0.1", "http")


async def test_plain_http_is_for_allowed_networks_alone() -> None:
    sender = WebhookSender(EventLimits(), allow_private=["127.0.0.1/32"])
    assert sender.allows("93.184.215.14", "https")
    assert not sender.allows("93.184.215.14", "http")
    app, _ = shop(allow_private=())
    async with following(app) as client:
        assert await reason_of(client, "http://93.184.215.14/") == -32602


@pytest.mark.parametrize("network", ["loopback", "127.0.0.1/8", "", "300.0.0.0/8"])
def test_what_is_no_network_cannot_be_allowed(network: str) -> None:
    with pytest.raises(LocalError, match="allow_private"):
        Events(allow_private=[network])


URLS = [
    "",
    "x",
    "hooks.example.com/x",
    "//hooks.example.com/x",
    "ftp://hooks.example.com/",
    "ws://hooks.example.com/",
    "tcp://hooks.example.com:80",
    "unix:/tmp/x",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "data:,x",
    "https:",
    "https://",
    "https:///x",
    "https://user@hooks.example.com/",
    "https://user:password@hooks.example.com/",
    "https://@hooks.example.com/",
    "https://hooks.example.com:0/",
    "https://hooks.example.com:99999/",
    "https://hooks.example.com:x/",
    "https://hooks.example.com/#x",
    "https://hooks.example.com/a b",
    "https://hooks.example.com/\r\nHost: other",
    "https://hooks.example.com/\u0000",
    "https://[::1",
    "https://[x]/",
    "https://hooks.example.com/" + "x" * 2_048,
]


@pytest.mark.parametrize("url", URLS)
async def test_what_is_no_url_of_a_receiver(url: str) -> None:
    app, _ = shop(allow_private=())
    async with following(app) as client:
        assert await reason_of(client, url) == -32602


# -- names that change their address


class Names:
    """A resolver whose answers a test writes."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not found:
            raise socket.gaierror("no such name")
        return found


async def test_a_name_that_is_rebound_after_its_proof_is_not_posted_to() -> None:
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    app, events = shop(resolve=names)
    async with receiving() as receiver:
        inside = Receiver()
        server = await asyncio.start_server(inside._serve, "127.0.0.2", receiver.port)
        async with server, following(app) as client:
            await subscribe(client, f"http://hooks.example.com:{receiver.port}/")
            await events.emit(OrderShipped("1"))
            await settle(lambda: events._deliveries.failed == 1)
            assert names.asked == [("hooks.example.com", receiver.port)] * 2  # once for each attempt
            assert len(receiver.posted) == 1
            assert inside.posted == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1", "127.0.0.2"],
        ["127.0.0.2", "127.0.0.1"],
        ["127.0.0.1", "::1"],
        ["127.0.0.1", "169.254.169.254"],
        [],
    ],
)
async def test_a_name_of_which_one_address_is_forbidden_is_not_posted_to(addresses: list[str]) -> None:
    app, _ = shop(resolve=Names(addresses))
    async with receiving() as receiver, following(app) as client:
        assert await reason_of(client, f"http://hooks.example.com:{receiver.port}/") == REFUSED
        assert receiver.posted == []


async def test_the_name_is_what_the_receiver_is_asked_by() -> None:
    app, _ = shop(resolve=Names(["127.0.0.1"]))
    async with receiving() as receiver, following(app) as client:
        await subscribe(client, f"http://hooks.example.com:{receiver.port}/a?b=c&b=d")
        assert receiver.posted[0].headers["host"] == f"hooks.example.com:{receiver.port}"
        assert receiver.posted[0].path == "/a?b=c&b=d"


# -- receivers that do not prove themselves


def answering(raw: Callable[[Posted], bytes | None] | bytes) -> Callable[[Posted], bytes | None]:
    return raw if callable(raw) else lambda posted: raw


def challenge(posted: Posted, change: Callable[[str], Any] = lambda text: text) -> bytes:
    return json.dumps({"challenge": change(posted.message["challenge"])}).encode()


ENDLESS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"ffff\r\n" + b"x" * 65_535 + b"\r\n" * 1
BOMB = gzip.compress(b" " * 5_000_000)
ANSWERS: dict[str, tuple[Any, str]] = {
    "another challenge": (reply(200, b'{"challenge":"x"}'), "challenge_failed"),
    "an empty challenge": (reply(200, b'{"challenge":""}'), "challenge_failed"),
    "its beginning": (lambda one: reply(200, challenge(one, lambda text: text[:-1])), "challenge_failed"),
    "more than it": (lambda one: reply(200, challenge(one, lambda text: text + "x")), "challenge_failed"),
    "in other letters": (lambda one: reply(200, challenge(one, str.swapcase)), "challenge_failed"),
    "in a list": (lambda one: reply(200, challenge(one, lambda text: [text])), "challenge_failed"),
    "as text alone": (lambda one: reply(200, one.message["challenge"].encode()), "challenge_failed"),
    "the request itself": (lambda one: reply(200, b"[" + one.body + b"]"), "challenge_failed"),
    "nothing": (reply(200), "challenge_failed"),
    "204": (reply(204), "challenge_failed"),
    "no JSON": (reply(200, b"ok"), "challenge_failed"),
    "null": (reply(200, b"null"), "challenge_failed"),
    "a number": (reply(200, b'{"challenge":1}'), "challenge_failed"),
    "half a surrogate pair": (reply(200, b'{"challenge":"\\ud800"}'), "challenge_failed"),
    "no UTF-8": (reply(200, b'{"challenge":"\xff"}'), "challenge_failed"),
    "deep JSON": (reply(200, b"[" * 10_000), "challenge_failed"),
    "400": (lambda one: reply(400, challenge(one)), "http_4xx"),
    "401": (reply(401), "http_4xx"),
    "404": (reply(404), "http_4xx"),
    "429": (reply(429), "http_4xx"),
    "500": (lambda one: reply(500, challenge(one)), "http_5xx"),
    "503": (reply(503), "http_5xx"),
    "999": (reply(999), "http_5xx"),
    "a huge body": (lambda one: reply(200, challenge(one) + b" " * 20_000), "challenge_failed"),
    "a body said to be huge": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{", "challenge_failed"),
    "a compressed bomb": (reply(200, BOMB, "Content-Encoding: gzip"), "challenge_failed"),
    "an endless body": (ENDLESS, "challenge_failed"),
    "a body that breaks off": (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "timeout"),
    "no answer": (lambda one: None, "timeout"),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-", "timeout"),
    "an interim answer alone": (b"HTTP/1.1 100 Continue\r\n\r\n", "timeout"),
    "a huge head": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", "http_5xx"),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", "http_5xx"),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "http_5xx"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_receiver_that_does_not_prove_itself(name: str) -> None:
    raw, expected = ANSWERS[name]
    app, events = shop(limits=EventLimits(answer_time=0.3 if expected == "timeout" else 10.0))
    async with receiving(answering(raw)) as receiver, following(app) as client:
        assert await reason_of(client, receiver) == expected
        assert len(receiver.posted) == 1
        assert events._box().count() == 0
        await events.emit(OrderShipped("1"))
        await asyncio.sleep(0.02)
        assert len(receiver.posted) == 1  # no event for who has not proved itself
        receiver.behave = echo
        assert (await subscribe(client, receiver)).id  # and the next time it may


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    app, _ = shop()
    async with receiving() as other, following(app) as client:
        away = reply(status, b"", f"Location: {other.url}")
        async with receiving(answering(away)) as receiver:
            assert await reason_of(client, receiver) == "http_4xx"
            assert other.posted == []


async def test_a_challenge_is_good_once() -> None:
    app, _ = shop()
    before: list[bytes] = []

    def replay(posted: Posted) -> bytes:
        before.append(challenge(posted))
        return reply(200, before[0])

    async with receiving(replay) as receiver, following(app) as client:
        assert (await subscribe(client, receiver)).id
        assert await reason_of(client, f"{receiver.url}/another") == "challenge_failed"
        assert len({one.message["challenge"] for one in receiver.posted}) == 2


async def test_a_closed_port_and_a_closed_connection() -> None:
    app, _ = shop()
    async with receiving() as receiver, following(app) as client:
        url = receiver.url

        def fail(posted: Posted) -> bytes:
            raise ConnectionResetError

        receiver.behave = fail
        assert await reason_of(client, receiver) == REFUSED
    async with following(app) as client:
        assert await reason_of(client, url) == REFUSED


# -- TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


async def over_tls(names: list[str], authority: trustme.CA, *, trusted: bool) -> Any:
    """What comes of subscribing a receiver at https://hooks.example.com, with a certificate for these names."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(server)
    client_tls = ssl.create_default_context()
    if trusted:
        authority.configure_trust(client_tls)
    receiver = Receiver()
    listening = await asyncio.start_server(receiver._serve, "127.0.0.1", 0, ssl=server)
    port = listening.sockets[0].getsockname()[1]
    app, events = shop(resolve=Names(["127.0.0.1"]), tls=client_tls)
    async with listening, following(app) as client:
        try:
            await subscribe(client, f"https://hooks.example.com:{port}/")
        except RpcError as error:
            return error.data
        await events.emit(OrderShipped("1"))
        await receiver.have(1)
        return receiver.posted[0].headers["host"].partition(":")[0]


async def test_a_certificate_is_checked_for_the_name(authority: trustme.CA) -> None:
    assert await over_tls(["hooks.example.com"], authority, trusted=True) == "hooks.example.com"
    assert await over_tls(["other.example.com", "127.0.0.1"], authority, trusted=True) == {"reason": "tls_error"}
    assert await over_tls(["hooks.example.com"], authority, trusted=False) == {"reason": "tls_error"}


async def test_https_to_what_speaks_none() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(reply(400, b"", "Connection: close"))
        writer.close()

    app, _ = shop()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server, following(app) as client:
        assert await reason_of(client, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/") == "tls_error"


# -- receivers that are slow, or answer too much, once they are subscribed

ACCEPTED = {
    "an endless body": ENDLESS,
    "a body that breaks off": b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
    "a huge body": reply(200, b"x" * 100_000),
    "a compressed bomb": reply(200, BOMB, "Content-Encoding: gzip"),
    "two answers": reply(200) * 2,
    "an interim answer": b"HTTP/1.1 100 Continue\r\n\r\n" + reply(200),
    "the end of the connection": b"HTTP/1.0 200 OK\r\n\r\nok",
    "a wish to close": reply(200, b"", "Connection: close"),
}


@pytest.mark.parametrize("name", ACCEPTED)
async def test_what_is_accepted_is_not_sent_again_whatever_follows(name: str) -> None:
    app, events = shop(clock=(clock := MovedClock()))
    async with receiving() as receiver, following(app) as client:
        await subscribe(client, receiver)
        receiver.behave = answering(ACCEPTED[name])
        ids = [await events.emit(OrderShipped(str(number))) for number in range(2)]
        await receiver.have(2)
        await settle(lambda: events._deliveries.delivered == 2)
        clock.move(3_000)
        await asyncio.sleep(0.02)
        assert receiver.ids == ids


@pytest.mark.parametrize("status", [300, 301, 304, 400, 401, 404, 408, 429, 500, 502, 503, 599])
async def test_what_is_not_accepted_is_sent_again(status: int) -> None:
    app, events = shop(clock=(clock := MovedClock()))
    async with receiving() as receiver, following(app) as client:
        await subscribe(client, receiver)
        receiver.behave = answering(reply(status, b"", "Location: http://127.0.0.1:9/"))
        id = await events.emit(OrderShipped("1"))
        await settle(lambda: events._deliveries.failed == 1)
        receiver.behave = echo
        clock.move(40)
        await receiver.have(2)
        assert receiver.ids == [id, id]


async def test_a_receiver_that_never_answers_is_given_up_in_time() -> None:
    app, events = shop(limits=EventLimits(answer_time=0.2))
    async with receiving() as receiver, following(app) as client:
        await subscribe(client, receiver)
        receiver.behave = lambda posted: None
        await events.emit(OrderShipped("1"))
        await settle(lambda: events._deliveries.failed == 1)
        await settle(lambda: receiver.open == 1)  # the connection is closed at our end


# -- subscribers


def encoded(size: int) -> str:
    return "whsec_" + base64.b64encode(b"x" * size).decode()


@pytest.mark.parametrize(
    "secret",
    [
        UNSET,
        "",
        "whsec_",
        "x",
        SECRET.removeprefix("whsec_"),
        SECRET.replace("whsec_", "WHSEC_"),
        "whsec_!!!" + SECRET[10:],
        "whsec_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        "whsec_ " + SECRET[6:],
        encoded(0),
        encoded(23),
        encoded(65),
        encoded(100_000),
        "whsec_" + "é" * 40,
    ],
)
async def test_what_is_no_secret(secret: Any) -> None:
    app, events = shop()
    async with receiving() as receiver, following(app) as client:
        with pytest.raises(RpcError) as caught:
            await client.request("events/subscribe", subscribe_params(receiver, secret))
        assert caught.value.code == -32602
        assert secret is UNSET or len(secret) < 10 or secret not in str(caught.value)
        assert receiver.posted == []
        assert events._box().count() == 0


@pytest.mark.parametrize("size", [24, 32, 64])
async def test_secrets_of_each_length(size: int) -> None:
    app, _ = shop()
    async with receiving() as receiver, following(app) as client:
        await subscribe(client, receiver, encoded(size))
        assert receiver.posted[0].is_signed_by(encoded(size))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "none"}, -32011),
        ({"name": "polled"}, -32014),
        ({"delivery": {"mode": "push", "url": "https://x.example/", "secret": SECRET}}, -32014),
        ({"delivery": {"mode": "", "url": "https://x.example/", "secret": SECRET}}, -32014),
        ({"delivery": {"mode": "webhook", "secret": SECRET}}, -32602),
        ({"delivery": None}, -32602),
        ({"delivery": {"mode": "webhook", "url": 1, "secret": SECRET}}, -32602),
        ({"arguments": {"none": 1}}, -32602),
        ({"arguments": {"carrier": {"$ne": ""}}}, -32602),
        ({"arguments": "carrier"}, -32602),
        ({"arguments": {"carrier": "x" * 20_000}}, -32602),
        ({"ttlMs": -1}, -32602),
        ({"ttlMs": "1"}, -32602),
        ({"ttlMs": 1.5}, -32602),
        ({"cursor": 5}, -32602),
    ],
)
async def test_what_a_subscription_cannot_be(change: dict[str, Any], code: int) -> None:
    app, events = shop()
    events.event("polled", modes=["poll"])(type("Polled", (Struct,), {"__annotations__": {"x": int}}))
    async with receiving() as receiver, following(app) as client:
        whole = {"name": "order_shipped", "delivery": {"mode": "webhook", "url": receiver.url, "secret": SECRET}}
        with pytest.raises(RpcError) as caught:
            await client.request_raw("events/subscribe", whole | change)
        assert caught.value.code == code
        assert receiver.posted == []


async def post_as(place: Place, who: str | None, method: str, params: dict[str, Any]) -> Any:
    """The result, or the error, of a call over HTTP of this user."""
    raw = body(method, params | {"_meta": meta(capabilities={"extensions": {m.NAME: {}}})})
    answer = await place.ask(raw, standard(method) | {"X-User": who})
    found = json.loads(answer.body)
    return found.get("result") or found["error"]


def as_params(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "order_shipped", "delivery": {"mode": "webhook", "url": url, "secret": SECRET}, **more}


async def test_webhooks_are_for_callers_that_are_known() -> None:
    app, _ = shop()
    async with receiving() as receiver, served(app, options=Options(guard=named_by(b"x-user"))) as place:
        for method in ("events/subscribe", "events/unsubscribe"):
            error = await post_as(place, None, method, as_params(receiver.url))
            assert (error["code"], error["data"]) == (-32012, {"error": "access_denied"})
        assert receiver.posted == []


async def test_a_caller_has_nothing_of_another() -> None:
    app, events = shop()
    async with receiving() as receiver, served(app, options=Options(guard=named_by(b"x-user"))) as place:
        ada = await post_as(place, "ada", "events/subscribe", as_params(receiver.url))
        bob = await post_as(place, "bob", "events/subscribe", as_params(receiver.url))
        assert ada["id"] != bob["id"]
        assert len(receiver.posted) == 2  # the proof to one is none to the other
        assert (await post_as(place, "eve", "events/unsubscribe", as_params(receiver.url)))["code"] == -32011
        assert "code" not in await post_as(place, "bob", "events/unsubscribe", as_params(receiver.url))
        await events.emit(OrderShipped("1"))
        [posted] = await receiver.have(1)
        assert posted.headers["x-mcp-subscription-id"] == ada["id"]


async def test_ten_thousand_subscriptions_of_one_caller() -> None:
    """They are refused at once, cost the receiver one challenge, and leave what it has as it is."""
    app, events = shop()
    async with receiving() as receiver, following(app) as client:
        for number in range(100):
            await subscribe(client, receiver, arguments={"carrier": str(number)})
        for number in range(100, 10_000):
            assert await reason_of(client, receiver, arguments={"carrier": str(number)}) == -32013
        assert len(receiver.posted) == 1
        assert events._box().count() == 100
        for _ in range(300):  # a storm of refreshes of what it has
            await subscribe(client, receiver, arguments={"carrier": "0"})
        assert len(receiver.posted) == 1
        await events.emit(OrderShipped("1", "99"))
        assert (await receiver.have(1))[0].message["data"]["order"] == "1"


async def test_the_clients_of_one_account_share() -> None:
    """One account has its share, with however many clients; another one has its own."""
    app, events = shop()
    async with receiving() as receiver, served(app, options=Options(guard=named_by(b"x-user"))) as place:

        async def attempt(who: str, number: int) -> Any:
            found = await post_as(
                place, who, "events/subscribe", as_params(receiver.url, arguments={"carrier": str(number)})
            )
            return found.get("code"), found.get("data")

        first = await attempt('["i", "ada", "c0"]', 0)
        assert first == (None, None)
        found = [await attempt(f'["i", "ada", "c{number % 5}"]', number) for number in range(1, 300)]
        assert sum(code is None for code, _ in found) == 99
        assert found[-1] == (-32013, {"limit": "subscriptions_each", "max": 100})
        assert len(receiver.posted) == 5  # one challenge for each client
        assert await attempt('["i", "bob", "c0"]', 0) == (None, None)
        assert events._box().count() == 101


async def test_subscriptions_in_all_are_bounded_and_make_room_when_they_end() -> None:
    clock = MovedClock()
    app, _ = shop(clock=clock, limits=EventLimits(subscriptions=3))
    async with receiving() as receiver, following(app) as client:
        for number in range(3):
            await subscribe(client, receiver, arguments={"carrier": str(number)}, ttl_ms=60_000)
        with pytest.raises(RpcError) as caught:
            await subscribe(client, receiver)
        assert caught.value.data == {"limit": "subscriptions", "max": 3}
        await subscribe(client, receiver, arguments={"carrier": "0"})  # a refresh needs no room
        clock.move(61)
        await subscribe(client, receiver)


async def test_a_host_is_not_flooded_by_challenges() -> None:
    clock = MovedClock()
    app, _ = shop(clock=clock)
    async with receiving(answering(reply(404))) as receiver, following(app) as client:
        found = [await reason_of(client, f"{receiver.url}/{number}") for number in range(30)]
        assert found == ["http_4xx"] * 10 + [-32013] * 20
        assert len(receiver.posted) == 10
        clock.move(60)
        assert await reason_of(client, receiver) == "http_4xx"


async def test_an_account_does_not_look_through_us_for_open_ports() -> None:
    app, _ = shop(limits=EventLimits(verifications=1_000, verifications_each=20))
    async with following(app) as client:
        found = [await reason_of(client, f"http://127.0.0.1:{port}/") for port in range(1, 31)]
        assert found == [REFUSED] * 20 + [-32013] * 10


async def test_what_has_ended_leaves_nothing_in_memory() -> None:
    """A storm of subscriptions that end at once, and one of refreshes while the receiver is away."""
    clock = MovedClock()
    app, events = shop(clock=clock)
    async with receiving() as receiver, following(app) as client:
        for number in range(300):
            await subscribe(client, receiver, arguments={"carrier": str(number)})
            params = m.UnsubscribeEventsParams(
                name="order_shipped", delivery=m.Delivery(url=receiver.url), arguments={"carrier": str(number)}
            )
            await client.request("events/unsubscribe", params)
        await subscribe(client, receiver, ttl_ms=None)
        receiver.behave = answering(reply(500))
        await events.emit(OrderShipped("1"))
        await settle(lambda: events._deliveries.failed == 1)
        for _ in range(100):
            await subscribe(client, receiver, ttl_ms=None)
        for _ in range(3):
            clock.move(25)
            await asyncio.sleep(0.02)
        [deliverer] = [one for one in gc.get_objects() if isinstance(one, Deliverer) and one._watches]
        assert len(deliverer._watches) == 1
        assert len(deliverer._due) <= 2


async def test_proofs_are_bounded() -> None:
    app, events = shop(limits=EventLimits(subscriptions=5))
    async with receiving() as receiver, following(app):
        for number in range(30):
            await events._box().keep_verified("another", f"{receiver.url}/{number}", events._clock.now() + number)
        kept = [events._box().is_verified("another", f"{receiver.url}/{number}", 0.0) for number in range(30)]
        assert kept == [False] * 19 + [True] * 11


async def test_no_error_says_more_than_a_category() -> None:
    """A receiver's words, and what is behind an address, are not read through us."""
    app, _ = shop()
    secret = "the admin password is hunter2"
    async with (
        receiving(answering(reply(403, secret.encode(), f"X-Secret: {secret}"))) as receiver,
        following(app) as client,
    ):
        with pytest.raises(RpcError) as caught:
            await subscribe(client, receiver)
        assert "hunter2" not in str(caught.value)
        with pytest.raises(RpcError) as inside:
            await subscribe(client, "http://127.0.0.2:22/")
        with pytest.raises(RpcError) as closed:
            await subscribe(client, "http://127.0.0.1:1/")
        assert str(inside.value) == str(closed.value)
