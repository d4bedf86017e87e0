"""What the flows of a client need from outside: a fetcher, a person, a store and time.

A flow is an `async` function whose first argument is a `World`; it does no I/O by itself. `World.run` runs one to its
end. Tests run the same flows in a world of their own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import AuthError
from ..fetch import By, Fetched, as_fetched
from .errors import LoginNeeded
from .store import EntryKey, TokenStore
from .tokens import Registration

if TYPE_CHECKING:
    from ..fetching import Fetches
    from .person import DeviceCode, Person
else:
    Fetches = DeviceCode = Person = Any  # start-up: annotations resolve at run time, to no more than this

T = TypeVar("T")
MOST_WRITES = 20
"""Tries to replace an entry that others replace, too."""


class World:
    """The world of the flows for one resource. `origin`: the resource's URL, by which the fetcher decides whether a
    document may name private hosts. `person`: who logs in; None: nobody, and what needs a person raises LoginNeeded.
    `needed`: what a person has to do then, for that error."""

    def __init__(
        self,
        origin: str,
        fetcher: Fetches,
        store: TokenStore,
        person: Person | None,
        *,
        needed: str | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._origin = origin
        self._fetcher = fetcher
        self._store = store
        self._person = person
        self._needed = needed or f"dragoman login {origin}"
        self._sleep = sleep

    async def run(self, flow: Awaitable[T]) -> T:
        """Run a flow to its end, and stop listening for the person. Raises what it raises."""
        try:
            return await flow
        finally:
            if self._person is not None:
                await self._person.close()

    async def get(self, url: str, *, by: By = "document", why: str) -> Fetched:
        """GET a document. `by`: whether the operator wrote the URL, or a document named it; `why`: what it is for, for
        worlds that show what is fetched. Raises FetchFailed, FetchRefused."""
        return as_fetched(await self._fetcher.get(url, by=by, origin=self._origin))

    async def post_form(
        self, url: str, form: Mapping[str, str], *, headers: Mapping[str, str], by: By = "document"
    ) -> Fetched:
        """POST a form. Raises FetchFailed, FetchRefused."""
        return as_fetched(await self._fetcher.post_form(url, form, by=by, origin=self._origin, headers=headers))

    async def post_json(self, url: str, content: Any, *, by: By = "document") -> Fetched:
        """POST JSON. Raises FetchFailed, FetchRefused."""
        return as_fetched(await self._fetcher.post_json(url, content, by=by, origin=self._origin))

    async def listen(self, port: int, *, exact: bool) -> str:
        """Listen for the answer of the authorization server, on this port if it is free, and return the redirect URI.
        `exact`: on no other: LoginFailed where it is taken."""
        return await self._require_person().listen(port, exact)

    async def browse(self, url: str, state: str) -> str:
        """Send the user's browser to `url`. Return the query of the answer that has this `state`. Raises LoginFailed
        where none comes in time."""
        return await self._require_person().browse(url, state)

    async def show_code(self, code: DeviceCode) -> None:
        """Show the user a code to enter elsewhere. Raises LoginNeeded where there is no person."""
        await self._require_person().show(code)

    async def wait(self, seconds: float) -> None:
        """Sleep."""
        await self._sleep(seconds)

    def say(self, text: str) -> None:
        """Show the person a message, if there is a person."""
        if self._person is not None:
            self._person.say(text)

    async def recall(self, issuer: str) -> Registration | None:
        """Return the client that was registered at an issuer, if the store has one."""
        stored = await self._store.read(client_key(issuer))
        if stored is None:
            return None
        try:
            return msgspec.json.decode(stored.value, type=Registration)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    async def remember(self, issuer: str, client: Registration | None) -> None:
        """Store the client that was registered at an issuer; None: forget it."""
        if client is None:
            await forget_client(self._store, issuer)
        else:
            await replace_entry(self._store, client_key(issuer), msgspec.json.encode(client))

    def _require_person(self) -> Person:
        if self._person is None:
            raise LoginNeeded(f"a person has to log in first: {self._needed}")
        return self._person


def client_key(issuer: str) -> EntryKey:
    """Return the store's key for the client that was registered at an issuer."""
    return EntryKey(issuer, "registration", "", "")


async def forget_client(store: TokenStore, issuer: str) -> None:
    """Forget the client that was registered at an issuer."""
    key = client_key(issuer)
    stored = await store.read(key)
    if stored is not None:
        await store.remove(key, stored.generation)


async def replace_entry(store: TokenStore, key: EntryKey, value: bytes) -> None:
    """Write an entry, whatever is stored there. Raises AuthError where it changes faster than it can be written."""
    for _ in range(MOST_WRITES):
        stored = await store.read(key)
        if await store.write(key, value, None if stored is None else stored.generation):
            return
    raise AuthError("an entry of the token store changes faster than it can be written")


async def call(function: Callable[[], Any]) -> Any:
    """Return what a user's plain or async function returns."""
    given = function()
    return await given if inspect.isawaitable(given) else given
