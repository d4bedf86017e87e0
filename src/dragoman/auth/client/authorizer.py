"""The authorization of the requests to one resource: which token goes with each, and what a 401 or 403 leads to.

Rules:

- No lock is held during a request. Only requests that need a new token wait while one is renewed or a person logs in;
  they share the first one's new token, or its failure.
- On 401: a newer token of this process, then one of another process, then a refresh, then a login; each at most once
  for a request. On 403 with `insufficient_scope`: a login with the union of scopes, at most MOST_STEP_UPS times for an
  operation.
- A refresh holds the entry's lock in the store, reads the entry again, and replaces it only if no one else did.
- A person logs in at one window: a login holds the lock of its entry in the store, and the others wait for its tokens.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs

from ..challenge import Challenge, parse_challenges
from ..errors import AuthError, OAuthError
from ..fetch import Fetched, FetchFailed
from ..metadata import canonical
from .errors import AssertionRefused, AuthorizationFailed, LoginFailed, LoginNeeded
from .grants import Clock, refresh
from .login import TokenRequest
from .requests import Sender, outcome_of
from .store import EntryKey, LockHeld, Stored, TokenStore, TokenStoreError
from .tokens import Grant, NoTokens, Tokens, tokens_of
from .world import World, forget_client, replace_entry

if TYPE_CHECKING:
    from ..jose import Key

logger: logging.Logger = logging.getLogger(__name__)

MOST_STEP_UPS = 2
"""Logins for more scopes that one operation may lead to before one of it succeeds."""
MOST_NONCES = 2
"""Times that a request is sent again with another DPoP nonce."""
MOST_SHOWN = 200
"""Characters of a server's scopes that an error shows."""

Obtain = Callable[[World, TokenRequest], Awaitable[Grant]]
Patience = Callable[[], AbstractContextManager[object]]
_Entry = TypeVar("_Entry", Grant, EntryKey)
_Outcome = TypeVar("_Outcome")


class Authorizer:
    """The authorization of requests to the resource at `url`.

    `obtain`: the flow that gets a new grant. `key`: what this client authenticates with at the token endpoint, instead
    of a secret. `read`: returns the assertion to exchange; it gets the one that was refused, or ""; `closing`: stops
    what `read` began. `hint`: the part of a store's key that tells clients apart. `login_wait`: seconds to wait for a
    login of another process; None: no person logs in here.
    """

    def __init__(
        self,
        url: str,
        obtain: Obtain,
        world: World,
        store: TokenStore,
        *,
        account: str = "default",
        hint: str = "",
        key: Key | None = None,
        read: Callable[[str], Awaitable[Any]] | None = None,
        closing: Callable[[], Awaitable[None]] | None = None,
        login_wait: float | None = None,
        clock: Clock = time.time,
    ) -> None:
        self.url = url
        self.step_ups: dict[str, int] = {}
        self.nonce: str | None = None
        self.grant: Grant | None = None
        self._obtain = obtain
        self._world = world
        self._store = store
        self._key = key
        self._read_text = read
        self._closing = closing
        self._login_wait = login_wait
        self._clock = clock
        self._hint = hint
        self._locator = EntryKey("", canonical(url), hint, account)
        self._generation: int | None = None
        self._loaded = False
        self._lock = asyncio.Lock()
        self.failures: int = 0
        """How many logins and refreshes have failed: a request that waited for one of them fails with it."""
        self._failure = ""
        self._dpop: Key | None = None
        self._login: asyncio.Task[None] | None = None
        self._renewals: set[asyncio.Task[bool]] = set()

    def __repr__(self) -> str:
        return f"Authorizer({canonical(self.url)!r})"

    @property
    def tokens(self) -> Tokens | None:
        """The tokens that are used now."""
        return None if self.grant is None else self.grant.tokens

    def begin(self, operation: str, patience: Patience = nullcontext) -> Attempt:
        """Begin a request. `operation`: what it does, equal for requests that do the same. `patience`: a context in
        which the request does not time out."""
        return Attempt(self, operation, patience)

    # -- a token for a request

    async def current_tokens(self, patience: Patience) -> Tokens | None:
        """Return the tokens to use, renewed if they are about to expire; None: there are none, so let the server
        ask."""
        if not self._loaded:
            async with self._lock:
                if not self._loaded:
                    await self._load()
                    self._loaded = True
        tokens = self.tokens
        now = self._clock()
        if tokens is None or tokens.renew_at is None or tokens.renew_at > now:
            return tokens
        if tokens.refresh_token is None:
            return None if self._is_spent(tokens) else tokens
        seen = self.failures
        with patience():
            async with self._lock:
                # the same token may have been read anew from the store
                if self.tokens is not None and self.tokens.access_token == tokens.access_token:
                    try:
                        self._raise_shared_failure(seen)
                        await self._refresh(tokens)
                    except AuthError:
                        if tokens.expires_at is None or tokens.expires_at <= now:
                            raise
        return self.tokens

    def proof(self, method: str, url: str, token: str) -> str:
        """Return a DPoP proof for a request with this token."""
        from ..dpop import proof  # noqa: PLC0415  (joserfc, for those who bind their tokens)

        return proof(self._bound(), method, url, token=token, nonce=self.nonce)

    def _bound(self) -> Key:
        if self._dpop is None:
            from ..jose import Key  # noqa: PLC0415  (joserfc, for those who bind their tokens)

            if self.grant is None or self.grant.dpop_key is None:
                raise AuthorizationFailed("the token is bound to a key (DPoP) that is not ours")
            self._dpop = Key.from_jwk(self.grant.dpop_key)
        return self._dpop

    # -- a new token

    async def renew(self, used: str | None, challenge: Challenge | None, attempt: Attempt) -> bool:
        """Return, after a 401, whether there is now another token than the one used. Raises AuthError."""
        seen = self.failures
        async with self._lock:
            if self._has_other(used):
                return True
            self._raise_shared_failure(seen)
            if await self._adopt(used):
                return True
            tokens = self.tokens
            if tokens is not None and tokens.refresh_token is not None and not attempt.refreshed:
                attempt.refreshed = True
                if await self._refresh(tokens):
                    return True
            if attempt.logged_in:
                return False
            attempt.logged_in = True
            await self._log_in(challenge)
            return True

    async def log_in(self, challenge: Challenge | None) -> None:
        """Get a new grant, even if there is one. `challenge`: what the server demands. Raises AuthError."""
        async with self._lock:
            await self._load()
            await self._log_in(challenge)

    async def usable_tokens(self, usable: Callable[[Tokens], bool]) -> Tokens:
        """Return tokens that are `usable`: the stored ones, renewed ones, or else those of a new login, which are not
        checked again. Raises AuthError."""
        async with self._lock:
            await self._load()
            tokens = self.tokens
            if tokens is not None and not usable(tokens) and tokens.refresh_token is not None:
                await self._refresh(tokens)
                tokens = self.tokens
            if tokens is None or not usable(tokens):
                await self._log_in(None)
                tokens = self.tokens
        if tokens is None:
            raise AuthorizationFailed(f"there are no tokens for {canonical(self.url)}")
        return tokens

    async def step_up(self, used: str | None, challenge: Challenge, operation: str) -> bool:
        """Return, after a 403 for scopes, whether there is now a token with more of them. Raises AuthError."""
        seen = self.failures
        async with self._lock:
            if self._has_other(used) or await self._adopt(used):
                return True
            self._raise_shared_failure(seen)
            # "Clients SHOULD implement retry limits and SHOULD track scope upgrade attempts to avoid repeated failures
            # for the same resource and operation combination."
            tries = self.step_ups.get(operation, 0)
            if tries >= MOST_STEP_UPS:
                return False
            self.step_ups[operation] = tries + 1
            try:
                await self._log_in(challenge)
            except LoginNeeded as needed:
                lacking = " ".join(challenge.scopes)[:MOST_SHOWN] or "that the login lacks"
                raise LoginNeeded(f"the call needs the scopes {lacking}: {needed}") from needed
            return True

    def _has_other(self, used: str | None) -> bool:
        """Return whether there is another token that can be sent."""
        tokens = self.tokens
        return tokens is not None and tokens.access_token != used and not self._is_spent(tokens)

    def _is_spent(self, tokens: Tokens) -> bool:
        """Return whether it has expired and cannot be renewed."""
        return tokens.refresh_token is None and tokens.expires_at is not None and tokens.expires_at <= self._clock()

    def _raise_shared_failure(self, seen: int) -> None:
        """Raise the failure of the one that held the lock while this one waited: one failure, one window."""
        if self.failures > seen:
            raise AuthorizationFailed(self._failure)

    async def _outcome(self, work: asyncio.Task[_Outcome]) -> _Outcome:
        """Return the outcome of a task that goes on when the request that led to it is cancelled. A failure is that of
        all who wait."""
        work.add_done_callback(_ignore_failure)
        try:
            return await asyncio.shield(work)
        except AuthError as error:
            self.failures += 1
            self._failure = str(error)
            raise

    async def close(self) -> None:
        """Give up a login that no one has finished. A refresh is waited for: its time is bounded."""
        if self._login is not None and not self._login.done():
            self._login.cancel()
            await asyncio.wait([self._login])
        if self._renewals:
            await asyncio.wait(self._renewals)
        if self._closing is not None:
            await self._closing()

    async def _log_in(self, challenge: Challenge | None) -> None:
        """Get a new grant, by a login or by the program's own credentials. It goes on when the request that led to it
        is cancelled, since a person may be in the midst of it; the next one that needs it joins."""
        if self._login is None or self._login.done():
            self._login = asyncio.get_running_loop().create_task(self._obtain_grant(challenge))
        await self._outcome(self._login)

    async def _obtain_grant(self, challenge: Challenge | None) -> None:
        """Get a new grant, unless another process got one while its login was waited for. If that gave up, or was
        killed, the person logs in here."""
        used = None if self.tokens is None else self.tokens.access_token
        words = f"Another process is logging in to {canonical(self.url)}: its login is waited for."
        async with AsyncExitStack() as held:
            if self._login_wait is not None:
                try:
                    await held.enter_async_context(
                        self._store.locked(self._locator, wait=self._login_wait, held=lambda: self._world.say(words))
                    )
                except LockHeld as error:
                    raise LoginFailed(
                        f"another process has been logging in to {canonical(self.url)} for more than "
                        f"{self._login_wait:g} s: finish its login, or end it, and try again"
                    ) from error
                except TokenStoreError as error:  # the store cannot be used; the login serves this process alone
                    logger.warning("no other process knows of this login: %s", error)
                else:
                    if await self._adopt(used):
                        return
            await self._run_flow(challenge)

    async def _run_flow(self, challenge: Challenge | None, refused: str | None = None) -> None:
        """Run the flow and keep its grant. `refused`: the assertion that was not accepted; another one is tried once.
        Raises AuthError."""
        text = "" if self._read_text is None else await self._read_text(refused or "")
        request = TokenRequest(url=self.url, challenge=challenge, before=self.grant, clock=self._clock, text=text)
        try:
            grant = await self._world.run(self._obtain(self._world, request))
        except AssertionRefused:
            if refused is not None:  # another one, once
                raise
            await self._run_flow(challenge, text)
        else:
            await self._keep_grant(grant, self._save_new(grant))

    async def _refresh(self, tokens: Tokens) -> bool:
        """Renew the tokens; False: the grant is over, and a new one is needed. Raises AuthorizationFailed where it may
        work later. It goes on when the request that led to it is cancelled: the answer may hold the only refresh token
        that is good. The next request waits for the entry's lock, and finds the new tokens."""
        renewal = asyncio.get_running_loop().create_task(self._refresh_locked(tokens))
        self._renewals.add(renewal)
        renewal.add_done_callback(self._renewals.discard)
        return await self._outcome(renewal)

    async def _refresh_locked(self, tokens: Tokens) -> bool:
        grant = self.grant
        assert grant is not None
        async with self._store.locked(grant.key(self._hint)):
            if await self._adopt(tokens.access_token):
                return True
            bound = None if grant.dpop_key is None else self._bound()
            sender = Sender(grant.client, grant.server, by=grant.by, private=grant.private, key=self._key, dpop=bound)
            why = ""
            for _ in range(2):  # if the answer was lost, once more
                try:
                    got = await refresh(self._world, sender, tokens, grant.resource, self._clock)
                except FetchFailed as error:
                    if not error.sent:
                        raise self._kept_error(grant, str(error)) from error
                    why = str(error)
                    continue
                outcome = outcome_of(got)
                if outcome.kind == "renewed":
                    return await self._keep_answer(grant, got, tokens)
                if outcome.kind == "kept":
                    raise self._kept_error(grant, outcome.why, outcome.retry_after)
                if outcome.kind != "lost":
                    await self._end(grant, outcome.kind == "forgotten")
                    return False
                why = outcome.why
            raise self._kept_error(grant, why)

    async def _keep_answer(self, grant: Grant, got: Fetched, tokens: Tokens) -> bool:
        try:
            new = tokens_of(got.json, self._clock(), grant.requested, tokens)
        except NoTokens as error:
            raise self._kept_error(grant, str(error)) from error
        renewed = structs.replace(grant, tokens=new)
        await self._keep_grant(renewed, self._save(renewed))
        return True

    def _kept_error(self, grant: Grant, why: str, retry_after: int = 0) -> AuthorizationFailed:
        wait = f"; it asks to wait {retry_after} s" if retry_after else ""
        return AuthorizationFailed(
            f"the token for {self.url} has to be renewed at {grant.server.issuer}, which does not answer as it should "
            f"({why}){wait}. The login is kept: try again later"
        )

    # -- the store

    async def _load(self) -> None:
        """Load the grant that an earlier run, or another process, stored."""
        pointer = await self._store.read(self._locator)
        key = None if pointer is None else _decode(pointer, EntryKey)
        stored = None if key is None else await self._store.read(key)
        grant = None if stored is None else _decode(stored, Grant)
        if stored is not None and grant is not None and canonical(grant.url) == canonical(self.url):
            self._use(grant, stored.generation)

    def _use(self, grant: Grant, generation: int | None) -> None:
        if self.grant is None or grant.dpop_key != self.grant.dpop_key:
            self._dpop = None
        self.grant, self._generation = grant, generation

    async def _adopt(self, used: str | None) -> bool:
        """Load the tokens of another process; return whether they are other ones than those used."""
        await self._load()
        return self._has_other(used)

    async def _save(self, grant: Grant) -> None:
        """Replace the entry if it is still the one that was renewed; else what somebody else wrote counts."""
        key, value = grant.key(self._hint), msgspec.json.encode(grant)
        if not await self._store.write(key, value, self._generation):
            stored = await self._store.read(key)
            newer = None if stored is None else _decode(stored, Grant)
            if stored is not None and newer is not None and newer.tokens is not None:
                self._use(newer, stored.generation)
                return
            await replace_entry(self._store, key, value)
        await self._reread(key, grant)

    async def _keep_grant(self, grant: Grant, saving: Awaitable[None]) -> None:
        """Store a grant. If the store cannot be used, this process uses the grant all the same: it may hold the only
        tokens that there are, since the refresh token before them is spent."""
        try:
            await saving
        except TokenStoreError as error:
            logger.warning("a new token for %s serves this process alone: %s", canonical(self.url), error)
            self._use(grant, self._generation)

    async def _save_new(self, grant: Grant) -> None:
        """Store a new grant, and the pointer by which the next run finds it."""
        key = grant.key(self._hint)
        await replace_entry(self._store, key, msgspec.json.encode(grant))
        await replace_entry(self._store, self._locator, msgspec.json.encode(key))
        await self._reread(key, grant)

    async def _reread(self, key: EntryKey, grant: Grant) -> None:
        """Use the grant that was written, with its generation in the store."""
        stored = await self._store.read(key)
        self._use(grant, None if stored is None else stored.generation)

    async def _end(self, grant: Grant, unknown: bool) -> None:
        """Drop the tokens of a grant that is over, unless another process has new ones. Its scopes are remembered.
        `unknown`: the server no longer knows the client."""
        await self._save(structs.replace(grant, tokens=None))
        if unknown and grant.client.how == "registered":
            await forget_client(self._store, grant.server.issuer)


def _ignore_failure(work: asyncio.Task[Any]) -> None:
    """Retrieve the failure of a task that nobody awaits any more, so that asyncio does not log it."""
    if not work.cancelled():
        work.exception()


def _decode(stored: Stored, kind: type[_Entry]) -> _Entry | None:
    try:
        return msgspec.json.decode(stored.value, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Attempt:
    """One request: it is sent, and sent again after each refusal that something can be done about."""

    __slots__ = ("_authorizer", "_nonces", "_operation", "_patience", "_used", "logged_in", "refreshed")

    def __init__(self, authorizer: Authorizer, operation: str, patience: Patience) -> None:
        self._authorizer = authorizer
        self._operation = operation
        self._patience = patience
        self._used: str | None = None
        self._nonces = 0
        self.refreshed: bool = False
        self.logged_in: bool = False

    async def fields(self, method: str, url: str) -> Mapping[str, str]:
        """Return the header fields of this request: "authorization MUST be included in every HTTP request from client
        to server". Raises AuthorizationFailed."""
        try:
            tokens = await self._authorizer.current_tokens(self._patience)
        except AuthError as error:
            raise as_call_error(error) from error
        self._used = None if tokens is None else tokens.access_token
        if tokens is None:
            return {}
        if tokens.token_type == "DPoP":
            proof = self._authorizer.proof(method, url, tokens.access_token)
            return {"authorization": f"DPoP {tokens.access_token}", "dpop": proof}
        return {"authorization": f"Bearer {tokens.access_token}"}

    async def again(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return whether to send the request again after an answer. Raises AuthorizationFailed."""
        if nonce := headers.get("dpop-nonce"):
            self._authorizer.nonce = nonce
        if status not in (401, 403):
            if status < 400:
                self._authorizer.step_ups.pop(self._operation, None)
            return False
        challenges = parse_challenges(headers.get("www-authenticate", ""))
        if nonce and self._nonces < MOST_NONCES and _wants_nonce(challenges):
            self._nonces += 1
            return True
        try:
            with self._patience():
                if status == 401:
                    return await self._authorizer.renew(self._used, choose_challenge(challenges), self)
                return await self._answer_forbidden(challenges)
        except AuthError as error:
            raise as_call_error(error) from error

    async def _answer_forbidden(self, challenges: list[Challenge]) -> bool:
        """Answer a 403: get more scopes, if it demands them, "no more than a few times"."""
        lacking = [one for one in challenges if one.params.get("error") == "insufficient_scope"]
        if not lacking:
            return False
        return await self._authorizer.step_up(self._used, lacking[0], self._operation)


def choose_challenge(challenges: list[Challenge]) -> Challenge | None:
    """Return the challenge to answer, one of OAuth's schemes; None if there is none."""
    ours = [one for one in challenges if one.of("Bearer") or one.of("DPoP")]
    return next((one for one in ours if "resource_metadata" in one.params), ours[0] if ours else None)


def _wants_nonce(challenges: list[Challenge]) -> bool:
    return any(one.params.get("error") == "use_dpop_nonce" for one in challenges)


def as_call_error(error: AuthError) -> AuthorizationFailed:
    """Return an error of the flow as the error of the call."""
    if isinstance(error, AuthorizationFailed):
        return error
    what = "the authorization server answers" if isinstance(error, OAuthError) else "no authorization"
    return AuthorizationFailed(f"{what}: {error}")
