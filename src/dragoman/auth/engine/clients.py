"""The clients of an authorization server, and how they prove who they are.

A client is configured, or registered (RFC 7591), or named by the URL of its metadata document.
"""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote_plus

from msgspec import structs

from ...allowance import Owner, Slots
from ...jsonrpc.errors import LocalError
from ..authentication import ASSERTION
from ..errors import OAuthError
from ..jose import KeySet, encode_base64url
from .assertions import Assertions
from .documents import DOCUMENT, is_url, of_document, of_registration, url_fault
from .messages import EndpointRequest, EndpointResponse, Parameters, bad, json, oauth_error
from .model import Client, Settings
from .published import PublishedDocuments
from .records import Records
from .redirects import fault
from .seals import Signer, digest

DOCUMENTS = 1_000
"""Documents of clients that are kept at once."""
REGISTRATIONS = 5_000
"""Clients that registered themselves and with which no user has logged in yet, for one process: anyone may register.
Beyond that, the oldest client of the address that has most is forgotten."""
UNUSED_LIFE = 86_400.0
"""Seconds after which a registration is forgotten if no user ever logged in with it: anybody can make one."""
REGISTRATION_LIFE = 90 * 86_400.0
"""Seconds after its last use after which a registration is forgotten."""
ID_LENGTH = 4_096
"""Characters of an id that holds the registration itself: ids are part of URLs."""
_PACKED, _SECRET = "client", "client secret"
LONGEST_DOCUMENT_LIFE = 86_400.0
ANYONE = Owner("")


def secret_hash(secret: str) -> str:
    """Return the hash of a secret of 128 random bits or more, which needs no slow hash."""
    return digest(secret)


class Clients:
    """Finds clients and authenticates them."""

    def __init__(
        self,
        clients: Iterable[Client],
        settings: Callable[[], Settings],
        records: Records,
        signer: Signer,
        published: PublishedDocuments,
        assertions: Assertions,
    ) -> None:
        self._signer = signer
        self._fixed = {one.id: one for one in clients}
        for one in self._fixed.values():
            _check(one)
        self._settings, self._records, self._published = settings, records, published
        self._documents: dict[str, tuple[Client, float]] = {}
        self._unused: Slots[str] = Slots(REGISTRATIONS, UNUSED_LIFE)
        self._assertions = assertions

    def add(self, client: Client) -> None:
        """Add a client to those that the operator configured. Raises LocalError for one with a redirect URI that cannot
        be used, or without the secret or keys that its method needs."""
        _check(client)
        self._fixed[client.id] = client

    def owner(self, client: Client, request: EndpointRequest) -> Owner:
        """Return the owner to whose share the records of a request count: the client, if the operator configured it and
        it has authenticated, else the caller's address."""
        known = client.id in self._fixed and not client.public
        return Owner(f"client {client.id}", known=True) if known else request.owner

    def is_configured(self, client: Client) -> bool:
        """Return whether the operator configured this client."""
        return client.id in self._fixed

    async def find(self, id: str, owner: Owner = ANYONE) -> Client | None:
        """Return the client with this id; None if there is none. `owner`: to whose share a fetch of its document
        counts. Raises OAuthError for a document that cannot be used."""
        if (found := self._fixed.get(id)) is not None:
            return found
        if is_url(id):
            return await self._client_of_document(id, owner) if self._settings().documents else None
        if self._settings().keeps:
            return await self._records.get("client", id, Client)
        return self._unpack(id)

    def _unpack(self, id: str) -> Client | None:
        """Return the client whose id is its registration."""
        found = self._signer.read(_PACKED, id, Client) if len(id) <= ID_LENGTH else None
        if found is None:
            return None
        secret = self._signer.mark_beside(_SECRET, id, _PACKED) if found.method.startswith("client_secret") else ""
        return structs.replace(found, id=id, secret_hash=secret_hash(secret) if secret else "")

    def _pack(self, client: Client) -> tuple[Client, str]:
        """Return the client with its registration as id, and its secret, which is derived and not stored. Raises
        OAuthError for one that is too long."""
        id = self._signer.sign(_PACKED, structs.replace(client, id=encode_base64url(os.urandom(6))))
        if len(id) > ID_LENGTH:
            raise oauth_error("invalid_client_metadata", "The metadata are too long: leave redirect URIs or keys out")
        secret = self._signer.mark(_SECRET, id) if client.method.startswith("client_secret") else ""
        return structs.replace(client, id=id), secret

    async def _client_of_document(self, url: str, owner: Owner) -> Client:
        settings, now = self._settings(), self._records.clock()
        known = self._documents.get(url)
        if known is not None and known[1] > now:
            return known[0]
        if wrong := url_fault(url, loopback=settings.loopback):
            raise oauth_error("invalid_client", f"The client_id {wrong}")
        fetched = await self._published.fetch_of_stranger(url, "The client's metadata document", owner)
        client = of_document(url, fetched.body)
        # only what was right is cached: "An authorization server MUST NOT cache error responses"
        while len(self._documents) >= DOCUMENTS:
            del self._documents[next(iter(self._documents))]
        self._documents[url] = client, now + _life(fetched.headers, settings.lives.document)
        return client

    async def register(self, request: EndpointRequest) -> EndpointResponse:
        """Register a client dynamically (RFC 7591, 3). Raises OAuthError."""
        if not self._settings().registration:
            raise oauth_error("access_denied", "Clients do not register themselves here", 403)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise oauth_error("invalid_client_metadata", "The body is application/json")
        if len(request.body) > DOCUMENT:
            raise oauth_error("invalid_client_metadata", f"The body has more than {DOCUMENT} bytes", 413)
        now = int(self._records.clock())
        client, secret = of_registration(encode_base64url(os.urandom(16)), request.body), ""
        if not self._settings().keeps:
            return json(_registration_answer(*self._pack(client), now), 201)
        if client.method.startswith("client_secret"):
            secret = encode_base64url(os.urandom(32))
            client = structs.replace(client, secret_hash=secret_hash(secret))
        gone = self._unused.take(request.owner, client.id, now)
        if gone is not None:
            await self._records.take("client", gone, Client)
        await self._records.put("client", client.id, client, UNUSED_LIFE)
        return json(_registration_answer(client, secret, now), 201)

    async def authenticate(self, request: EndpointRequest, form: Parameters, *, endpoint: str) -> Client:
        """Return the client that sends this request (RFC 6749, 2.3; RFC 7523, 2.2). `endpoint`: the URL of the token
        endpoint, the audience of assertions. Raises OAuthError."""
        basic = _basic(request)
        assertion, secret = form.get("client_assertion"), form.get("client_secret")
        # RFC 6749, 2.3: "The client MUST NOT use more than one authentication method in each request."
        if (basic is not None) + bool(assertion) + bool(secret) > 1:
            bad("More than one way of client authentication")
        if basic is not None:
            id, secret, used = basic[0], basic[1], "client_secret_basic"
            if form.get("client_id") not in ("", id):
                raise _unknown_client(request, "client_id differs from the Authorization header")
        elif assertion:
            if form.get("client_assertion_type") != ASSERTION:
                bad(f"client_assertion_type is {ASSERTION}")
            id, used = form.get("client_id") or self._assertions.subject(assertion), "private_key_jwt"
        else:
            id, used = form.need("client_id"), "client_secret_post" if secret else "none"
        client = await self._find_or_refuse(request, id)
        if used == "private_key_jwt" and client.method == used:
            await self._assertions.authenticate(client, assertion, endpoint, self.owner(client, request))
        elif client.method != used and not (client.secret_hash and used.startswith("client_secret")):
            # a secret proves the same in the header and in the body: RFC 6749, 2.3.1 has clients choose
            raise _unknown_client(request, "The client does not authenticate in this way")
        elif used != "none" and not hmac.compare_digest(secret_hash(secret), client.secret_hash or "-"):
            raise _unknown_client(request, "The client's secret is wrong")
        return client

    async def _find_or_refuse(self, request: EndpointRequest, id: str) -> Client:
        try:
            client = await self.find(id, request.owner)
        except OAuthError as error:
            if error.status == 503:
                raise
            raise _unknown_client(request, error.description) from None
        if client is None:
            raise _unknown_client(request, "There is no such client")
        return client

    async def keep(self, client: Client) -> None:
        """Keep the registration of a client for longer, because it was used."""
        if self._settings().keeps and client.id not in self._fixed and not client.document:
            self._unused.free(client.id)
            await self._records.put("client", client.id, client, REGISTRATION_LIFE)


_CHALLENGE = (("WWW-Authenticate", 'Basic realm="token"'),)


def _unknown_client(request: EndpointRequest, why: str) -> OAuthError:
    """Return the error `invalid_client`. RFC 6749, 5.2: if the client used the Authorization header, "the authorization
    server MUST respond with an HTTP 401 (Unauthorized) status code and include the "WWW-Authenticate" response header
    field matching the authentication scheme used by the client"."""
    return oauth_error("invalid_client", why, 401, _CHALLENGE if "authorization" in request.headers else ())


def _basic(request: EndpointRequest) -> tuple[str, str] | None:
    """Return id and secret of HTTP Basic; None without the header (RFC 6749, 2.3.1: both are form-encoded). Raises
    OAuthError."""
    value = request.headers.get("authorization")
    if value is None:
        return None
    scheme, _, text = value.partition(" ")
    if scheme.lower() != "basic":
        raise _unknown_client(request, "The Authorization header is not Basic")
    try:
        whole = base64.b64decode(text.strip(), validate=True).decode()
    except ValueError:  # also of binascii and UnicodeDecodeError
        raise _unknown_client(request, "The Authorization header is not Base64") from None
    id, colon, secret = whole.partition(":")
    if not colon or not id:
        raise _unknown_client(request, "The Authorization header has no id and secret")
    return unquote_plus(id), unquote_plus(secret)


def _life(headers: Mapping[str, str], standard: float) -> float:
    """Return the seconds for which a document may be cached, from its Cache-Control; `standard` where it does not
    say."""
    directives = [part.strip().lower() for part in headers.get("cache-control", "").split(",")]
    if "no-store" in directives or "no-cache" in directives:
        return 0.0
    age = next((part[8:] for part in directives if part.startswith("max-age=")), "")
    return min(float(age), LONGEST_DOCUMENT_LIFE) if age.isascii() and age.isdigit() and len(age) < 12 else standard


def _check(client: Client) -> None:
    for uri in client.redirect_uris:
        if wrong := fault(uri):
            raise LocalError(f"client {client.id!r}: the redirect URI {uri!r} {wrong}")
    if client.method.startswith("client_secret") and not client.secret_hash:
        raise LocalError(f"client {client.id!r}: {client.method} needs a secret")
    if client.method == "private_key_jwt":
        if (client.keys is None) == (not client.keys_url):
            raise LocalError(f"client {client.id!r}: private_key_jwt needs keys or keys_url, and not both")
        if client.keys is not None:
            KeySet.from_json(client.keys)


def _registration_answer(client: Client, secret: str, now: int) -> dict[str, Any]:
    """Return the answer to a registration (RFC 7591, 3.2.1). `now`: Unix time."""
    found: dict[str, Any] = {
        "client_id": client.id,
        "client_id_issued_at": now,
        "redirect_uris": client.redirect_uris,
        "grant_types": client.grants,
        "response_types": ["code"],
        "token_endpoint_auth_method": client.method,
    }
    if client.name:
        found["client_name"] = client.name
    if client.dpop:
        found["dpop_bound_access_tokens"] = True
    if secret:
        # "client_secret_expires_at REQUIRED if "client_secret" is issued"; 0: never
        found |= {"client_secret": secret, "client_secret_expires_at": 0}
    return found
