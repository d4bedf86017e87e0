"""Puts what is served behind its guard, and refuses to serve it where no one can say who is calling.

It fails closed: with `auth=` a URL whose wire carries no identity is refused at the start, unless it is named public.
Callers on stdio and in memory are this machine's user. A service without a guard whose methods demand something of
their callers is refused likewise, on every wire over which strangers may call.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from .access import Protectable, Protection, Verifiers
from .channel import Guard, Options, Servable
from .jsonrpc.errors import LocalError
from .net.urls import mask_url, scheme_of

_LOCAL: Final = frozenset({"stdio", "memory"})
_OWN: Final = frozenset({"http", "https", "ws", "wss"})
"""Wires that ask the guard of each served object by its path."""


def protect(served: Mapping[str, Servable], auth: Verifiers | None, guard: Guard | None) -> None:
    """Put each served object behind the guard of `auth`, or of its own. Raises LocalError for two guards of one object,
    and for an object that cannot have one."""
    made: dict[int, Protection] = {}
    for one in {id(one): one for one in served.values()}.values():
        own = one.auth if isinstance(one, Protectable) else None
        given = own if auth is None else auth
        if given is None:
            continue
        if auth is not None and own is not None and own is not auth:
            raise LocalError(f"{one.name} has an auth= of its own: leave one of the two out")
        if guard is not None:
            raise LocalError(f"{one.name}: guard= and auth= both say who is calling: leave one of the two out")
        if not isinstance(one, Protectable):
            raise LocalError(f"{one!r} has no `protect`: auth= is for a Service or a Server; others take guard=")
        if id(given) not in made:
            from .auth.guard import protection_of  # noqa: PLC0415  (an extra, imported when used)

            made[id(given)] = protection_of(given)
        _protect_one(one, made[id(given)])


def _protect_one(one: Protectable, protection: Protection) -> None:
    one.protect(protection)
    protection.demands(lambda: one.demanded or frozenset())


def options_at(url: str, served: Mapping[str, Servable], options: Options, public: Collection[str]) -> Options:
    """Return the options with which to listen at this URL, with the guard of what is served there. Raises LocalError
    where callers cannot say who they are."""
    scheme = scheme_of(url)
    if url in public or scheme in _LOCAL:
        return msgspec.structs.replace(options, guard=None, public=True) if url in public else options
    protections: list[Protection] = []
    for one in served.values():
        protection = one.protection if isinstance(one, Protectable) else None
        if protection is not None:
            _require_identities(url, scheme, protection, options)
            protections.append(protection)
        elif options.guard is None and isinstance(one, Protectable) and one.demanded is not None:
            raise LocalError(
                f"{mask_url(url)}: methods of {one.name} are not for every caller, and nothing says who is calling: give it "
                f"auth=, or serve it for anybody who can reach it: public=[{mask_url(url)!r}]"
            )
    if not protections or scheme in _OWN:
        return options
    return msgspec.structs.replace(options, guard=protections[0])


def _require_identities(url: str, scheme: str, protection: Protection, options: Options) -> None:
    """Raise LocalError unless callers at this URL can say who they are."""
    why = protection.lacks(scheme)
    if not why and scheme == "tls" and options.server_tls is not None:
        why = "callers are not asked for a certificate there (ssl.CERT_REQUIRED)"
        if options.server_tls.verify_mode != ssl.CERT_NONE:
            return
    if why:
        raise LocalError(
            f"{mask_url(url)}: auth= cannot be kept there: {why}; to serve it for anybody who can reach it, say so: "
            f"public=[{mask_url(url)!r}]"
        )
