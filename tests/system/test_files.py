"""Files that several programs use: locks, and what is read or removed while it is being replaced."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from dragoman.system.files import NO_FOLLOW, lock, nobody_reads, reason_of, replace, undisturbed


def test_a_lock_is_one_opening_s_and_ends_with_it(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT | NO_FOLLOW) for _ in range(2))
    assert lock(first)
    assert not lock(second)
    os.close(first)
    assert lock(second)
    os.close(second)
    with pytest.raises(OSError):
        lock(second)


def test_a_file_that_is_replaced_all_the_while_is_read(tmp_path: Path) -> None:
    """Windows refuses to open, to replace and to remove what another has open in its way just then."""
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_bytes(b"whole")
    done = threading.Event()

    def renew() -> None:
        try:
            for _ in range(100):
                new.write_bytes(b"whole")
                replace(new, old)
        finally:
            done.set()

    renewing = threading.Thread(target=renew)
    renewing.start()
    count = 0
    while not done.is_set():
        with open(undisturbed(lambda: os.open(old, os.O_RDONLY | NO_FOLLOW)), "rb") as file:
            assert file.read() == b"whole"
        count += 1
        time.sleep(0.001)
    renewing.join()
    assert count
    undisturbed(old.unlink)
    assert not new.exists()


def test_what_is_refused_for_good_is_told(tmp_path: Path) -> None:
    def refused() -> None:
        raise PermissionError(13, "refused")

    with pytest.raises(PermissionError, match="refused"):
        undisturbed(refused)
    with pytest.raises(FileNotFoundError):
        undisturbed((tmp_path / "none").unlink)


def test_that_nobody_reads_is_told_from_other_invalid_arguments(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(OSError) as unread:
        os.write(writing, b"x")
    os.close(writing)
    assert nobody_reads(unread.value)
    with pytest.raises(OSError) as unnamed:
        open(tmp_path / "a?b" / "c", "rb").close()
    with socket.socket() as unbound, pytest.raises(OSError) as invalid:
        unbound.accept()
    assert [nobody_reads(one.value) for one in (unnamed, invalid)] == [False, False]


def test_a_folder_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(OSError) as folder:
        open(tmp_path, "rb").close()
    with pytest.raises(OSError) as nothing:
        open(tmp_path / "none", "rb").close()
    assert [reason_of(one.value) for one in (folder, nothing)] == ["Is a directory", "No such file or directory"]
