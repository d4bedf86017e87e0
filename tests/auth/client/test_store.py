"""Stores of tokens: one table of what each promises, then what files promise beyond it."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoKeyring
from keyring.errors import KeyringLocked

from dragoman.auth.client.store import EntryKey, FileStore, MemoryStore, TokenStore, TokenStoreError
from dragoman.auth.client.store.sealing import name

KEY = EntryKey("https://as.example/", "https://mcp.example/mcp")
OTHERS = [
    EntryKey("https://as.example", "https://mcp.example/mcp"),
    EntryKey("https://as.example/", "https://mcp.example/mcp/"),
    EntryKey("https://as.example/", "https://mcp.example/mcp", "client"),
    EntryKey("https://as.example/", "https://mcp.example/mcp", "", "work"),
    EntryKey('a","b', "c", "d"),
    EntryKey("a", 'b","c', "d"),
    EntryKey("\ud800", "half a pair"),
]
CANARY = b"canary-7f3a"


class InMemory(KeyringBackend):
    """A keyring that can be locked."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise KeyringLocked("locked")
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password


@pytest.fixture
def ring() -> Iterator[InMemory]:
    before = keyring.get_keyring()
    made = InMemory()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


@pytest.fixture(params=["memory", "plain", "sealed"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, ring: InMemory) -> AsyncIterator[TokenStore]:
    if request.param == "memory":
        yield MemoryStore(lock_wait=0.3)
    else:
        yield FileStore(tmp_path / "tokens", keyring=request.param == "sealed", lock_wait=0.3)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.token"))


# -- what every store promises --------------------------------------------------------------------


async def test_an_entry_is_read_as_it_was_written(store: TokenStore) -> None:
    assert await store.read(KEY) is None
    assert await store.write(KEY, CANARY, None)
    found = await store.read(KEY)
    assert found is not None
    assert found.value == CANARY
    assert list(await store.keys()) == [KEY]


async def test_entries_of_other_keys_are_other_entries(store: TokenStore) -> None:
    for number, key in enumerate([KEY, *OTHERS]):
        if "\ud800" in key.issuer and not isinstance(store, MemoryStore):
            with pytest.raises(TokenStoreError, match="surrogate"):
                await store.write(key, b"", None)
        else:
            assert await store.write(key, b"%d" % number, None)
            assert (await store.read(key)).value == b"%d" % number  # type: ignore[union-attr]
    assert (await store.read(KEY)).value == b"0"  # type: ignore[union-attr]


async def test_only_what_was_read_is_replaced(store: TokenStore) -> None:
    assert await store.write(KEY, b"first", None)
    first = await store.read(KEY)
    assert first is not None
    assert not await store.write(KEY, b"there is one", None)
    assert await store.write(KEY, b"second", first.generation)
    assert not await store.write(KEY, b"late", first.generation)
    assert not await store.remove(KEY, first.generation)
    second = await store.read(KEY)
    assert second is not None
    assert second.value == b"second"
    assert second.generation > first.generation
    assert await store.remove(KEY, second.generation)
    assert await store.read(KEY) is None
    assert list(await store.keys()) == []


async def test_a_generation_is_not_used_again_after_a_removal(store: TokenStore) -> None:
    assert await store.write(KEY, b"first", None)
    first = await store.read(KEY)
    assert first is not None
    assert await store.remove(KEY, first.generation)
    assert await store.write(KEY, b"new login", None)
    assert not await store.write(KEY, b"a renewal of the old one", first.generation)
    assert (await store.read(KEY)).value == b"new login"  # type: ignore[union-attr]


async def test_of_many_that_replace_one_entry_one_wins(store: TokenStore) -> None:
    assert await store.write(KEY, b"0", None)
    found = await store.read(KEY)
    assert found is not None
    won = await asyncio.gather(*(store.write(KEY, b"%d" % one, found.generation) for one in range(8)))
    assert sum(won) == 1
    assert (await store.read(KEY)).value == b"%d" % won.index(True)  # type: ignore[union-attr]


async def test_a_lock_is_one_holder_s_and_waits_no_longer_than_it_may(store: TokenStore) -> None:
    async with store.locked(KEY):
        async with store.locked(OTHERS[0]):
            assert await store.write(KEY, b"not the lock of writing", None)
        with pytest.raises(TokenStoreError, match=r"held by another .* 0\.3 s"):
            async with store.locked(KEY):
                pytest.fail("two held it")
    async with store.locked(KEY):
        pass


async def test_an_entry_too_large_is_refused_and_the_old_one_stays(store: TokenStore) -> None:
    assert await store.write(KEY, b"x" * (1 << 20), None)
    found = await store.read(KEY)
    assert found is not None
    with pytest.raises(TokenStoreError, match="1048577 bytes; at most 1048576"):
        await store.write(KEY, b"x" * ((1 << 20) + 1), found.generation)
    assert await store.read(KEY) == found


async def test_nothing_of_an_entry_stands_in_a_repr(store: TokenStore) -> None:
    await store.write(KEY, CANARY, None)
    assert CANARY.decode() not in repr(await store.read(KEY)) + repr(store)


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
async def test_files_are_their_owner_s_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask & 0o077)
    try:
        store = FileStore(tmp_path / "tokens", keyring=False)
        await store.write(KEY, CANARY, None)
        async with store.locked(KEY):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) & 0o077 for one in (tmp_path / "tokens").iterdir()} == {0}
    assert "not sealed" in await store.protection()


async def test_a_folder_that_others_may_enter_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir(mode=0o755)
    await FileStore(tmp_path / "tokens", keyring=False).write(KEY, CANARY, None)
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o700


async def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(TokenStoreError, match="belongs to another user"):
        await FileStore(tmp_path / "tokens", keyring=False).write(KEY, CANARY, None)


async def test_a_file_that_others_could_change_is_refused_and_a_link_not_followed(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "tokens", keyring=False)
    await store.write(KEY, CANARY, None)
    (file,) = files(store.folder)
    file.chmod(0o644)
    with pytest.raises(TokenStoreError, match="remove it and log in again"):
        await store.read(KEY)
    file.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o600)
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TokenStoreError, match="cannot read stored tokens"):
        await store.read(KEY)


async def test_the_tokens_stand_sealed_in_their_files(tmp_path: Path, ring: InMemory) -> None:
    store = FileStore(tmp_path / "tokens")
    await store.write(KEY, CANARY, None)
    (file,) = files(store.folder)
    assert CANARY not in file.read_bytes()
    assert b"as.example" not in file.read_bytes()
    assert "keyring" in await store.protection()
    assert (await FileStore(tmp_path / "tokens").read(KEY)).value == CANARY  # type: ignore[union-attr]


async def test_an_entry_under_another_name_or_generation_is_none(
    tmp_path: Path, ring: InMemory, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(tmp_path / "tokens")
    await store.write(KEY, CANARY, None)
    (file,) = files(store.folder)
    content = file.read_bytes()
    moved = store.folder / f"{name(OTHERS[0])}.token"
    file.rename(moved)
    assert await store.read(OTHERS[0]) is None
    assert await store.read(KEY) is None
    line, _, rest = content.partition(b"\n")
    generation = line.rsplit(b" ", 1)[1]
    file.write_bytes(line.replace(generation, b"%d" % (int(generation) + 1)) + b"\n" + rest)
    file.chmod(0o600)
    assert await store.read(KEY) is None
    assert "changed, or sealed with another key" in caplog.text


@pytest.mark.parametrize("keyring", [False, True], ids=["plain", "sealed"])
async def test_what_is_damaged_is_told_taken_for_none_and_replaced(
    tmp_path: Path, ring: InMemory, caplog: pytest.LogCaptureFixture, keyring: bool
) -> None:
    store = FileStore(tmp_path / "tokens", keyring=keyring)
    await store.write(KEY, CANARY, None)
    (file,) = files(store.folder)
    whole = file.read_bytes()
    for damaged in (
        b"",
        b"\n",
        whole[:9],
        whole[: whole.index(b"\n")],
        whole[:-1],
        whole[:60],
        b"x" + whole,
        b"\0" * 99,
    ):
        caplog.clear()
        file.write_bytes(damaged)
        assert await store.read(KEY) is None
        assert "taken for none" in caplog.text
        assert CANARY.decode() not in caplog.text
    assert list(await store.keys()) == []
    assert await store.write(KEY, b"a new login", None)
    assert (await store.read(KEY)).value == b"a new login"  # type: ignore[union-attr]


async def test_a_locked_keyring_is_an_error_and_no_reason_for_a_new_login(tmp_path: Path, ring: InMemory) -> None:
    await FileStore(tmp_path / "tokens").write(KEY, CANARY, None)
    ring.locked = True
    store = FileStore(tmp_path / "tokens")
    with pytest.raises(TokenStoreError, match=r"KeyringLocked.*unlock the keyring"):
        await store.read(KEY)
    ring.locked = False
    assert (await store.read(KEY)).value == CANARY  # type: ignore[union-attr]


async def test_without_a_keyring_the_store_says_why_files_are_plain(tmp_path: Path, ring: InMemory) -> None:
    keyring.set_keyring(NoKeyring())  # type: ignore[no-untyped-call]
    store = FileStore(tmp_path / "tokens")
    await store.write(KEY, CANARY, None)
    assert "no keyring that can be used" in await store.protection()
    keyring.set_keyring(ring)  # there is one now: what is plain is read, and sealed when it is next written
    store = FileStore(tmp_path / "tokens")
    found = await store.read(KEY)
    assert found is not None
    assert await store.write(KEY, found.value, found.generation)
    assert CANARY not in files(store.folder)[0].read_bytes()


async def test_a_full_disk_is_told_and_leaves_the_old_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path / "tokens", keyring=False)
    await store.write(KEY, b"old", None)
    found = await store.read(KEY)
    assert found is not None

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TokenStoreError, match="cannot write stored tokens: No space left"):
        await store.write(KEY, b"new", found.generation)
    assert await store.read(KEY) == found
    assert not list(store.folder.glob("*.new"))


HOLDER = """
import asyncio, sys
from dragoman.auth.client.store import FileStore, EntryKey

async def main():
    store = FileStore(sys.argv[1], keyring=False)
    async with store.locked(EntryKey(*sys.argv[2:4])):
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_lock_is_held_against_other_processes_and_ends_with_a_killed_one(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    argv = [sys.executable, "-c", HOLDER, str(folder), KEY.issuer, KEY.resource]
    child = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    assert (await child.stdout.readline()).strip() == b"held"
    with pytest.raises(TokenStoreError, match="held by another"):
        async with FileStore(folder, keyring=False, lock_wait=0.1).locked(KEY):
            pytest.fail("two held it")
    child.kill()
    await child.wait()
    async with FileStore(folder, keyring=False).locked(KEY):
        pass


WRITER = textwrap.dedent("""
    import asyncio, sys
    from dragoman.auth.client.store import FileStore, EntryKey

    async def main():
        store, key = FileStore(sys.argv[1], keyring=False), EntryKey(*sys.argv[2:4])
        print("up", flush=True)
        while True:
            found = await store.read(key)
            count = 0 if found is None else int(found.value[:20])
            value = b"%020d" % (count + 1) * 5000
            if await store.write(key, value, None if found is None else found.generation):
                print(count + 1, flush=True)

    asyncio.run(main())
""")


async def test_processes_that_are_killed_while_they_write_leave_a_whole_entry(tmp_path: Path) -> None:
    """Each written number is seen once: nothing is lost, nothing is torn, whenever a writer is killed."""
    folder = tmp_path / "tokens"
    argv = [sys.executable, "-c", WRITER, str(folder), KEY.issuer, KEY.resource]
    store, told = FileStore(folder, keyring=False), []
    for _ in range(2):
        children = [await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE) for _ in range(3)]
        for child in children:
            assert child.stdout is not None
            assert (await child.stdout.readline()).strip() == b"up"
        for child in children[: len(children) - 1]:  # one goes on until the others are dead
            assert child.stdout is not None
            for _ in range(4):
                told.append(int(await child.stdout.readline()))
        for child in children:
            child.kill()
        for child in children:
            assert child.stdout is not None
            told += [int(line) for line in (await child.stdout.read()).split()]
            await child.wait()
    found = await store.read(KEY)
    assert found is not None
    assert found.value == found.value[:20] * 5000
    assert len(told) == len(set(told))
    assert max(told) <= int(found.value[:20]) <= max(told) + 3  # one of each may have been killed before it said so


IN_A_SESSION = """
import asyncio, sys
from dragoman.auth.client.store import FileStore, EntryKey

async def main():
    store, key = FileStore(sys.argv[1]), EntryKey("https://as.example", "https://mcp.example/mcp")
    print(await store.protection())
    found = await store.read(key)
    if found is None:
        await store.write(key, b"canary-7f3a", None)
    else:
        print(found.value.decode())

asyncio.run(main())
"""


@pytest.mark.skipif(shutil.which("gnome-keyring-daemon") is None, reason="gnome-keyring is not installed")
@pytest.mark.skipif(shutil.which("dbus-run-session") is None, reason="dbus is not installed")
@pytest.mark.leaks  # its child tells what it read
async def test_the_key_stands_in_gnome_s_keyring(tmp_path: Path) -> None:
    """Two sessions one after the other: the second opens what the first has sealed."""
    (tmp_path / "child.py").write_text(IN_A_SESSION)
    command = 'printf word | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1 && exec "$0" "$1" "$2"'
    argv = ["dbus-run-session", "--", "sh", "-c", command, sys.executable, str(tmp_path / "child.py")]
    home = os.environ | {
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_RUNTIME_DIR": str(tmp_path),
    }
    home.pop("PYTHON_KEYRING_BACKEND", None)
    told = []
    for _ in range(2):
        child = await asyncio.create_subprocess_exec(
            *argv, str(tmp_path / "tokens"), env=home, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        said, wrong = await child.communicate()
        assert child.returncode == 0, wrong.decode()
        told += said.decode().splitlines()
    assert [line for line in told if "sealed with a key of the operating system's keyring" in line] == told[:2]
    assert told[2:] == ["canary-7f3a"]
    assert CANARY not in files(tmp_path / "tokens")[0].read_bytes()
