"""Clients with `auth=` against the authorization server for tests and a server that asks for its tokens."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import dragoman
from dragoman.auth import ClientCredentials, FileStore, Login, LoginNeeded, MemoryStore, Token
from dragoman.auth.client.store import TokenStore
from dragoman.auth.testing import LocalIssuer
from dragoman.channel import Broken

from .protected import Protected


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with LocalIssuer() as made:
        yield made


@pytest.fixture
def server(issuer: LocalIssuer) -> Iterator[Protected]:
    with Protected(issuer, lambda token: True) as made:
        yield made


class User:
    """A user with a browser, who says yes: follows redirects until they lead to the callback."""

    def __init__(self) -> None:
        self.windows: list[str] = []

    def __call__(self, url: str) -> Any:
        self.windows.append(url)
        return asyncio.to_thread(self.follow, url)

    def follow(self, url: str) -> str:
        place = urlsplit(url)
        connection = http.client.HTTPConnection(place.netloc, timeout=10)
        connection.request("GET", f"{place.path}?{place.query}")
        location = connection.getresponse().getheader("location")
        connection.close()
        assert location is not None
        return location


def logging_in(user: User, store: TokenStore | None = None, **options: Any) -> Login:
    return Login(on_url=user, store=MemoryStore() if store is None else store, **options)


async def test_a_login_and_calls_at_once(server: Protected) -> None:
    user, server.delay = User(), 0.05
    async with dragoman.connect(server.url, auth=logging_in(user)) as peer:
        assert await asyncio.gather(*(peer.call("echo", [n]) for n in range(10))) == [[n] for n in range(10)]
    assert len(user.windows) == 1
    assert server.tokens[-10:].count(server.tokens[-1]) == 10


async def test_a_person_may_take_longer_than_a_call(server: Protected) -> None:
    class Slow(User):
        def follow(self, url: str) -> str:
            time.sleep(2.5)
            return super().follow(url)

    async with dragoman.connect(server.url, auth=logging_in(Slow()), timeout=2) as peer:
        assert await peer.call("echo", [1]) == [1]


async def test_a_restart_asks_nobody(server: Protected, issuer: LocalIssuer, tmp_path: Path) -> None:
    user = User()
    for _ in range(3):
        async with dragoman.connect(server.url, auth=logging_in(user, FileStore(tmp_path, keyring=False))) as peer:
            await peer.call("echo", [1])
    assert len(user.windows) == 1
    assert server.tokens.count(None) == 1


async def test_a_token_that_is_refused_is_renewed(server: Protected) -> None:
    user, good = User(), set[str]()
    async with dragoman.connect(server.url, auth=logging_in(user)) as peer:
        await peer.call("echo", [1])
        old = server.tokens[-1]
        server.takes = lambda token: token != old or token in good
        await peer.call("echo", [1])
    assert len(user.windows) == 1
    assert server.tokens[-1] not in (None, old)


async def test_nobody_is_there(server: Protected) -> None:
    async with dragoman.connect(server.url, auth=Login(store=MemoryStore(), interactive=False)) as peer:
        with pytest.raises(LoginNeeded, match="dragoman login"):
            await peer.call("echo", [1])


async def test_a_server_that_never_takes_a_token(server: Protected) -> None:
    user = User()
    server.takes = lambda token: False
    async with dragoman.connect(server.url, auth=logging_in(user)) as peer:
        with pytest.raises(Broken, match="401"):
            await peer.call("echo", [1])
    assert len(user.windows) == 1


async def test_a_program_of_its_own(server: Protected, issuer: LocalIssuer) -> None:
    issuer.client("robot", "canary-7f3a-robot", grants=("client_credentials",), scopes=())
    async with dragoman.connect(server.url, auth=ClientCredentials("robot", secret="canary-7f3a-robot")) as peer:
        assert await peer.call("echo", [1]) == [1]


async def test_a_function_that_gives_tokens(server: Protected) -> None:
    numbers = itertools.count(1)
    server.takes = lambda token: token != "t1"
    async with dragoman.connect(server.url, auth=Token(lambda: f"t{next(numbers)}")) as peer:
        await asyncio.gather(*(peer.call("echo", [n]) for n in range(5)))
    assert set(server.tokens) <= {"t1", "t2"}
    server.takes = lambda token: False
    async with dragoman.connect(server.url, auth=Token(lambda: "same")) as peer:
        with pytest.raises(Broken, match="401"):
            await peer.call("echo", [1])


async def test_oauth_as_a_word_is_refused_with_the_line_to_write(server: Protected) -> None:
    with pytest.raises(dragoman.LocalError, match=r"auth=Login\(\)"):
        await dragoman.connect(server.url, auth="oauth")


# -- processes

PROCESSES = 20
ROUNDS = 4

WORKER = """
import asyncio, sys
import dragoman
from dragoman.auth import FileStore, Login

async def main(url, folder):
    login = Login(store=FileStore(folder, keyring=False), interactive=False)
    async with dragoman.connect(url, auth=login, timeout=60) as peer:
        for line in sys.stdin:
            print(await peer.call("echo", [line.strip()]), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def test_many_processes_renew_one_rotating_token(issuer: LocalIssuer, tmp_path: Path) -> None:
    """Each time that the token dies one of all processes renews it, and no one is logged out; also when some of them
    are killed meanwhile."""
    dead: set[str] = set()
    with Protected(issuer, lambda token: token not in dead) as server:
        asyncio.run(_log_in(server.url, tmp_path))
        command = [sys.executable, "-c", WORKER, server.url, str(tmp_path)]
        those = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(PROCESSES)
        ]
        started = [*those]
        try:
            for round in range(ROUNDS):
                dead |= {token for token in server.tokens if token}
                server.tokens.clear()
                for one in those:
                    assert one.stdin is not None
                    one.stdin.write(f"{round}\n")
                    one.stdin.flush()
                if round in (1, 2):  # some die in the midst of it
                    for one in those[-3:]:
                        one.kill()
                        one.wait()
                    those = those[:-3]
                for one in those:
                    assert one.stdout is not None
                    assert one.stdout.readline() == f"['{round}']\n"
                new = {token for token in server.tokens if token} - dead
                if round in (0, 3):  # one refresh; with a kill in between there may be one more
                    assert len(new) == 1
                assert 1 <= len(new) <= 2
        finally:
            for one in started:
                one.kill()
                with one:  # closes its pipes and waits for it
                    pass


async def _log_in(url: str, folder: Path) -> None:
    user = User()
    async with dragoman.connect(url, auth=logging_in(user, FileStore(folder, keyring=False))) as peer:
        await peer.call("echo", [0])
    assert len(user.windows) == 1
    assert os.listdir(folder)
