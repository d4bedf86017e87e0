"""The keys of an issuer: found by its metadata, fetched once for all who wait, renewed ahead of time in the background.

- A token with an unknown `kid` makes us fetch the keys anew, for an issuer may change them at any time. If the key is
  still unknown then, it is not fetched again for `COOLDOWN` seconds, so that tokens with invented names cost one fetch
  in that time. Until then a further token with an unknown `kid` gets IssuerAway and not a refusal: its key may be new,
  and a stranger's invented name must not make a good token a bad one.
- While the issuer does not answer, its last keys serve, but no longer than `LIFE` seconds after they came, since it may
  have withdrawn one meanwhile. After that, and where there were none, a token gets IssuerAway: 503 and not 401.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextvars import Context
from typing import Any, Final

from .errors import AuthError, IssuerAway, TokenRefused, UnknownKey
from .fetching import FetchesDocuments
from .jose import Key, KeySet, Secret, UnverifiedToken, VerifiedToken, verify_signature
from .limits import DEFAULTS, AuthLimits
from .metadata import ServerMetadata, check_document_issuer, decode_document, server_locations
from .tokens import Issuer

log: logging.Logger = logging.getLogger("dragoman.auth")

FRESH: Final = 900.0
"""Seconds after which keys are fetched anew, where the issuer does not say."""
FRESHEST: Final = (60.0, 3600.0)
"""The bounds of what the issuer may say (`Cache-Control: max-age`), in seconds: with a year it could never withdraw a
key."""
LIFE: Final = 4 * 3600.0
"""Seconds for which keys serve while the issuer does not answer: enough for an outage of a morning, and less than a day
for a stolen key."""
COOLDOWN: Final = 10.0
"""Seconds for which unknown `kid`s cause no fetch, after one did in vain."""
PATIENCE: Final = 30.0
"""The longest pause between two tries while the issuer does not answer, in seconds."""
METADATA_LIFE: Final = 24 * 3600.0
"""Seconds for which an issuer's metadata are kept."""

_MAX_AGE: Final = re.compile(r"(?:^|[\s,])max-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)


class SingleFlight:
    """Runs one function at a time, for all who wait for its result. A caller may be cancelled; the function goes on."""

    __slots__ = ("_run", "_task")

    def __init__(self, run: Callable[[], Any]) -> None:
        self._run = run
        self._task: asyncio.Task[Any] | None = None

    def begin(self) -> tuple[asyncio.Task[Any], bool]:
        """Return the running task, and whether this call began it."""
        task = self._task
        if task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop():
            return task, False
        # in a context of its own: it belongs to no single request
        task = self._task = asyncio.get_running_loop().create_task(self._run(), context=Context())
        task.add_done_callback(_ignore_failure)
        return task, True

    async def join(self) -> Any:
        """Return the function's result, or raise what it raised; it is begun if it does not run."""
        return await asyncio.shield(self.begin()[0])


def _ignore_failure(task: asyncio.Task[Any]) -> None:
    """Retrieve a failure that nobody awaited, so that asyncio does not log it: it was logged where it happened."""
    if not task.cancelled():
        task.exception()


class IssuerKeys:
    """The keys and the metadata of one issuer.

    `changed` is called when the issuer has withdrawn a key. `clock`: seconds, monotonic. `given`: the one key with
    which it signs; then none is fetched."""

    __slots__ = (
        "_away_until",
        "_changed",
        "_clock",
        "_cooldown_until",
        "_failures",
        "_fetched",
        "_fetcher",
        "_flight",
        "_fresh",
        "_given",
        "_keys",
        "_metadata",
        "_metadata_at",
        "issuer",
        "limits",
    )

    def __init__(
        self,
        issuer: Issuer,
        fetcher: Callable[[], FetchesDocuments],
        *,
        changed: Callable[[], object] = lambda: None,
        limits: AuthLimits = DEFAULTS,
        clock: Callable[[], float] = time.monotonic,
        given: Key | Secret | None = None,
    ) -> None:
        self.issuer: Issuer = issuer
        self._given = given
        self._fetcher, self._changed, self.limits, self._clock = fetcher, changed, limits, clock
        self._keys: KeySet | None = None
        self._metadata: ServerMetadata | None = None
        self._fetched = self._metadata_at = self._away_until = self._cooldown_until = float("-inf")
        self._fresh = FRESH
        self._failures = 0
        self._flight = SingleFlight(self._fetch)

    async def verify_signature(self, parts: UnverifiedToken) -> VerifiedToken:
        """Verify a token's signature with these keys. Its claims are not checked. Raises TokenRefused and
        IssuerAway."""
        if self._given is not None:
            return verify_signature(parts, (self._given,), limits=self.limits)
        found = await self.find(parts.header)
        try:
            return verify_signature(parts, found, limits=self.limits)
        except TokenRefused:
            if parts.header.get("kid") is not None:
                raise
        try:
            return verify_signature(parts, await self.renew(parts.header), limits=self.limits)
        except TokenRefused:
            self.cool_down()
            raise

    async def find(self, header: Mapping[str, Any]) -> tuple[Key, ...]:
        """Return the keys that may have signed a token with this header, as `KeySet.find` does. Raises TokenRefused,
        UnknownKey and IssuerAway."""
        keys = await self._keys_now()
        try:
            return keys.find(header, self.limits)
        except UnknownKey:
            return await self.renew(header)

    async def renew(self, header: Mapping[str, Any]) -> tuple[Key, ...]:
        """Return the keys that may have signed a token, in a set that is fetched after the token came; also for a token
        without `kid` that no known key has signed, since a new one may have. Raises UnknownKey where the set has none,
        IssuerAway within `COOLDOWN` seconds after that."""
        for turn in range(2):
            left = self._cooldown_until - self._clock()
            if left > 0:
                raise IssuerAway("The key of the token is not known, and is looked for again soon", int(left) + 1)
            ours = await self._renew()
            try:
                return self._held().find(header, self.limits)
            except UnknownKey:
                if ours:
                    self.cool_down()
                # the fetch that ran already may be older than the key: then once more
                if ours or turn:
                    raise UnknownKey("The token is signed by a key that its issuer does not publish") from None
        raise AssertionError("the second turn ends")

    def cool_down(self) -> None:
        """Fetch no keys for unknown `kid`s for `COOLDOWN` seconds."""
        self._cooldown_until = self._clock() + COOLDOWN

    def _held(self) -> KeySet:
        assert self._keys is not None, "it was fetched"
        return self._keys

    async def _keys_now(self) -> KeySet:
        age = self._clock() - self._fetched
        if self._keys is not None:
            if age < self._fresh:
                return self._keys
            if age < min(2 * self._fresh, LIFE):
                if self._clock() >= self._away_until:
                    self._flight.begin()
                return self._keys
            if age < LIFE:  # unused for long: the keys are renewed before they serve, if the issuer answers
                try:
                    await self._renew()
                except IssuerAway:
                    pass
                return self._keys
        await self._renew()
        return self._held()

    async def _renew(self) -> bool:
        """Fetch the keys; return whether this call began it. Raises IssuerAway."""
        left = self._away_until - self._clock()
        if left > 0:
            raise IssuerAway("The issuer of the token does not answer", int(left) + 1)
        task, ours = self._flight.begin()
        await asyncio.shield(task)
        return ours

    async def _fetch(self) -> None:
        try:
            url = self.issuer.jwks_uri
            by = "operator" if url is not None else "document"
            if url is None:
                url = (await self._fetch_metadata()).jwks_uri
            if url is None:
                raise AuthError("its metadata name no jwks_uri")
            answer = await self._fetcher().get(url, by=by, origin=self.issuer.issuer)
            if answer.status != 200:
                raise AuthError(f"its keys answer with status {answer.status}")
            keys = KeySet.from_json(answer.body, limits=self.limits)
        except (AuthError, OSError) as error:
            raise self._count_failure(error) from error
        self._failures, self._fetched = 0, self._clock()
        self._fresh = fresh(answer.headers)
        before, self._keys = self._keys, keys
        for line in keys.skipped:
            log.debug("a key of %s is left out: %s", self.issuer.issuer, line)
        if before is not None and not keys.keeps(before):
            self._changed()

    def _count_failure(self, error: Exception) -> IssuerAway:
        """Count a failure, and return the error that says how long to wait."""
        self._failures += 1
        self._metadata = None  # they may be what is out of date
        pause = min(PATIENCE, 2.0 ** min(self._failures - 1, 10))
        self._away_until = self._clock() + pause
        log.warning("the keys of %s cannot be fetched: %s", self.issuer.issuer, error)
        return IssuerAway("The issuer of the token does not answer", int(pause))

    async def metadata(self) -> ServerMetadata:
        """Return the metadata of the issuer. Raises IssuerAway."""
        try:
            return await self._fetch_metadata()
        except (AuthError, OSError) as error:
            log.warning("the metadata of %s cannot be fetched: %s", self.issuer.issuer, error)
            raise IssuerAway("The issuer of the token does not answer") from error

    async def _fetch_metadata(self) -> ServerMetadata:
        if self._metadata is not None and self._clock() < self._metadata_at + METADATA_LIFE:
            return self._metadata
        row = self.issuer
        self._metadata = await fetch_metadata(self._fetcher(), row.issuer, row.aliases, row.metadata_uri)
        self._metadata_at = self._clock()
        return self._metadata


async def fetch_metadata(
    fetcher: FetchesDocuments, issuer: str, aliases: Collection[str] = (), metadata_uri: str | None = None
) -> ServerMetadata:
    """Return the metadata of an issuer that the operator named. `aliases`: other issuers that the metadata may name;
    `metadata_uri`: their URL; None: the well-known ones. Raises AuthError."""
    why = "its metadata are at none of the well-known places"
    # MCP, authorization server metadata discovery: RFC 8414 first, OpenID Connect after it
    for each in [metadata_uri] if metadata_uri else server_locations(issuer):
        try:
            answer = await fetcher.get(each, by="operator", origin=issuer)
            if answer.status != 200:
                continue
            found = decode_document(answer.body, ServerMetadata, each)
        except (AuthError, OSError) as error:
            why = str(error)
            continue
        check_document_issuer(found, issuer, aliases)
        return found
    raise AuthError(why)


def fresh(headers: Mapping[str, str]) -> float:
    """Return the seconds for which keys are fresh, by `Cache-Control`, within `FRESHEST`."""
    found = _MAX_AGE.search(headers.get("cache-control", ""))
    return FRESH if found is None else min(max(float(found[1]), FRESHEST[0]), FRESHEST[1])
