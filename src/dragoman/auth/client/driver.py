"""Runs flows: does what their steps ask for, by the safe fetcher, a person and a store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import AuthError
from ..fetch import fetched
from .errors import LoginNeeded
from .person import Person
from .steps import Browse, Flow, Get, Keep, Listen, Post, Recall, Say, ShowCode, Step, Wait
from .store import Key, Store
from .tokens import Registration

if TYPE_CHECKING:
    from ..fetching import Fetches

T = TypeVar("T")
MOST_STEPS = 1000
"""Steps of one flow: a device asks every 5 s for half an hour."""
MOST_WRITES = 20
"""Tries to replace an entry that others replace, too."""


class Driver:
    """Runs the flows of one resource. `origin`: its URL, for the sake of which hosts are asked. `person`: None: no one
    is there to log in. `watch(step, outcome)`: is told of each step. `needed`: what a person has to do where there is
    none."""

    def __init__(
        self,
        origin: str,
        fetcher: Fetches,
        store: Store,
        person: Person | None,
        *,
        watch: Callable[[Step, Any], object] | None = None,
        needed: str | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._origin = origin
        self._fetcher = fetcher
        self._store = store
        self._person = person
        self._watch = watch
        self._needed = needed or f"dragoman login {origin}"
        self._sleep = sleep

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end; raises what it raises."""
        outcome: Any = None
        error: AuthError | None = None
        try:
            for _ in range(MOST_STEPS):
                try:
                    step = flow.send(outcome) if error is None else flow.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                outcome = error = None
                try:
                    outcome = await self._done(step)
                except AuthError as failed:
                    error = failed
                if self._watch is not None:
                    self._watch(step, error or outcome)
            raise AuthError(f"a flow of more than {MOST_STEPS} steps")
        finally:
            flow.close()
            if self._person is not None:
                await self._person.close()

    def say(self, text: str) -> None:
        """Tell the person, if there is one."""
        if self._person is not None:
            self._person.say(text)

    async def _done(self, step: Step) -> Any:
        match step:
            case Get():
                return fetched(await self._fetcher.get(step.url, by=step.by, origin=self._origin))
            case Post(content=None):
                by, headers = step.by, step.headers
                return fetched(
                    await self._fetcher.post_form(step.url, step.form, by=by, origin=self._origin, headers=headers)
                )
            case Post():
                return fetched(await self._fetcher.post_json(step.url, step.content, by=step.by, origin=self._origin))
            case Wait():
                return await self._sleep(step.seconds)
            case Say():
                return self.say(step.text)
            case Recall():
                return await self._recalled(step.issuer)
            case Keep():
                return await self._kept(step.issuer, step.client)
            case Listen() | Browse() | ShowCode():
                return await self._asked(step)

    async def _asked(self, step: Listen | Browse | ShowCode) -> Any:
        person = self._person
        if person is None:
            raise LoginNeeded(f"a person has to log in first: {self._needed}")
        match step:
            case Listen():
                return await person.listen(step.port, step.exact)
            case Browse():
                return await person.browse(step.url, step.state)
            case ShowCode():
                return await person.show(step)

    async def _recalled(self, issuer: str) -> Registration | None:
        stored = await self._store.read(client_key(issuer))
        if stored is None:
            return None
        try:
            return msgspec.json.decode(stored.value, type=Registration)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    async def _kept(self, issuer: str, client: Registration | None) -> None:
        if client is None:
            await forgotten(self._store, issuer)
            return
        await replaced(self._store, client_key(issuer), msgspec.json.encode(client))


def client_key(issuer: str) -> Key:
    """The entry of the client that was registered at an issuer."""
    return Key(issuer, "registration", "", "")


async def forgotten(store: Store, issuer: str) -> None:
    """Forget the client that was registered at an issuer."""
    key = client_key(issuer)
    stored = await store.read(key)
    if stored is not None:
        await store.remove(key, stored.generation)


async def replaced(store: Store, key: Key, value: bytes) -> None:
    """Write an entry, whatever is there."""
    for _ in range(MOST_WRITES):
        stored = await store.read(key)
        if await store.write(key, value, None if stored is None else stored.generation):
            return
    raise AuthError("an entry of the token store changes faster than it can be written")


async def called(function: Callable[[], Any]) -> Any:
    """What a user's plain or async function gives."""
    given = function()
    return await given if inspect.isawaitable(given) else given
