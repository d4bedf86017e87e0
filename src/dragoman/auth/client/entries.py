"""The logins in a store, for the commands that list, show and end them."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import AuthError
from ..fetch import Fetcher
from ..metadata import canonical
from .grants import revoke
from .requests import Sender
from .store import EntryKey, TokenStore
from .tokens import Grant
from .world import World, forget_client


class StoredLogin(Struct, frozen=True):
    """A login that is stored."""

    pointer: EntryKey
    """The entry that leads from the URL to the grant."""
    grant: Grant

    @property
    def hint(self) -> str:
        """The client id, or the URL of its document, that the user gave."""
        return self.pointer.client

    def shown(self, now: float | None = None) -> dict[str, Any]:
        """Return what may be shown of it: no token, no secret."""
        grant, tokens = self.grant, self.grant.tokens
        left = None if tokens is None or tokens.expires_at is None else tokens.expires_at - (now or time.time())
        return {
            "url": grant.url,
            "account": grant.account,
            "issuer": grant.server.issuer,
            "resource": grant.resource,
            "client_id": grant.client.client_id,
            "client": grant.client.how,
            "scopes": list(tokens.scopes) if tokens is not None else [],
            "logged_in": tokens is not None and (left is None or left > 0 or tokens.refresh_token is not None),
            "expires_in": None if left is None else int(left),
            "renewable": tokens is not None and tokens.refresh_token is not None,
            "bound": grant.dpop_key is not None,
            "subject": None if tokens is None else subject_of(tokens.access_token),
        }


def subject_of(token: str) -> str | None:
    """Return the `sub` of a token that is a JWT, as it says and unverified; for display only."""
    from ..jose import ASYMMETRIC, parse_jws  # noqa: PLC0415  (joserfc, for those who look)

    try:
        subject = parse_jws(token, ASYMMETRIC).claims().get("sub")
    except AuthError:
        return None
    return subject if isinstance(subject, str) else None


async def entries(store: TokenStore) -> list[StoredLogin]:
    """Return all logins. Raises TokenStoreError."""
    found = []
    for key in await store.keys():
        if key.issuer == "" and (one := await _entry(store, key)) is not None:
            found.append(one)
    return sorted(found, key=lambda one: (one.grant.url, one.grant.account))


async def entry_of(store: TokenStore, url: str, account: str = "default") -> StoredLogin | None:
    """Return the login for a URL, of any client. Raises TokenStoreError."""
    for key in await store.keys():
        if key.issuer == "" and key.resource == canonical(url) and key.account == account:
            return await _entry(store, key)
    return None


async def _entry(store: TokenStore, key: EntryKey) -> StoredLogin | None:
    try:
        pointer = await store.read(key)
        stored = None if pointer is None else await store.read(msgspec.json.decode(pointer.value, type=EntryKey))
        return None if stored is None else StoredLogin(key, msgspec.json.decode(stored.value, type=Grant))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


async def end(store: TokenStore, entry: StoredLogin, fetcher: Fetcher, *, forget: bool = False) -> bool:
    """Log out: revoke the tokens at the server, and remove them here, also if the server does not answer. `forget`:
    forget the client's registration too. Return whether the server revoked them. Raises TokenStoreError."""
    grant, done = entry.grant, False
    try:
        if grant.tokens is not None:
            key = None
            if grant.dpop_key is not None:
                from ..jose import Key  # noqa: PLC0415  (joserfc, for tokens that are bound)

                key = Key.from_jwk(grant.dpop_key)
            sender = Sender(grant.client, grant.server, by=grant.by, private=grant.private, dpop=key)
            done = await revoke(World(grant.url, fetcher, store, None), sender, grant.tokens)
    except AuthError:
        done = False
    finally:
        for one in (grant.key(entry.hint), entry.pointer):
            if (stored := await store.read(one)) is not None:
                await store.remove(one, stored.generation)
        if forget:
            await forget_client(store, grant.server.issuer)
    return done
