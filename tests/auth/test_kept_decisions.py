"""Decisions that are kept with the heads of requests: cold and warm, each request is decided as the guard decides when
it is asked, and what has changed since counts at once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import Context, Identity, Service
from dragoman.access import Standing
from dragoman.auth import Bearer, Introspection, Static, Verifier
from dragoman.auth.guard import TokenGuard
from dragoman.auth.limits import AuthLimits
from dragoman.channel import Admitted, Denied, Handshake, Options
from dragoman.rpc.servable import ServableService
from tests.behind import behind
from tests.transports.http.cases import answer, post
from tests.transports.http.ends import face, wire

from .guarding import who
from .issuing import ISSUER, NOW, RESOURCE, Clock, FakeIssuer, key_of, reply, token

FACES = pytest.mark.parametrize("kind", ["native", "asgi"])
WHO = b'{"jsonrpc":"2.0","method":"who","id":1}'
URL = "https://as.example/introspect"
TWICE = 2
WARM = 4
"""Requests after which a head and what was decided about it are known."""

Row = tuple[str, tuple[tuple[str, str], ...], str]


class CountingGuard(TokenGuard):
    """Counts how often it is asked, at once or not."""

    asked = 0

    async def __call__(self, handshake: Handshake) -> Admitted | Denied:
        self.asked += 1
        return await super().__call__(handshake)

    def at_once(self, credentials: bytes) -> Standing | None:
        self.asked += 1
        return super().at_once(credentials)


def telling() -> Service:
    api = Service("telling")

    @api.method(inline=True)
    def who(context: Context) -> str:
        assert context.identity is not None
        return context.identity.subject

    return api


class World:
    """A verifier, what it hears of, and the requests that are sent."""

    def __init__(self, verifier: Verifier, rows: list[Row], **options: Any) -> None:
        self.rows = rows
        self.guard = CountingGuard(verifier, **options)
        self.oracle = TokenGuard(verifier, audit=lambda _: None, **options)
        """Is asked about each: with an `audit` no decision is at hand."""
        self.sent = 0

    async def expected(self, row: Row) -> tuple[int, str]:
        """What the guard decides that is asked."""
        _, lines, path = row
        fields = [(name.lower().encode(), value.encode()) for name, value in lines]
        assert self.oracle.at_once(b"") is None
        verdict = await self.oracle(
            Handshake(scheme="http", method="POST", url=f"http://127.0.0.1{path}", headers=fields)
        )
        if isinstance(verdict, Denied):
            return verdict.status, ""
        assert verdict.identity is not None
        return 200, verdict.identity.subject

    async def check(self, port: int) -> dict[str, int]:
        """Send all requests in turn, `WARM` times and `TWICE` over on one connection: each is decided as it would be by
        the guard that is asked about it. The statuses, by the names of the requests."""
        found: dict[str, int] = {}
        for _ in range(TWICE):
            async with wire(port) as (reader, writer):
                for _ in range(WARM):
                    for row in self.rows:
                        name, lines, path = row
                        self.sent += 1
                        more = "".join(f"{field}: {value}\r\n" for field, value in lines)
                        writer.write(post(WHO, path=path, more=more.replace("NEW", f"{self.sent:032x}")))
                        got = await answer(reader)
                        subject = json.loads(got.body)["result"] if got.status == 200 else ""
                        wanted = await self.expected(row)
                        # an unknown key is looked for once in a while: whoever asks next is told to come again
                        unknown = {got.status, wanted[0]} == {401, 503}
                        assert (got.status, subject) == wanted or unknown, name
                        found[name] = got.status
        return found

    async def kept(self, port: int, row: Row) -> bool:
        """Whether the guard is not asked about one more request like this, which was sent before."""
        async with wire(port) as (reader, writer):
            asked = self.guard.asked
            more = "".join(f"{field}: {value}\r\n" for field, value in row[1])
            writer.write(post(WHO, path=row[2], more=more))
            await answer(reader)
            return self.guard.asked == asked

    def served(self) -> ServableService:
        served = ServableService(behind(telling()))
        served.protect(self.guard)
        return served


def row(name: str, credentials: str = "", *lines: tuple[str, str], path: str = "/") -> Row:
    return name, ((("Authorization", credentials), *lines) if credentials else lines), path


def bearer(name: str, text: str, *lines: tuple[str, str], path: str = "/") -> Row:
    return row(name, f"Bearer {text}", *lines, path=path)


TRACED = ("traceparent", "00-NEW-0000000000000001-01")
OLD, NEW = key_of("ES256", "old"), key_of("ES256", "new")


def signed_ones() -> list[Row]:
    good, other = token(OLD), token(OLD, sub="bob", jti="2")
    return [
        row("none"),
        row("none, traced", "", TRACED),
        bearer("good", good),
        bearer("another caller's", other),
        bearer("good, traced", good, TRACED),
        bearer("another caller's, traced", other, TRACED),
        row("in small letters", f"bearer {good}"),
        bearer("with a field that does not matter", good, ("X-One", "1")),
        bearer("with a DPoP field", good, ("DPoP", "x")),
        row("as DPoP", f"DPoP {good}"),
        row("twice", f"Bearer {good}", ("Authorization", f"Bearer {good}")),
        row("of two callers", f"Bearer {good}", ("Authorization", f"Bearer {other}")),
        bearer("in the query too", good, path=f"/?access_token={good}"),
        row("in the query alone", path=f"/?access_token={good}"),
        bearer("short-lived", token(OLD, exp=int(NOW) + 100, jti="3")),
        bearer("expired", token(OLD, exp=int(NOW) - 100)),
        bearer("of another resource", token(OLD, aud="https://other.example")),
        bearer("without the scope of every call", token(OLD, scope="notes:write")),
        bearer("bound to a key", token(OLD, cnf={"jkt": "x" * 43})),
        bearer("not signed", good[:-4] + "AAAA"),
        row("basic", "Basic YWRhOnNlY3JldA=="),
    ]


@FACES
async def test_signed_tokens(kind: str) -> None:
    clock, fake, rows = Clock(), FakeIssuer(OLD), signed_ones()
    verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=fake, now=clock, cache_seconds=200, leeway=0)
    world = World(verifier, rows, scopes="notes:read")
    good = next(one for one in rows if one[0] == "good")
    async with face(kind, {"": world.served()}, Options()) as port:
        found = await world.check(port)
        admitted = {"good", "another caller's", "good, traced", "another caller's, traced", "in small letters"}
        admitted |= {"with a field that does not matter", "with a DPoP field", "short-lived"}
        assert {name for name, status in found.items() if status == 200} == admitted
        assert await world.kept(port, good)
        assert await world.kept(port, rows[0])
        clock.now += 101  # past the life of one
        found = await world.check(port)
        assert {name for name, status in found.items() if status == 200} == admitted - {"short-lived"}
        clock.now += 100  # past the time for which a token is believed
        assert [await world.kept(port, good) for _ in range(3)] == [False, False, True]  # verified, known, kept
        fake.keys = [NEW]
        strange = bearer("of a strange key", token(key_of("ES256", "strange")))
        world.rows = [bearer("of a new key", token(NEW)), *rows, strange]  # the keys are fetched for the first
        found = await world.check(port)
        assert {name for name, status in found.items() if status == 200} == {"of a new key"}


@FACES
async def test_a_key_that_is_withdrawn_counts_at_the_next_request(kind: str) -> None:
    clock, fake = Clock(), FakeIssuer(OLD)
    verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=fake, now=clock)
    good = bearer("good", token(OLD))
    world = World(verifier, [good])
    async with face(kind, {"": world.served()}, Options()) as port:
        assert await world.check(port) == {"good": 200}
        assert await world.kept(port, good)
        fake.keys = [NEW]
        await verifier.verify(token(NEW), Handshake(scheme="http", url="/"))  # now it is known to be gone
        assert await world.check(port) == {"good": 503}  # 401 once, and then: whether it is a new one is not known yet


@FACES
async def test_a_token_that_was_pushed_out_is_verified_anew(kind: str) -> None:
    verifier = Bearer(
        ISSUER, resource=RESOURCE, fetcher=FakeIssuer(OLD), now=Clock(), limits=AuthLimits(cached_tokens=1)
    )
    first, second = bearer("first", token(OLD)), bearer("second", token(OLD, jti="2"))
    world = World(verifier, [first])
    async with face(kind, {"": world.served()}, Options()) as port:
        await world.check(port)
        assert await world.kept(port, first)
        world.rows = [second]
        await world.check(port)
        assert not await world.kept(port, first)


@FACES
async def test_a_token_that_its_issuer_revokes(kind: str) -> None:
    clock, fake = Clock(), FakeIssuer()
    active = {"active": True, "sub": "ada", "client_id": "app", "aud": RESOURCE, "iss": ISSUER, "exp": int(NOW) + 600}
    fake.pages[URL] = reply(active)
    options: dict[str, Any] = {
        "client_id": "rs",
        "secret": "s3cret",
        "fetcher": fake,
        "now": clock,
        "cache_seconds": 30,
    }
    world = World(Introspection(URL, issuer=ISSUER, resource=RESOURCE, **options), [bearer("opaque", "opaque")])
    async with face(kind, {"": world.served()}, Options()) as port:
        assert await world.check(port) == {"opaque": 200}
        assert await world.kept(port, world.rows[0])
        fake.pages[URL] = reply({"active": False})
        assert await world.check(port) == {"opaque": 200}  # an answer is believed for its time
        clock.now += 30
        assert await world.check(port) == {"opaque": 401}


@FACES
async def test_a_list(kind: str) -> None:
    clock = Clock()
    known = {"token-of-ci": Identity(subject="ci"), "token-of-ada": who("ada", expires=NOW + 10)}
    rows = [bearer("ci", "token-of-ci"), bearer("ada", "token-of-ada"), bearer("no one", "token-of-eve"), row("none")]
    world = World(Static(known, now=clock), rows)
    async with face(kind, {"": world.served()}, Options()) as port:
        assert await world.check(port) == {"ci": 200, "ada": 200, "no one": 401, "none": 401}
        assert [await world.kept(port, one) for one in rows] == [True, True, False, True]
        clock.now += 10
        assert await world.check(port) == {"ci": 200, "ada": 401, "no one": 401, "none": 401}


class Fickle:
    """A verifier of an application, which changes its mind."""

    def __init__(self) -> None:
        self.subject: str | None = "ada"
        self.asked = 0

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        self.asked += 1
        return None if self.subject is None else Identity(subject=self.subject)


class Recalling(Fickle):
    """The same, which answers at once as well."""

    def known(self, token: bytes) -> Identity | None:
        self.asked += 1
        return None if self.subject is None else Identity(subject=self.subject)


@FACES
@pytest.mark.parametrize("made", [Fickle, Recalling])
async def test_a_verifier_of_an_application_is_asked_each_time(kind: str, made: Callable[[], Fickle]) -> None:
    verifier = made()
    world = World(verifier, [bearer("any", "any-token")])
    async with face(kind, {"": world.served()}, Options()) as port:
        for subject, status in (("ada", 200), ("bob", 200), (None, 401), ("ada", 200)):
            verifier.subject, asked = subject, verifier.asked
            assert await world.check(port) == {"any": status}
            assert verifier.asked - asked >= 2 * TWICE * WARM  # by the guard, and by the one to compare with


@FACES
async def test_each_decision_is_written_down_from_the_moment_on_that_it_is_asked_for(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [bearer("ci", "token-of-ci"), row("none")]
    world = World(Static({"token-of-ci": "ci"}), rows)
    told: dict[int, list[str]] = {}
    async with face(kind, {"": world.served()}, Options()) as port:
        await world.check(port)
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            with caplog.at_level(level, "dragoman.audit"):
                caplog.clear()
                for one in rows:
                    await world.kept(port, one)
                told[level] = [one.message.partition(" ")[0] for one in caplog.records if one.name == "dragoman.audit"]
    assert told == {logging.DEBUG: ["admitted", "denied"], logging.INFO: ["denied"], logging.WARNING: []}
