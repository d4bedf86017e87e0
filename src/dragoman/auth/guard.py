"""The guard of a resource server: turns verifiers of tokens into a `channel.Guard` that every wire can call.

It reads what a caller presents (the `Authorization` field of HTTP, of a WebSocket's handshake, of a broker's delivery;
a TLS client certificate; the process at a Unix socket), calls the verifiers, and denies as RFC 6750 section 3 has it.
It fails closed: what it does not understand, it denies.

Rules:

- Two `Authorization` fields, or two `DPoP` fields, are 400, whatever they contain: a proxy in front may have checked
  the other one. A token in the query is 400 as well, and no log gets that query.
- A field outside the grammar is 400; no token, a bad or an expired one 401; one without the scopes that every call
  needs 403; an issuer that does not answer 503 with `Retry-After`, never 401, which would open every user's browser.
- Every 401 and 403 has a challenge that names the protected resource metadata (MCP, basic/authorization).
- Each decision is an event of the log "dragoman.audit", without the token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from ..access import LocalUser, Standing, Verifier, Verifiers, known, local_user, scopes_of
from ..channel import Admitted, Caller, Denied, Document, Handshake, Identity
from ..jsonrpc.errors import LocalError, Refusal
from ..net.scheme import SCHEMES
from ..system.sockets import user_id
from .auditing import ADMITTED, DENIED, Audit, Decision
from .challenge import TOKEN68, Challenge, parse_challenges
from .errors import IssuerAway, TokenRefused, describe
from .limits import DEFAULTS, AuthLimits
from .metadata import resource_locations
from .replays import SeenOnce
from .verifiers.base import base_of, inherits_apart

_CREDENTIALS: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)(?: +(.*))?", re.DOTALL)
_TOKEN_IN_QUERY: Final = re.compile(r"(?:^|[?&;])access_token(?:=|&|;|$)", re.IGNORECASE)
_HTTP: Final = frozenset({"http", "https", "ws", "wss"})
_LOCAL: Final = frozenset({"stdio", "memory"})
_AROUND: Final = 1024
"""Bytes of a header beside its token: the name of the field, the scheme, and some more, so that a token that is a
little too long is refused as a long token, and not as a long header."""
_CHALLENGE: Final = "WWW-Authenticate"
_NOT_OF_A_RESOURCE: Final = frozenset({"offline_access"})
"""Scopes that a challenge does not name: "Servers SHOULD NOT include `offline_access`" (2026-07-28, Refresh Tokens)."""


class TokenGuard:
    """A guard that asks verifiers. `auth=Bearer(...)` makes one; made by hand it takes more options.

    `verifiers` are called in order, until one knows the token. `scopes`: those that every call needs. `users`: the
    users of this machine that may call on Unix sockets, beside the one that serves, by their uid, with their scopes.
    `name` and `documentation` (a URL) are shown to people in the metadata. `audit(decision)` is called with each
    decision, beside the log. Raises LocalError for anything but verifiers, and for scopes that no token can have.
    """

    def __init__(
        self,
        *verifiers: Verifier,
        scopes: str | Collection[str] = (),
        users: Mapping[int, Collection[str]] | None = None,
        name: str = "",
        documentation: str = "",
        audit: Callable[[Decision], object] | None = None,
        limits: AuthLimits = DEFAULTS,
    ) -> None:
        for one in verifiers:
            if not callable(getattr(one, "verify", None)):
                raise LocalError(
                    f"auth= takes a verifier such as Bearer(issuer, resource=...), and not {_describe(one)}"
                )
        if not verifiers:
            raise LocalError("a TokenGuard has a verifier: TokenGuard(Bearer(issuer, resource=...))")
        self._verifiers = verifiers
        self._scopes: frozenset[str] = scopes_of("TokenGuard", scopes)
        granted = {} if users is None else users
        self._users = {uid: scopes_of(f"TokenGuard: users, {uid}", those) for uid, those in granted.items()}
        self._audit = Audit(audit)
        self._limits = limits
        self._name, self._documentation = name, documentation
        self._bases = bases = tuple(base_of(one) for one in verifiers)
        self.resource: str = next((one.resource for one in bases if one.resource), "")
        self._issuers = tuple(dict.fromkeys(issuer for one in bases for issuer in one.issuers))
        self._dpop = bases[0].dpop if len({one.dpop for one in bases}) == 1 else "accepted"
        self._certificates = any(one.certificates for one in bases)
        self._metadata = resource_locations(self.resource)[0] if self.resource and self._issuers else ""
        self._demanded: list[Callable[[], frozenset[str]]] = []
        only = bases[0] if len(bases) == 1 and not self._certificates else None
        self._known = None if only is None or inherits_apart(verifiers[0], "known", "verify") else only.known
        self._holding = None if only is None or inherits_apart(verifiers[0], "holding", "known") else only.holding
        self._nobody = self._deny(401, "", "This server is for callers that say who they are: show a token")

    # -- who is calling

    async def __call__(self, handshake: Handshake) -> Admitted | Denied:
        verdict = await self._decide(handshake)
        self._audit.door(verdict, handshake)
        return verdict

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that every call needs."""
        return self._scopes

    def at_once(self, credentials: bytes) -> Standing | None:
        """Return the decision about a token that was verified before, or about a request without one; None where the
        guard has to be called: the token is not known yet, or each such decision is logged or audited."""
        known, wants = self._known, self._audit.wants
        if not credentials:
            if self._certificates or wants(DENIED):
                return None
            return Standing(self._nobody, lambda: not wants(DENIED))
        if known is None or wants(ADMITTED) or credentials[:7].lower() != b"bearer ":
            return None
        token = credentials[7:]
        if len(token) > self._limits.token or TOKEN68.fullmatch(token) is None:
            return None  # such a token will be refused when it is checked
        identity = known(token)
        if identity is None or not self._scopes <= identity.scopes:
            return None
        admitted = Admitted(identity=identity, expires=identity.expires_at)
        holds = None if self._holding is None else self._holding(token)
        if holds is None:
            return Standing(admitted)
        return Standing(admitted, lambda: holds() and not wants(ADMITTED))

    async def _decide(self, handshake: Handshake) -> Admitted | Denied:
        if handshake.scheme == "unix":
            return self._user(handshake)
        shown = [value for name, value in handshake.headers if name == b"authorization"]
        proofs = sum(name == b"dpop" for name, _ in handshake.headers)
        if len(shown) > 1 or proofs > 1:
            which = "Authorization" if len(shown) > 1 else "DPoP"
            return self._deny(400, "invalid_request", f"There are {max(len(shown), proofs)} {which} header fields")
        # "Access tokens MUST NOT be included in the URI query string" (MCP, Token Requirements)
        if _TOKEN_IN_QUERY.search(handshake.url.partition("?")[2]):
            return self._deny(400, "invalid_request", "A token stands in the Authorization header, never in the URL")
        if not shown:
            if self._certificates and handshake.certificate is not None:
                return await self._verify("", handshake)
            return self._nobody
        return await self._decide_field(shown[0], handshake)

    async def _decide_field(self, field: bytes, handshake: Handshake) -> Admitted | Denied:
        """Return the decision about an `Authorization` field."""
        found = _CREDENTIALS.fullmatch(field)
        if found is None:
            return self._deny(400, "invalid_request", "The Authorization header is not `Bearer` and a token")
        scheme, token = found[1].lower(), found[2] or b""
        if scheme not in (b"bearer", b"dpop"):
            return self._deny(401, "", "This server takes tokens: Authorization: Bearer ...")
        if len(token) > self._limits.token:  # before anything of it is decoded
            words = f"The token has {len(token)} bytes, and {self._limits.token} are allowed"
            return self._deny(401, "invalid_token", words)
        if TOKEN68.fullmatch(token) is None:
            return self._deny(400, "invalid_request", "The Authorization header is not `Bearer` and one token")
        return await self._verify(token.decode("ascii"), handshake)

    async def _verify(self, token: str, handshake: Handshake) -> Admitted | Denied:
        refused: TokenRefused | None = None
        away: IssuerAway | None = None
        for verifier in self._bases:
            if not token and not verifier.certificates:
                continue
            try:
                identity = await verifier.verify(token, handshake)
            except TokenRefused as why:
                refused = refused or why
            except IssuerAway as why:
                away = away or why
            else:
                if identity is not None:
                    return self._admit(identity)
        if away is not None:
            lines = (("Retry-After", str(away.retry_after)),)
            return Denied(
                reason=f"No one can say now whose the token is: {away.description}", status=503, headers=lines
            )
        if refused is None:
            return self._deny(401, "invalid_token", "This server does not know the token")
        status = {"invalid_request": 400, "insufficient_scope": 403}.get(refused.error, 401)
        return self._deny(status, refused.error, refused.description, refused.headers, scheme=refused.scheme)

    def _admit(self, identity: Identity) -> Admitted | Denied:
        if not self._scopes <= identity.scopes and not isinstance(identity, LocalUser):
            needed = " ".join(sorted(self._scopes))
            return self._deny(403, "insufficient_scope", f"Every call here needs the scopes {needed}")
        return Admitted(identity=identity, expires=identity.expires_at)

    def _user(self, handshake: Handshake) -> Admitted | Denied:
        """Return the decision about a process of this machine, by the credentials that the kernel reports."""
        process = handshake.credentials
        if process is None:
            return Denied(reason="The system does not say whose process calls")
        if process.uid == user_id():
            return self._admit(local_user())
        scopes = self._users.get(process.uid)
        if scopes is None:
            return Denied(reason=f"The user {process.uid} may not call here", status=403)
        return self._admit(Identity(subject=f"uid:{process.uid}", issuer="local:", scopes=scopes))

    # -- denials and their challenges

    def _deny(
        self,
        status: int,
        error: str,
        words: str,
        headers: Iterable[tuple[str, str]] = (),
        scheme: str = "",
    ) -> Denied:
        """Return a denial with its challenges. `scheme`: the challenge that names the error; "": each does."""
        challenges = self._challenges(error, words if error else "", self._scopes, scheme)
        lines = [*((_CHALLENGE, one) for one in challenges), *headers]
        return Denied(reason=words, status=status, headers=lines)

    def _challenges(self, error: str, words: str, scopes: Iterable[str], scheme: str = "") -> list[str]:
        found = []
        named = " ".join(sorted(set(scopes) - _NOT_OF_A_RESOURCE))
        for own in ("Bearer", "DPoP"):
            if self._dpop == ("required" if own == "Bearer" else "off"):
                continue
            params: dict[str, str] = {}
            if error and scheme in ("", own):
                # RFC 6750 section 3.1: without authentication information there is no error code
                params |= {"error": error, "error_description": describe(words)}
            if own == "DPoP":
                params["algs"] = "ES256 EdDSA RS256"
            if named:
                params["scope"] = named
            if self._metadata:
                params["resource_metadata"] = self._metadata
            found.append(Challenge(own, params).text())
        return found

    def naming(self, denied: Denied, scopes: frozenset[str]) -> Denied:
        """Return a denial whose challenges name these scopes beside those that they name already."""
        wanted = scopes - _NOT_OF_A_RESOURCE
        lines = [(name, _with_scopes(value, wanted) if name == _CHALLENGE else value) for name, value in denied.headers]
        return msgspec.structs.replace(denied, headers=lines) if wanted else denied

    def challenged(self, refusal: Refusal, caller: Caller, *, granted: bool = False) -> Refusal:
        """Return a refusal of the kind "forbidden" with its challenge, and record it. `granted`: whether the challenge
        also names the scopes that the caller has already."""
        scopes = frozenset(refusal.data.get("scopes", ()))
        self._audit.call(refusal, caller)
        if not scopes:  # a new login would not help, so there is nothing to show
            return refusal
        if granted and caller.identity is not None:
            # up to 2025-11-25 clients request the scopes that the challenge names, and no others, so it names "any
            # previously granted scopes that are relevant" too (Scope Challenge Handling)
            scopes |= caller.identity.scopes & (self._scopes | self.demanded())
        challenge = self._challenges("insufficient_scope", refusal.reason, scopes)[0]
        return msgspec.structs.replace(refusal, challenge=challenge)

    @property
    def verifiers(self) -> Sequence[Verifier]:
        """The verifiers, in the order in which they are called."""
        return self._verifiers

    @property
    def room(self) -> int:
        """Bytes by which the limit of a request's header is raised, to have room for a token."""
        return self._limits.token + _AROUND

    def too_long(self) -> tuple[str, str]:
        """Return the header field of the answer to a request whose header is too long to be read."""
        return (_CHALLENGE, self._challenges("invalid_request", "The header is too long", self._scopes)[0])

    # -- what is published

    def demanded(self) -> frozenset[str]:
        """Return the scopes that the methods of all guarded objects demand."""
        return frozenset().union(*(one() for one in self._demanded))

    def demands(self, scopes: Callable[[], frozenset[str]]) -> None:
        """Add the scopes that the methods of one more guarded object demand. `scopes` is called when they are
        needed."""
        self._demanded.append(scopes)

    def documents(self) -> Mapping[str, Document]:
        """Return the protected resource metadata (RFC 9728) by path: one with the resource's path inserted, and one at
        the root. They are made from configuration, never from `Host`."""
        if not self._metadata:
            return {}
        document = Document("application/json", self._document)
        locations = [location.partition("://")[2] for location in resource_locations(self.resource)]
        return {"/" + location.partition("/")[2]: document for location in locations}

    def _document(self) -> bytes:
        scopes = sorted((self._scopes or self.demanded()) - _NOT_OF_A_RESOURCE)
        found: dict[str, Any] = {"resource": self.resource, "authorization_servers": list(self._issuers)}
        # "the minimal set of scopes necessary for basic functionality" (2026-07-28): those of every call; where there
        # are none, all, since a client that asks for none gets a token that can do nothing here
        found |= {"scopes_supported": scopes} if scopes else {}
        found["bearer_methods_supported"] = ["header"]
        found |= {"resource_name": self._name} if self._name else {}
        found |= {"resource_documentation": self._documentation} if self._documentation else {}
        if self._dpop != "off":
            found["dpop_signing_alg_values_supported"] = ["ES256", "EdDSA", "RS256"]
            found["dpop_bound_access_tokens_required"] = self._dpop == "required"
        return msgspec.json.encode(found)

    def share(self, store: SeenOnce) -> Callable[[], None]:
        """Remember used DPoP proofs in this store too, until the returned function is called."""
        ends = [one.share(store) for one in self._bases]

        def end() -> None:
            for each in ends:
                each()

        return end

    def known(self, caller: Caller) -> Caller:
        """Return the caller of a wire within this machine (stdio, memory) as this process's user; any other caller
        unchanged."""
        return known(caller)

    def lacks(self, scheme: str) -> str:
        """Return why callers on the wire of this scheme cannot authenticate; "" if they can."""
        if scheme in _HTTP or scheme in _LOCAL:
            return ""
        if scheme == "unix":
            return "" if user_id() is not None else "this system does not say whose process calls on a Unix socket"
        if scheme == "tls":
            return "" if self._certificates else "a token has no place there; callers show certificates: MutualTls(...)"
        row = SCHEMES.get(scheme)
        if row is not None and row.unguarded:
            return row.unguarded
        return "" if row is not None and row.address != "host" else "nothing on it says who is calling"


def _with_scopes(value: str, scopes: frozenset[str]) -> str:
    """Return one of our own challenges with these scopes added to its own."""
    found = parse_challenges(value)[0]
    named = " ".join(sorted(scopes.union(found.scopes)))
    return Challenge(found.scheme, {**found.params, "scope": named}).text()


def protection_of(auth: Verifiers) -> TokenGuard:
    """Return the guard for the value of `auth=`: a verifier, several, or the guard itself. Raises LocalError."""
    if isinstance(auth, TokenGuard):
        return auth
    return TokenGuard(*auth) if isinstance(auth, list | tuple) else TokenGuard(cast("Verifier", auth))


def _describe(value: object) -> str:
    return f"{value!r:.60}" if isinstance(value, str) else type(value).__name__
