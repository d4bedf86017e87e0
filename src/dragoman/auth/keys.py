"""The keys of an issuer: found by its metadata, fetched once for all who wait, renewed ahead of time in the background.

- A token with a `kid` that is not known asks for the keys anew, for an issuer may change them at any time. If that did
  not help, no one asks again for `COOLDOWN` seconds: tokens with invented names cost one fetch each time it is over.
  Whether the token of a further one is good no one can say until then, for its key may be new: IssuerAway, so that no
  stranger's invented name makes a good token of a new key a bad one.
- While the issuer is away its last keys serve, but no longer than `LIFE` seconds after they came: a key that it has
  withdrawn in the meantime must end some day. Then, and where there were none, no one can say whether a token is good:
  IssuerAway, which is 503 and not 401.
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
"""Seconds after which keys are fetched anew where the issuer does not say."""
FRESHEST: Final = (60.0, 3600.0)
"""The bounds of what the issuer may say (`Cache-Control: max-age`): one that says a year would never withdraw a key."""
LIFE: Final = 4 * 3600.0
"""Seconds for which keys serve while the issuer is away: an outage of a morning, and no whole day for a stolen key."""
COOLDOWN: Final = 10.0
"""Seconds for which no unknown `kid` asks for the keys, after one did in vain."""
PATIENCE: Final = 30.0
"""The longest pause, in seconds, between two tries while the issuer is away."""
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
        """The task that runs, and whether it was begun by this call."""
        task = self._task
        if task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop():
            return task, False
        # in a context of its own: it belongs to no single request
        task = self._task = asyncio.get_running_loop().create_task(self._run(), context=Context())
        task.add_done_callback(_ignore_failure)
        return task, True

    async def join(self) -> Any:
        """Return its result, begun here if it does not run; raises what it raised."""
        return await asyncio.shield(self.begin()[0])


def _ignore_failure(task: asyncio.Task[Any]) -> None:
    """Ignore a failure for which no one waited: it was logged where it happened."""
    if not task.cancelled():
        task.exception()


class IssuerKeys:
    """The keys and the metadata of one issuer.

    `changed` is called when a key that was there is gone. `clock`: seconds, monotonic. `given`: the one key that it
    signs with; then none is fetched.
    """

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
        """Return the token, its signature verified by these keys. Its claims are not judged. Raises TokenRefused and
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
        """Return the keys that may have signed a token with this header, as `KeySet.find`. Raises IssuerAway."""
        keys = await self._keys_now()
        try:
            return keys.find(header, self.limits)
        except UnknownKey:
            return await self.renew(header)

    async def renew(self, header: Mapping[str, Any]) -> tuple[Key, ...]:
        """Find the keys, by a set that is fetched after the token came; UnknownKey where its key is not among them,
        IssuerAway where that was tried in vain within `COOLDOWN`. Also for a token without `kid` that none of its
        issuer's keys has signed: it may be of a new one."""
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
        """The keys were fetched for a token, and its key is not among them."""
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
            if age < LIFE:  # unused for long: the keys are renewed before they serve, if the issuer is there
                try:
                    await self._renew()
                except IssuerAway:
                    pass
                return self._keys
        await self._renew()
        return self._held()

    async def _renew(self) -> bool:
        """Fetch the keys; whether that was begun here. Raises IssuerAway."""
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
        """Count a failure and say how long to wait."""
        self._failures += 1
        self._metadata = None  # it may be they that are out of date
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
    """Return the metadata of an issuer that the operator named. `aliases`: other names that they may have;
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
