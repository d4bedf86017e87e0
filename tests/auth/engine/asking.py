"""Asks an authorization engine as a client, a browser and a device would, without a wire."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from dragoman.auth.dpop import proof
from dragoman.auth.engine.messages import FORM, EndpointRequest, EndpointResponse
from dragoman.auth.fetching import FetchedAnswer
from dragoman.auth.jose import Key, new_key, parse_jws, sign_jws
from dragoman.auth.server import AuthorizationServer, Client, User, secret_hash
from dragoman.testing import Clock

ISSUER = "https://as.example"
REDIRECT = "https://app.example/callback"
LOOPBACK = "http://127.0.0.1/callback"
RESOURCE = "https://mcp.example/mcp"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TYPE = "urn:ietf:params:oauth:token-type:"
ALL = ("authorization_code", "refresh_token", "client_credentials", DEVICE, EXCHANGE, BEARER)
SECRET = "a secret of the test"

KEY = new_key("ES256", kid="k1")
KEYS = {"keys": [KEY.public_jwk()]}
IDP = "https://idp.example"
"""An issuer whose assertions are grants, and its key."""

Form = Mapping[str, str] | Sequence[tuple[str, str]]


class Page(msgspec.Struct):
    """What a fetcher gives."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""


class Web:
    """Documents by URL, and which were asked for."""

    def __init__(self, pages: dict[str, Page] | None = None) -> None:
        self.pages = pages or {}
        self.asked: list[str] = []
        self.trusted: list[bool] = []

    async def __call__(self, url: str, limit: int, trusted: bool) -> FetchedAnswer:
        self.asked.append(url)
        self.trusted.append(trusted)
        return self.pages.get(url, Page(404))


class Asker:
    """One server, its clock, and what one browser keeps."""

    def __init__(self, issuer: str = ISSUER, **options: Any) -> None:
        self.clock = Clock(1_800_000_000.0)
        self.web = Web()
        standard: dict[str, Any] = {
            "clients": (
                Client(id="app", name="The app", redirect_uris=(REDIRECT, LOOPBACK)),
                Client(
                    id="shop",
                    redirect_uris=(REDIRECT,),
                    method="client_secret_basic",
                    secret_hash=secret_hash(SECRET),
                    grants=ALL,
                ),
                Client(id="other", redirect_uris=(REDIRECT,), grants=(*ALL[:2], DEVICE)),
            ),
            "users": (
                User(name="alice", password="canary-7f3a-wonder"),
                User(name="bob", password="canary-7f3a-builder"),
            ),
            "clock": self.clock,
            "fetch": self.web,
        }
        self.server = AuthorizationServer(issuer, **(standard | options))
        self.engine = self.server.engine
        self.cookies: dict[str, str] = {}

    async def ask(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        remote: str = "192.0.2.1:50000",
    ) -> EndpointResponse:
        """One request, with the cookies that the browser has."""
        sent = dict(headers or {})
        if self.cookies and "cookie" not in sent:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        made = await self.engine.answer(
            EndpointRequest(method=method, path=path, query=query, headers=sent, body=body, remote=remote)
        )
        for name, value in made.headers:
            if name == "Set-Cookie":
                pair = value.partition(";")[0]
                self.cookies[pair.partition("=")[0]] = pair.partition("=")[2]
        return made

    async def post(
        self, path: str, form: Form, headers: Mapping[str, str] | None = None, remote: str = "192.0.2.1:50000"
    ) -> EndpointResponse:
        """A form."""
        sent = {"content-type": FORM, **(headers or {})}
        return await self.ask("POST", path, body=urlencode(form).encode(), headers=sent, remote=remote)

    async def authorize(self, **changes: str | None) -> EndpointResponse:
        """An authorization request that is right but for these parameters; None leaves one out."""
        asked: dict[str, str | None] = {
            "response_type": "code",
            "client_id": "app",
            "redirect_uri": REDIRECT,
            "state": "st",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "scope": "notes:read notes:write",
            "resource": RESOURCE,
        }
        asked |= changes
        return await self.ask("GET", "/authorize", urlencode({n: v for n, v in asked.items() if v is not None}))

    async def consent(
        self, page: EndpointResponse, headers: Mapping[str, str] | None = None, **fields: str
    ) -> EndpointResponse:
        """FetchedAnswer a consent page."""
        form = {"pending": pending(page), "user": "alice", "password": "canary-7f3a-wonder", "answer": "allow"} | fields
        return await self.post("/consent", form, headers)

    async def code(self, **changes: str | None) -> str:
        """A code for these parameters."""
        return answer(await self.consent(await self.authorize(**changes)))["code"]

    async def token(self, headers: Mapping[str, str] | None = None, /, **form: str) -> EndpointResponse:
        """A request to the token endpoint."""
        return await self.post("/token", form, headers)

    async def redeem(self, code: str, headers: Mapping[str, str] | None = None, /, **changes: str) -> EndpointResponse:
        """Redeem a code, as the app would but for these parameters."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "client_id": "app",
            "redirect_uri": REDIRECT,
            "code_verifier": VERIFIER,
        }
        return await self.token(headers, **(form | changes))

    async def login(self, **changes: str | None) -> dict[str, Any]:
        """The whole way of the app; the answer of the token endpoint."""
        return body(await self.redeem(await self.code(**changes), client_id=str(changes.get("client_id") or "app")))

    async def refresh(self, token: str, **changes: str) -> EndpointResponse:
        """Use a refresh token, as the app."""
        return await self.token(
            **({"grant_type": "refresh_token", "refresh_token": token, "client_id": "app"} | changes)
        )

    async def introspect(self, token: str) -> dict[str, Any]:
        """What the server says of a token."""
        return body(await self.post("/introspect", {"token": token}, BASIC))

    def proof(self, key: Key, path: str = "/token", nonce: str | None = None) -> dict[str, str]:
        """The header of a DPoP proof."""
        return {"dpop": proof(key, "POST", ISSUER + path, nonce=nonce, now=self.clock)}


def basic(id: str, secret: str) -> dict[str, str]:
    """The header of HTTP Basic."""
    return {"authorization": "Basic " + base64.b64encode(f"{id}:{secret}".encode()).decode()}


BASIC = basic("shop", urlencode({"": SECRET})[1:])


def body(response: EndpointResponse) -> dict[str, Any]:
    """The JSON of an answer."""
    found: dict[str, Any] = msgspec.json.decode(response.body)
    return found


def header(response: EndpointResponse, name: str) -> str:
    """One header field."""
    return next((value for each, value in response.headers if each == name), "")


def answer(response: EndpointResponse) -> dict[str, str]:
    """The parameters of a redirect to the client."""
    assert response.status == 303, response
    return {name: value[0] for name, value in parse_qs(urlsplit(header(response, "Location")).query).items()}


def pending(page: EndpointResponse) -> str:
    """The hidden field of a consent page."""
    found = re.search(r'name="pending" value="([^"]*)"', page.body.decode())
    assert found is not None, page
    return unescape(found[1])


def claims(token: str) -> dict[str, Any]:
    """What a token says."""
    return parse_jws(token, frozenset({"ES256"})).claims()


def id_jag(asker: Asker, typ: str = "oauth-id-jag+jwt", key: Any = KEY, **changes: Any) -> str:
    """An ID-JAG that is right but for these claims."""
    now = asker.clock()
    said = {"iss": IDP, "sub": "carol", "aud": ISSUER, "client_id": "shop", "exp": now + 60, "iat": now}
    said |= {"jti": "j1", "resource": RESOURCE, "scope": "notes:read notes:write"}
    return sign_jws({n: v for n, v in (said | changes).items() if v is not None}, key, typ=typ)
