"""Tokens that are bound to a TLS certificate (RFC 8705 section 3), at the edge: HTTPS and WSS on both event loops, and
plain HTTP, where no certificate is."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from dragoman import Context, Service, connect, serve
from dragoman.auth import Bearer, Introspection
from dragoman.auth.jose import encode_base64url
from dragoman.channel import Admitted, Denied, Handshake, Identity
from dragoman.serving import Serving
from tests.auth.issuing import ISSUER, NOW, RESOURCE, Clock, FakeIssuer, reply, token
from tests.loops import RUNNERS
from tests.transports.http.cases import PATIENCE, Answered, answer

WHO = b'{"jsonrpc":"2.0","method":"who","id":1}'
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


class Ends:
    """The contexts of a server and of its callers: two with certificates of one authority, one without."""

    def __init__(self) -> None:
        authority = trustme.CA()
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(self.server)
        authority.configure_trust(self.server)
        self.server.verify_mode = ssl.CERT_OPTIONAL
        self.callers: dict[str, ssl.SSLContext] = {}
        self.bound: dict[str, dict[str, Any]] = {}
        for name in ("ada", "eve", "none"):
            context = self.callers[name] = ssl.create_default_context()
            authority.configure_trust(context)
            if name != "none":
                certificate = authority.issue_cert(f"{name}.example")
                certificate.configure_cert(context)
                der = ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())
                self.bound[name] = {"cnf": {"x5t#S256": encode_base64url(hashlib.sha256(der).digest())}}


@pytest.fixture(scope="module")
def ends() -> Ends:
    return Ends()


@pytest.fixture(params=RUNNERS)
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def bounded(main: Awaitable[None]) -> None:
        async def within() -> None:
            async with asyncio.timeout(PATIENCE):
                await main

        request.param(within())

    return bounded


def telling() -> Service:
    api = Service("telling")

    @api.method
    async def who(context: Context) -> str:
        assert context.identity is not None
        return context.identity.subject

    return api


@asynccontextmanager
async def serving(scheme: str, ends: Ends, verifier: Any) -> AsyncIterator[Serving]:
    tls = ends.server if scheme in ("https", "wss") else None
    async with serve(telling(), urls=f"{scheme}://127.0.0.1:0", tls=tls, auth=verifier) as found:
        yield found


async def asked(serving: Serving, tls: ssl.SSLContext | None, text: str) -> Answered:
    """The answer to one request, or to the handshake of a WebSocket."""
    scheme, _, port = (
        serving.urls[0].rstrip("/").partition("://")[0],
        "",
        serving.urls[0].rstrip("/").rpartition(":")[2],
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port), ssl=tls)
    common = f"Host: 127.0.0.1\r\nAuthorization: Bearer {text}\r\n"
    if scheme in ("ws", "wss"):
        writer.write(f"GET / HTTP/1.1\r\n{common}{UPGRADE}\r\n".encode())
    else:
        kind = "Content-Type: application/json\r\n"
        writer.write(f"POST / HTTP/1.1\r\n{common}{kind}Content-Length: {len(WHO)}\r\n\r\n".encode() + WHO)
    found = await answer(reader)
    writer.close()
    return found


ROWS: list[tuple[str, str, str, str, bool]] = [
    # the name of the row, the wire, whose certificate is shown, to whose the token is bound, whether it is taken
    ("its own", "https", "ada", "ada", True),
    ("another's", "https", "eve", "ada", False),
    ("no certificate", "https", "none", "ada", False),
    ("an unbound token needs none", "https", "none", "", True),
    ("an unbound token with one", "https", "eve", "", True),
    ("plain HTTP", "http", "", "ada", False),
    ("plain HTTP, unbound", "http", "", "", True),
    ("its own, WebSocket", "wss", "ada", "ada", True),
    ("another's, WebSocket", "wss", "eve", "ada", False),
    ("no certificate, WebSocket", "wss", "none", "ada", False),
    ("plain WebSocket", "ws", "", "ada", False),
]


@pytest.mark.parametrize(("scheme", "shows", "bound", "taken"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
@pytest.mark.parametrize("by", ["signature", "introspection"])
def test_a_bound_token(
    run: Callable[[Awaitable[None]], None], ends: Ends, by: str, scheme: str, shows: str, bound: str, taken: bool
) -> None:
    async def main() -> None:
        claims = ends.bound.get(bound, {})
        fake = FakeIssuer()
        verifier: Any = Bearer(ISSUER, resource=RESOURCE, fetcher=fake, now=Clock())
        if by == "introspection":
            # RFC 8705 section 3.2: "cnf" stands in the answer about the token
            place = ISSUER + "/introspect"
            fake.pages[place] = reply({"active": True, "sub": "ada", "aud": RESOURCE, "exp": int(NOW) + 60, **claims})
            options: dict[str, Any] = {
                "issuer": ISSUER,
                "resource": RESOURCE,
                "client_id": "us",
                "secret": "secret-of-us",
            }
            verifier = Introspection(place, fetcher=fake, now=Clock(), **options)
        async with serving(scheme, ends, verifier) as found:
            for _ in range(2):  # verified, then cached: a cached token is no less bound
                got = await asked(found, ends.callers.get(shows), token(**claims))
                if taken:
                    assert got.status == (200 if scheme.startswith("http") else 101)
                else:
                    assert got.status == 401
                    assert 'error="invalid_token"' in got.headers["www-authenticate"]

    run(main())


def test_a_client_of_ours_calls_with_its_certificate(run: Callable[[Awaitable[None]], None], ends: Ends) -> None:
    async def main() -> None:
        verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=FakeIssuer(), now=Clock())
        for scheme in ("https", "wss"):
            async with serving(scheme, ends, verifier) as found:
                auth = token(**ends.bound["ada"])
                async with connect(found.urls[0], tls=ends.callers["ada"], auth=auth) as peer:
                    assert [await peer.call("who") for _ in range(3)] == ["ada"] * 3

    run(main())


def test_the_certificate_is_told_as_der(run: Callable[[Awaitable[None]], None], ends: Ends) -> None:
    seen: list[Handshake] = []

    async def guard(handshake: Handshake) -> Admitted | Denied:
        seen.append(handshake)
        return Admitted(identity=Identity(subject="ada"))

    async def main() -> None:
        for scheme in ("https", "wss", "tls"):
            async with serve(telling(), urls=f"{scheme}://127.0.0.1:0", tls=ends.server, guard=guard) as found:
                for name in ("ada", "none"):
                    async with connect(found.urls[0], tls=ends.callers[name]) as peer:
                        assert await peer.call("who") == "ada"

    run(main())
    thumbprints = [
        one.certificate_der and encode_base64url(hashlib.sha256(one.certificate_der).digest()) for one in seen
    ]
    assert thumbprints == [ends.bound["ada"]["cnf"]["x5t#S256"], None] * 3
    assert all((one.certificate is None) is (one.certificate_der is None) for one in seen)
