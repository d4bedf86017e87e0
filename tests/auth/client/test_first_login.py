"""Processes that share a store and have no token yet: one window, and what follows if its process fails."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from dragoman.auth import FileStore, LoginFailed, LoginNeeded, MemoryStore
from dragoman.auth.client.authorizer import Authorizer
from dragoman.auth.client.login import TokenRequest
from dragoman.auth.client.person import Person
from dragoman.auth.client.store import EntryKey, TokenStore
from dragoman.auth.client.tokens import Grant
from dragoman.auth.client.world import World
from dragoman.auth.fetch import Fetcher
from dragoman.auth.testing import LocalIssuer

from .protected import Protected
from .test_authorizer import URL, Logins, request

PROCESS = """
import asyncio, http.client, sys
from urllib.parse import parse_qs, urlsplit
import dragoman
from dragoman.auth import AuthorizationFailed, FileStore, Login

def answered(url):
    print("window", flush=True)
    place = urlsplit(url)
    if sys.stdin.readline() == "deny\\n":
        asked = parse_qs(place.query)
        return f"{asked['redirect_uri'][0]}?error=access_denied&state={asked['state'][0]}&iss={sys.argv[4]}"
    connection = http.client.HTTPConnection(place.netloc, timeout=30)
    connection.request("GET", f"{place.path}?{place.query}")
    return connection.getresponse().getheader("location")

async def main(url, folder, interactive, issuer):
    login = Login(
        store=FileStore(folder, keyring=False),
        interactive=bool(interactive),
        on_url=lambda url: asyncio.to_thread(answered, url),
    )
    async with dragoman.connect(url, auth=login, timeout=60) as peer:
        try:
            print(await peer.call("echo", [1]), flush=True)
        except AuthorizationFailed as failed:
            print(type(failed).__name__, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


class Process:
    """A client in a process of its own, whose user answers what the test says."""

    def __init__(self, url: str, folder: Path, issuer: str, *, interactive: bool = True) -> None:
        command = [sys.executable, "-c", PROCESS, url, str(folder), "yes" if interactive else "", issuer]
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def says(self) -> str:
        """The next line of its output."""
        return _pipe(self.child.stdout).readline().strip()

    def warns(self) -> str:
        """The next line of its standard error."""
        return _pipe(self.child.stderr).readline().strip()

    def answer(self, word: str) -> None:
        """Its user answers at the window."""
        stdin = _pipe(self.child.stdin)
        stdin.write(f"{word}\n")
        stdin.flush()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes at one server, with one store."""
    those: list[Process] = []
    with LocalIssuer() as issuer, Protected(issuer, lambda token: True) as server:

        def started(*, interactive: bool = True) -> Process:
            those.append(Process(server.url, tmp_path / "tokens", issuer.url, interactive=interactive))
            return those[-1]

        yield started
        for one in those:
            one.child.kill()
            with one.child:
                pass


def two(start: Start) -> tuple[Process, Process]:
    """One process with its window open, and one that waits for it."""
    first = start()
    assert first.says() == "window"
    second = start()
    assert second.warns().startswith("Another process is logging in to http://127.0.0.1:")
    return first, second


def test_two_processes_open_one_window(start: Start) -> None:
    first, second = two(start)
    first.answer("allow")
    assert first.says() == "[1]"
    assert second.says() == "[1]"  # it read the store


def test_the_process_that_logs_in_is_killed(start: Start) -> None:
    first, second = two(start)
    first.child.kill()
    assert second.says() == "window"
    second.answer("allow")
    assert second.says() == "[1]"


def test_the_user_refuses_at_one_and_is_asked_by_the_other(start: Start) -> None:
    first, second = two(start)
    first.answer("deny")
    assert first.says() == "LoginFailed"
    assert second.says() == "window"
    second.answer("allow")
    assert second.says() == "[1]"


def test_a_process_without_a_person_neither_waits_nor_is_waited_for(start: Start) -> None:
    first = start()
    assert first.says() == "window"
    assert start(interactive=False).says() == "LoginNeeded"
    first.answer("allow")
    assert first.says() == "[1]"
    assert start(interactive=False).says() == "[1]"


# -- in one process

PLACE = EntryKey("", URL, "", "default")


class Held(Logins):
    """Logins that take until `done`."""

    async def __call__(self, world: World, asked: TokenRequest) -> Grant:
        await world.wait(1)
        return await super().__call__(world, asked)


class Told:
    """A client of a store, a person who is told things, and a login that the test ends."""

    def __init__(self, store: TokenStore, login: Logins, wait: float = 60.0) -> None:
        self.said: list[str] = []
        self.waits, self.going, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slept(seconds: float) -> None:
            self.going.set()
            await self.done.wait()

        def say(text: str) -> None:
            self.said.append(text)
            self.waits.set()

        world = World(URL, Fetcher(), store, Person(say=say), sleep=slept)
        self.authorizer = Authorizer(URL, login, world, store, login_wait=wait)


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TokenStore:
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "tokens", keyring=False)


async def test_another_login_that_takes_too_long(store: TokenStore) -> None:
    async with store.locked(PLACE):
        late = Told(store, logins := Held("never"), wait=0.05)
        with pytest.raises(LoginFailed, match=r"more than 0\.05 s: finish its login, or end it"):
            await request(late.authorizer, {"never"})
    assert late.said == [f"Another process is logging in to {URL}: its login is waited for."]
    assert not logins.asked


async def test_a_login_that_is_given_up_leaves_the_lock_to_the_next(store: TokenStore) -> None:
    first, second = Told(store, Held("never")), Told(store, Held("mine"))
    waiting = asyncio.create_task(request(first.authorizer, {"never"}))
    await first.going.wait()
    other = asyncio.create_task(request(second.authorizer, {"mine"}))
    await second.waits.wait()
    await first.authorizer.close()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    second.done.set()
    assert await other == [None, "mine"]


async def test_one_that_waits_can_be_given_up(store: TokenStore) -> None:
    async with store.locked(PLACE):
        late = Told(store, Held("never"))
        waiting = asyncio.create_task(request(late.authorizer, {"never"}))
        await late.waits.wait()
        await late.authorizer.close()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
    async with store.locked(PLACE, wait=0.0):
        pass


async def test_a_token_that_came_just_before_the_lock_is_taken(store: TokenStore) -> None:
    """The other had finished before this one came to the lock: nothing says that it must be waited for."""
    first, late = Told(store, Held("theirs")), Told(store, logins := Held("mine"))
    first.done.set()
    assert await request(first.authorizer, {"theirs"}) == [None, "theirs"]
    await late.authorizer._obtain_grant(None)
    assert late.authorizer.tokens is not None
    assert late.authorizer.tokens.access_token == "theirs"
    assert not logins.asked
    assert not late.said


async def test_who_may_not_log_in_is_told_so_while_another_does(store: TokenStore) -> None:
    async with store.locked(PLACE):
        world = World(URL, Fetcher(), store, None)
        authorizer = Authorizer(URL, Logins(LoginNeeded("a person has to log in first: dragoman login")), world, store)
        with pytest.raises(LoginNeeded):
            await request(authorizer, {"x"})
