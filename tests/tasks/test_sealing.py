"""Records that are encrypted where they are kept."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from dragoman.bus import Store
from dragoman.bus.memory import MemoryBus
from dragoman.jsonrpc.errors import LocalError
from dragoman.store.sealing import RecordSeal
from dragoman.tasks import BusTasks, SqliteTasks, TaskStore, rules
from dragoman.tasks.opening import PURPOSE

from .table import record

OLD, NEW = b"the secret of yesterday", b"the secret of today, which is longer"
CANARY = "CANARY-5d1f"
PRIVATE = Raw(f'{{"token":"{CANARY}"}}'.encode())


def test_a_record_opens_for_its_task_alone() -> None:
    seal = RecordSeal([NEW], PURPOSE)
    sealed = seal.seal("t1", b"content")
    assert seal.open("t1", sealed) == b"content"
    assert seal.open("t2", sealed) is None
    assert RecordSeal([OLD], PURPOSE).open("t1", sealed) is None
    assert seal.seal("t1", b"content") != sealed


def test_every_secret_opens_and_the_first_seals() -> None:
    before, both, after = RecordSeal([OLD], PURPOSE), RecordSeal([NEW, OLD], PURPOSE), RecordSeal([NEW], PURPOSE)
    assert both.open("t1", before.seal("t1", b"content")) == b"content"
    assert after.open("t1", both.seal("t1", b"content")) == b"content"
    assert before.open("t1", both.seal("t1", b"content")) is None


def test_what_was_altered_does_not_open() -> None:
    seal = RecordSeal([NEW], PURPOSE)
    sealed = seal.seal("t1", b"content")
    for at in range(len(sealed)):
        assert seal.open("t1", sealed[:at]) is None
        assert seal.open("t1", sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]) is None
    assert seal.open("t1", b'{"id":"t1"}') is None


def test_a_seal_shows_no_secret_and_is_not_pickled() -> None:
    seal = RecordSeal([NEW], PURPOSE)
    assert "secret" not in repr(seal)
    with pytest.raises(LocalError, match="is not pickled"):
        pickle.dumps(seal)


async def fill(store: TaskStore) -> None:
    """Keep the canary in every member that may be private, over a task's whole life."""
    for n in range(3):
        await store.create(record(f"t{n}", params=PRIVATE, caller=PRIVATE, message=CANARY, name=CANARY))
        await store.change(f"t{n}", lambda found: rules.asked(found, 1.0, {"q": PRIVATE}, CANARY))
        await store.change(f"t{n}", lambda found: rules.answered(found, 1.0, {"q": PRIVATE}))
    await store.change("t1", lambda found: rules.completed(found, 2.0, PRIVATE))
    await store.change("t2", lambda found: rules.failed(found, 2.0, PRIVATE, CANARY))


@pytest.mark.parametrize("sealed", [True, False])
async def test_nothing_of_a_record_is_in_the_file(tmp_path: Path, sealed: bool) -> None:
    path = tmp_path / "tasks.db"
    store = SqliteTasks(str(path), seal=RecordSeal([NEW], PURPOSE) if sealed else None)
    await fill(store)

    def found() -> bool:
        return any(CANARY.encode() in one.read_bytes() for one in tmp_path.iterdir())

    assert (tmp_path / "tasks.db-wal").stat().st_size > 0
    assert found() is not sealed
    await store.close()
    assert found() is not sealed


@pytest.mark.parametrize("sealed", [True, False])
async def test_nothing_of_a_record_is_on_the_bus(sealed: bool) -> None:
    bus = MemoryBus("sealing")
    assert bus.store is not None
    appended: list[bytes] = []

    class Seen:
        """A store of a bus, and what was ever appended there."""

        def __init__(self, inner: Store) -> None:
            self._inner = inner

        def __getattr__(self, verb: str) -> Any:
            async def call(*words: Any, **options: Any) -> Any:
                appended.extend(word for word in words if isinstance(word, bytes))
                return await getattr(self._inner, verb)(*words, **options)

            return call

    seen: Any = Seen(bus.store)
    store = BusTasks(seen, seal=RecordSeal([NEW], PURPOSE) if sealed else None)
    await fill(store)
    found = await store.read("t1")
    assert found is not None
    assert found.result == PRIVATE
    assert any(CANARY.encode() in one for one in appended) is not sealed
    assert await BusTasks(bus.store, seal=RecordSeal([OLD], PURPOSE)).read("t1") is None
    await bus.close()


async def test_a_sealed_file_is_opened_with_its_keys_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "tasks.db")
    store = SqliteTasks(path, seal=RecordSeal([OLD], PURPOSE))
    await fill(store)
    await store.close()
    with pytest.raises(LocalError, match="are sealed: give their key, in keys= or DRAGOMAN_SECRET"):
        SqliteTasks(path)
    with pytest.raises(
        LocalError, match="are sealed with another key: give it after the first one, in keys= or DRAGOMAN_SECRET"
    ):
        SqliteTasks(path, seal=RecordSeal([NEW], PURPOSE))
    store = SqliteTasks(path, seal=RecordSeal([NEW, OLD], PURPOSE))
    found = await store.read("t1")
    assert found is not None
    assert found.result == PRIVATE
    await store.close()


async def test_keys_are_not_given_to_a_file_with_open_tasks(tmp_path: Path) -> None:
    path = str(tmp_path / "tasks.db")
    store = SqliteTasks(path)
    await store.create(record("t1", now=1.0, keep=1.0))
    await store.close()
    with pytest.raises(LocalError, match="are not sealed, and there are keys"):
        SqliteTasks(path, seal=RecordSeal([NEW], PURPOSE))
    store = SqliteTasks(path)
    assert [await store.sweep(10) for _ in range(2)] == [0, 1]
    await store.close()
    await SqliteTasks(path, seal=RecordSeal([NEW], PURPOSE)).close()


async def test_a_record_of_another_key_counts_as_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = str(tmp_path / "tasks.db")
    one, other = SqliteTasks(path, seal=RecordSeal([NEW], PURPOSE)), SqliteTasks(path, seal=RecordSeal([OLD], PURPOSE))
    await one.create(record("t1", runner="gone"))
    assert await other.read("t1") is None
    assert await other.list_tasks("ann", "", 10) == []
    assert "sealed with another key" in caplog.text
    await one.close()
    await other.close()


def test_without_the_library_the_extra_is_named() -> None:
    program = """
import sys
sys.modules["cryptography"] = None
from dragoman.tasks import SqliteTasks
try:
    import dragoman.store.sealing
except Exception as error:
    print(type(error).__name__, error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.startswith("LocalError What is kept encrypted, with keys, needs cryptography")
    assert "dragoman[auth]" in said
