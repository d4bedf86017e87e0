"""Files that may hold secrets: their permissions, links, and what is not a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.cli.exit_status import Usage
from dragoman.cli.options import trace_to
from dragoman.jsonrpc.errors import LocalError
from dragoman.jsonrpc.limits import SERVER
from dragoman.private_files import open_private, tighten
from dragoman.store.contract import Edit
from dragoman.store.opening import open_store


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


async def by_store(path: Path) -> None:
    store = open_store(f"sqlite:{path}", SERVER, None)
    try:
        await store.change("owner", lambda before: Edit(b"secret", None))
        beside = sorted(one.name for one in path.parent.glob(f"{path.name}*"))
        assert beside == [path.name, f"{path.name}-shm", f"{path.name}-wal"]
        assert {mode(path.parent / name) for name in beside} == {0o600}
    finally:
        await store.close()


async def by_trace(path: Path) -> None:
    with trace_to(str(path)) as write:
        assert write is not None
        write("secret\n")
        assert mode(path) == 0o600


MAKERS = [by_store, by_trace]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("before", [None, 0o666, 0o644, 0o640, 0o606, 0o777, 0o600])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_a_file_is_its_owner_s_alone(
    make: Callable[[Path], object], before: int | None, umask: int, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    if before is not None:
        path.touch()
        path.chmod(before)
    earlier = os.umask(umask)
    try:
        await make(path)  # type: ignore[misc]
    finally:
        os.umask(earlier)
    assert not mode(path) & 0o077


@pytest.mark.parametrize("beside", ["-wal", "-shm", "-journal"])
async def test_what_sqlite_keeps_beside_the_file_is_tightened(beside: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    other = tmp_path / f"file{beside}"
    other.touch()
    other.chmod(0o666)
    store = open_store(f"sqlite:{path}", SERVER, None)
    await store.close()
    assert not other.exists() or mode(other) == 0o600


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing"])
async def test_a_link_is_refused_and_what_it_names_is_left(
    make: Callable[[Path], object], there: bool, tmp_path: Path
) -> None:
    other, path = tmp_path / "other", tmp_path / "link"
    if there:
        other.write_text("another's")
        other.chmod(0o644)
    path.symlink_to(other)
    with pytest.raises((LocalError, Usage), match="it is a symbolic link; name the file itself"):
        await make(path)  # type: ignore[misc]
    assert other.exists() is there
    if there:
        assert (other.read_text(), mode(other)) == ("another's", 0o644)


async def test_a_link_beside_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file-wal").symlink_to(tmp_path / "other")
    with pytest.raises(LocalError, match="it is a symbolic link"):
        open_store(f"sqlite:{tmp_path / 'file'}", SERVER, None)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "uri", ["file:x", "file:x?vfs=unix-dotfile", "file:x?mode=memory", "FILE:x?vfs=unix-none", "file:///tmp/x"]
)
async def test_a_uri_of_sqlite_is_refused(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LocalError, match="a URI of SQLite is not taken"):
        open_store(f"sqlite:{uri}", SERVER, None)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["./file:x?vfs=unix-none", ":memory:", "a?b#c%20", "with space"])
async def test_a_path_that_looks_like_something_else_is_a_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(f"sqlite:{name}", SERVER, None)
    await store.change("owner", lambda before: Edit(b"secret", None))
    assert {mode(tmp_path / one) for one in os.listdir(tmp_path)} == {0o600}
    assert (tmp_path / name).stat().st_size > 0
    await store.close()


def test_pipes_and_the_system_s_own_links_are_opened_as_they_are(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o622)
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = open_private(str(tmp_path / "pipe"), os.O_WRONLY)
    before = mode(tmp_path / "pipe")
    os.write(writer, b"x")
    assert os.read(reader, 1) == b"x"
    assert mode(tmp_path / "pipe") == before
    os.close(writer)
    os.close(reader)
    os.close(open_private("/dev/null", os.O_WRONLY))
    os.close(open_private("/dev/stderr", os.O_WRONLY))


def test_nothing_is_made_where_there_is_nothing_to_tighten(tmp_path: Path) -> None:
    tighten(str(tmp_path / "none"))
    assert not list(tmp_path.iterdir())
