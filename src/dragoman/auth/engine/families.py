"""Grants and their refresh tokens, which rotate (RFC 9700, 4.14.2; OAuth 2.1, 4.3.1).

A grant with its refresh tokens is a family of tokens. A refresh token names its grant and its generation, and is
signed. So one that was used before differs from one that was never issued: the former ends the whole grant, because
either its holder or that of the present one is a thief; the latter is only refused. For a short time the last but one
gets the same answer once more, because answers get lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from msgspec import structs

from ..jose import encode_base64url
from .messages import oauth_error
from .model import Client, TokenFamily
from .records import Records
from .seals import Signer

_FORM = re.compile(r"([A-Za-z0-9_-]{22})\.([0-9]{1,9})\.([A-Za-z0-9_-]{43})")
_USE = "refresh"
_ENDED = "The grant has ended"
_REUSED = "The refresh token was used before; the grant has ended"


class Families:
    """Keeps grants, and rotates their refresh tokens."""

    def __init__(self, records: Records, signer: Signer) -> None:
        self._records, self._signer = records, signer

    @staticmethod
    def new_id() -> str:
        """Return the id of a new grant."""
        return encode_base64url(os.urandom(16))

    def token(self, id: str, generation: int) -> str:
        """Return the refresh token of a generation."""
        text = f"{id}.{generation}"
        return f"{text}.{self._signer.mark(_USE, text)}"

    def read(self, token: str) -> tuple[str, int] | None:
        """Return the id of the grant, and the generation, of a refresh token; None for text that was never issued."""
        found = _FORM.fullmatch(token)
        if found is None or not self._signer.is_mark(_USE, f"{found[1]}.{found[2]}", found[3]):
            return None
        return found[1], int(found[2])

    async def begin(self, id: str, family: TokenFamily, life: float) -> None:
        """Store a new grant. `life`: seconds."""
        await self._records.put("family", id, family, life)

    async def get(self, id: str) -> TokenFamily | None:
        """Return the grant; None once it has ended."""
        found = await self._records.get("family", id, TokenFamily)
        return None if found is None or _over(found, self._records.clock()) else found

    async def end(self, id: str) -> None:
        """End a grant: its refresh tokens are refused, its access tokens inactive, its records removed."""
        await self._records.take("family", id, TokenFamily)
        await self._records.take("upstream", id, dict)

    async def is_alive(self, token_id: object) -> bool:
        """Return whether the grant of an access token, by its `jti`, still exists; True for one without a grant."""
        if not isinstance(token_id, str) or await self._records.get("revoked", token_id, bool):
            return False
        id, dot, _ = token_id.partition(".")
        return not dot or await self.get(id) is not None

    async def refresh(
        self,
        token: str,
        client: Client,
        jkt: str,
        requested: str,
        answer: Callable[[str, TokenFamily], str],
        *,
        life: float,
        grace: float,
    ) -> str:
        """Use a refresh token, and return the answer. `jkt`: the key of the request's proof; `requested`: the request's
        scopes and resources, as a text; `answer`: makes the answer from the next refresh token and the renewed grant;
        `life`: seconds until the grant expires unused; `grace`: seconds in which the used token gets the same answer
        again. Raises OAuthError (`invalid_grant`)."""
        named = self.read(token)
        if named is None:
            raise oauth_error("invalid_grant", "The refresh token was not issued here")
        id, generation = named
        now = self._records.clock()

        def edit(found: TokenFamily | None) -> tuple[TokenFamily | None, Any]:
            if found is None or _over(found, now):
                return None, _ENDED
            if found.client != client.id:
                return found, "The refresh token was issued to another client"
            # RFC 9449, 5: refresh tokens of public clients are bound to the key of their proof
            if found.jkt and found.jkt != jkt:
                return found, "The refresh token is bound to another key"
            if generation == found.generation:
                renewed = structs.replace(
                    found, generation=generation + 1, graced=now + grace, requested=requested, answer=""
                )
                made = answer(self.token(id, generation + 1), renewed)
                return structs.replace(renewed, answer=made if grace else ""), (made,)
            if (
                generation == found.generation - 1
                and now < found.graced
                and requested == found.requested
                and found.answer
            ):
                return found, (found.answer,)
            # RFC 9700, 4.14.2: "the authorization server cannot determine which party submitted the invalid refresh
            # token, but it will revoke the active refresh token"
            return None, _REUSED

        result = await self._records.change("family", id, TokenFamily, edit, life)
        if isinstance(result, str):
            if result in (_REUSED, _ENDED):
                await self.end(id)
            raise oauth_error("invalid_grant", result)
        whole: str = result[0]
        return whole


def _over(grant: TokenFamily, now: float) -> bool:
    return 0 < grant.ends <= now
