"""Who may make a call: the scopes, roles and function that a method demands, and the refusal of others. Pure.

A guard says who a caller is, when it comes (`channel.Guard`). What a method demands of its callers is checked here,
once the method is known and before any work of the call has begun. A caller that lacks it gets a refusal, "forbidden".

- `scopes`: the caller has all of them. One that lacks some learns all that the call needs, so that it can request them
  at once (MCP 2026-07-28, authorization, Scope Challenge Handling).
- `roles`: the caller has one of them. `allow`: a function of the identity and the arguments returns True. A new login
  would not help a caller that fails here, so its refusal is not an "insufficient_scope".
- The user of this machine (`LocalUser`, on stdio and in memory) has all scopes and roles; `allow` is called.
- A caller without an identity is refused, and so is a call for which `allow` raises.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from .channel import Admitted, Caller, Denied, Document, Handshake, Identity
from .jsonrpc.errors import NO_IDENTITY, CallRefused, LocalError, Refusal, RpcError
from .system.sockets import user_id

log: logging.Logger = logging.getLogger("dragoman.auth")

Allow: TypeAlias = Callable[[Identity, Mapping[str, Any] | None], bool]
"""Decides whether a caller may make a call with these arguments, by name; with None, whether lists show it the
method."""

_SCOPE: Final = r"[\x21\x23-\x5b\x5d-\x7e]+"
"""scope-token of RFC 6749, section 3.3."""
_LOCAL: Final = frozenset({"stdio", "memory"})
"""Wires whose callers are this machine's user: they have the rights of this process anyway."""
_KIND: Final = "forbidden"


class LocalUser(Identity, frozen=True, kw_only=True):
    """The user of this machine: a caller on stdio or in memory. It has all scopes and roles."""


class Access(Struct, frozen=True, kw_only=True, eq=False):
    """What a method demands of its callers."""

    scopes: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    allow: Allow | None = None
    arguments: Callable[[Any], Mapping[str, Any]]
    """Decodes the arguments, by name, of the params of a message, for `allow`. Raises where they do not fit."""

    @property
    def hides(self) -> bool:
        """Whether lists show the method to some callers alone."""
        return bool(self.roles) or self.allow is not None

    def shown(self, caller: Caller) -> bool:
        """Return whether lists show the method to this caller. A missing scope does not hide it: the caller can request
        the scope."""
        identity = identity_of(caller)
        if not self.hides:
            return True
        if identity is None or not self._has_role(identity):
            return False
        return self.allow is None or _is_allowed(self.allow, identity, None)

    def refusal(self, caller: Caller, params: Any) -> Refusal | None:
        """Why this caller may not make the call; None if it may."""
        identity = identity_of(caller)
        if identity is None:
            return _forbid(NO_IDENTITY.reason, self.scopes)
        if not self._has_role(identity):
            return _forbid("Forbidden: this caller may not make this call")
        if self.scopes and not (self.scopes <= identity.scopes or isinstance(identity, LocalUser)):
            needed = " ".join(sorted(self.scopes))
            return _forbid(f"Forbidden: this call needs the scopes {needed}", self.scopes)
        if self.allow is None:
            return None
        try:
            arguments = self.arguments(params)
        except RpcError:  # they do not fit: the call ends in the error that says so, and nothing runs
            return None
        return None if _is_allowed(self.allow, identity, arguments) else _forbid("Forbidden: not with these arguments")

    def reading(self, arguments: Callable[[Any], Mapping[str, Any]]) -> Access:
        """Return a copy that decodes the arguments of a call by this function."""
        return replace(self, arguments=arguments)

    def without_arguments(self) -> Access:
        """Return a copy for requests about the method, such as a completion, which have no arguments of it."""
        allow = self.allow
        if allow is None:
            return self
        return replace(self, allow=lambda identity, _: allow(identity, None), arguments=lambda _: {})

    def passed(self, caller: Caller) -> bool:
        """Return whether this caller may make the call, as far as that is known without its arguments."""
        return self.without_arguments().refusal(caller, None) is None

    def demand(self, message: Any, caller: Caller, challenge: Callable[[Refusal, Caller, Any], Refusal] | None) -> None:
        """Raise CallRefused, "forbidden", unless this caller may make the call. `challenge`: adds to the refusal what
        the caller must show."""
        refusal = self.refusal(caller, message.params)
        if refusal is not None:
            raise CallRefused(refusal if challenge is None else challenge(refusal, caller, message.params))

    def _has_role(self, identity: Identity) -> bool:
        return not self.roles or isinstance(identity, LocalUser) or not self.roles.isdisjoint(identity.roles)


def _forbid(reason: str, scopes: frozenset[str] = frozenset()) -> Refusal:
    data: dict[str, Any] = {"error": "insufficient_scope", "scopes": sorted(scopes)} if scopes else {}
    return Refusal(_KIND, reason, data or {"error": "access_denied"})


def _is_allowed(allow: Allow, identity: Identity, arguments: Mapping[str, Any] | None) -> bool:
    try:
        return allow(identity, arguments) is True
    except Exception:
        reference = os.urandom(6).hex()
        log.exception(
            "allow=%s raised, reference %s: the call is refused", getattr(allow, "__name__", allow), reference
        )
        return False


def scopes_of(where: str, scopes: str | Collection[str]) -> frozenset[str]:
    """Return scopes that a user gave, as one text with spaces between them or each by itself. Raises LocalError,
    beginning with `where`, for one that no token could have (RFC 6749 section 3.3)."""
    found = frozenset(scopes.split() if isinstance(scopes, str) else scopes)
    for scope in found:
        if not isinstance(scope, str) or re.fullmatch(_SCOPE, scope) is None:
            raise LocalError(f"{where}: {scope!r} is not a scope: visible ASCII without spaces, quotes and backslashes")
    return found


def access_of(
    name: str,
    scopes: str | Collection[str],
    roles: str | Collection[str],
    allow: Allow | None,
    arguments: Callable[[Any], Mapping[str, Any]],
) -> Access:
    """Return what a method demands. Raises LocalError for a scope that no token could have, and for an async
    `allow`."""
    needed = scopes_of(name, scopes)
    code = getattr(allow, "__code__", None)
    if code is not None and code.co_flags & 0x3A0:  # a generator, a coroutine, or both
        raise LocalError(f"{name}: allow= is a plain function that answers at once; this one is an async def")
    one_of = frozenset((roles,) if isinstance(roles, str) else roles)
    return Access(scopes=needed, roles=one_of, allow=allow, arguments=arguments)


def together(demanded: Sequence[Access]) -> Access:
    """Return what several methods demand of one caller, with any arguments."""
    scopes = frozenset().union(*(one.scopes for one in demanded))
    hidden = [one for one in demanded if one.hides]

    def allow(identity: Identity, _: Mapping[str, Any] | None) -> bool:
        caller = Caller(identity=identity)
        return all(one.shown(caller) for one in hidden)

    return Access(scopes=scopes, allow=allow if hidden else None, arguments=lambda _: {})


def union(refusals: Iterable[Refusal]) -> Refusal:
    """One refusal for several calls that stand or fall together: it names the scopes of all of them, unless one of them
    is forbidden with any scopes."""
    found = list(refusals)
    for one in found:
        if "scopes" not in one.data:
            return one
    return _scope_refusal(frozenset(scope for one in found for scope in one.data["scopes"]))


def _scope_refusal(scopes: frozenset[str]) -> Refusal:
    return _forbid(f"Forbidden: these calls need the scopes {' '.join(sorted(scopes))}", scopes)


# -- what is included -----------------------------------------------------------------------------


@runtime_checkable
class HasVerifiers(Protocol):
    """A guard, as far as it must be known where the object that it guards is included in another."""

    @property
    def verifiers(self) -> Sequence[Any]:
        """They find the identity behind a token."""

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that every call needs."""


def inherited_scopes(outer: Any, inner: Any) -> frozenset[str]:
    """Return the scopes that the guard of `inner` demands, which calls of its methods need after `outer` has included
    them. Both have `name` and `auth`.

    Raises LocalError where the guard of `outer` admits callers whom that of `inner` cannot know: their names and scopes
    would mean something else there.
    """
    if inner.auth is None or inner.auth is outer.auth:
        return frozenset()
    known = _verifiers(inner.auth)
    issuers = {issuer for one in known for issuer in _issuers(one)}
    for one in _verifiers(outer.auth):
        admits = _issuers(one)
        if any(one is other for other in known) or (admits and issuers >= admits):
            continue
        of = ", ".join(sorted(admits - issuers)) or f"a {type(one).__name__} of its own"
        raise LocalError(
            f"{outer.name} cannot include {inner.name}: callers of {outer.name} are known by {of}, which the auth= of "
            f"{inner.name} does not take: give both the same verifier, or leave out the auth= of {inner.name}"
        )
    return inner.auth.scopes if isinstance(inner.auth, HasVerifiers) else frozenset()


def _verifiers(auth: Verifiers) -> Sequence[Any]:
    if isinstance(auth, HasVerifiers):
        return auth.verifiers
    return auth if isinstance(auth, list | tuple) else (auth,)


def _issuers(verifier: Any) -> frozenset[str]:
    """Return the issuers whose tokens a verifier accepts; none where it does not name them."""
    return frozenset(getattr(verifier, "issuers", ()))


def with_scopes(access: Access | None, scopes: frozenset[str]) -> Access | None:
    """Return what a method demands, and these scopes."""
    if not scopes:
        return access
    if access is None:
        return Access(scopes=scopes, arguments=lambda _: {})
    return replace(access, scopes=access.scopes | scopes)


# -- who it is ------------------------------------------------------------------------------------


def local_user() -> LocalUser:
    """Return the user as whom this process runs."""
    import getpass  # noqa: PLC0415  (start-up: a protected server on a wire within this machine)

    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a uid without a name
        user = user_id()
        name = "local" if user is None else str(user)
    return LocalUser(subject=name, issuer="local:")


def identity_of(caller: Caller) -> Identity | None:
    """Return who the caller is; on wires within this machine, its user."""
    if caller.identity is None and caller.scheme in _LOCAL:
        return local_user()
    return caller.identity


def known(caller: Caller) -> Caller:
    """Return the caller with its identity, where that is this machine's user."""
    if caller.identity is None and caller.scheme in _LOCAL:
        return replace(caller, identity=local_user())
    return caller


# -- what protects a served object ----------------------------------------------------------------


class Standing(Struct, frozen=True):
    """A decision of a guard that was made without waiting."""

    verdict: Admitted | Denied
    holds: Callable[[], bool] | None = None
    """Returns, each time it is called, whether the guard would still decide so about an equal request; None: the guard
    must decide about each request."""


class Verifier(Protocol):
    """Finds the identity behind a token. `dragoman.auth` has several verifiers; any object with this method is one.

    It may have more, which a guard looks for: `known(token: bytes)`, the identity of a token that was verified before
    and needs nothing else of its request, or None; beside it `holding(token: bytes)`, a function that says whether
    `known` would still say the same, and is called instead of it for each further request with an equal head;
    `resource` and `issuers`, which stand in the protected resource's metadata; `dpop`, "off", "accepted" or "required";
    `certificates`, True where it is called without a token too.
    """

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        """Return the identity behind a token; None if this verifier does not know it. Raises TokenRefused with the
        reason for refusing it, IssuerAway where the issuer, whose answer it needs, cannot be reached."""


@runtime_checkable
class Protection(Protocol):
    """A guard of tokens, as wires and served objects know it: `auth.guard.TokenGuard`."""

    async def __call__(self, handshake: Handshake) -> Admitted | Denied:
        """Decide whether a caller is let in."""

    def at_once(self, credentials: bytes) -> Standing | None:
        """Return the decision about the one `Authorization` field of an HTTP request (b"": it has none), if that is
        known without waiting and depends on nothing else of the request; None: ask."""

    def naming(self, denied: Denied, scopes: frozenset[str]) -> Denied:
        """Return a denial whose challenges name these scopes beside those that they name already."""

    def challenged(self, refusal: Refusal, caller: Caller, *, granted: bool = False) -> Refusal:
        """Return a refusal of the kind "forbidden" with its challenge; `granted`: it names those scopes too that the
        caller has already."""

    @property
    def room(self) -> int:
        """The longest token, in bytes, that fits into the header of a request beside its other fields."""

    def too_long(self) -> tuple[str, str]:
        """Return the header field, name and value, for the answer to a request whose header was too long to read."""

    def documents(self) -> Mapping[str, Document]:
        """Return the public documents that say how to get a token, by path."""

    def demands(self, scopes: Callable[[], frozenset[str]]) -> None:
        """Name in challenges and documents also the scopes that `scopes` returns, which methods behind the guard
        demand."""

    def share(self, store: Any) -> Callable[[], None]:
        """Remember what may be used once (DPoP proofs) in this `bus.Store` too, which other processes share, until the
        function that is returned is called."""

    def known(self, caller: Caller) -> Caller:
        """Return the caller of a wire within this machine with its identity, which is its user's; others as they
        are."""

    def lacks(self, scheme: str) -> str:
        """Why callers on this wire cannot say who they are; "" if they can."""


@runtime_checkable
class Protectable(Protocol):
    """A served object that knows what protects it."""

    @property
    def auth(self) -> Verifiers | None:
        """The value of its option `auth`; None without."""

    @property
    def demanded(self) -> frozenset[str] | None:
        """The scopes that its methods demand; None where no method demands anything of its callers."""

    def protect(self, protection: Protection) -> None:
        """Serve behind this guard from now on."""

    @property
    def protection(self) -> Protection | None:
        """The guard behind which it is served."""


Verifiers: TypeAlias = Verifier | Sequence[Verifier] | Protection
"""What is given as `auth=` of what is served: a verifier of tokens, several, of which the first that knows a token
decides, or a guard of them."""
