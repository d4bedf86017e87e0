"""Files that several programs use: locks, and what is read or removed while it is being replaced."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from dragoman.system.files import NO_FOLLOW, lock, replace, undisturbed


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
