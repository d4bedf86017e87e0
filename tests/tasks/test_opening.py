"""The store of tasks that a URL names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.bus import open_bus
from dragoman.jsonrpc.errors import LocalError
from dragoman.tasks import BusTasks, SqliteTasks, TaskLimits, TasksFull, open_tasks

from .table import record

KEY = b"a secret of the tests"


@pytest.mark.parametrize("keys", [[], [KEY]], ids=["open", "sealed"])
@pytest.mark.parametrize(("url", "kind"), [("memory:", SqliteTasks), ("sqlite:", SqliteTasks), ("bus", BusTasks)])
async def test_each_url_opens_its_store(url: str, kind: type, keys: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    bus = await open_bus("memory:opening")
    store = open_tasks(f"sqlite:{path}" if url == "sqlite:" else url, TaskLimits(tasks_each=1), bus, keys, life=2.0)
    assert isinstance(store, kind)
    assert store.life == 2.0
    await store.create(record("t1"))
    found = await store.read("t1")
    assert found is not None
    assert found.owner == "ann"
    with pytest.raises(TasksFull, match="limit tasks_each allows 1"):
        await store.create(record("t2"))
    assert path.exists() is (url == "sqlite:")
    await store.close()
    await bus.close()


class Bare:
    """A bus that stores nothing."""

    url = "amqp://broker"
    store = None


@pytest.mark.parametrize("url", ["", "memory:x", "sqlite:", "redis://there", "bus:x"])
def test_another_url_is_an_error(url: str) -> None:
    with pytest.raises(LocalError, match="there is no store"):
        open_tasks(url)


def test_a_bus_is_needed_that_stores() -> None:
    with pytest.raises(LocalError, match="there is no bus: give bus="):
        open_tasks("bus")
    with pytest.raises(LocalError, match="amqp://broker stores nothing"):
        open_tasks("bus", bus=Bare())


def test_what_is_not_used_is_not_imported() -> None:
    program = """
import sys
from dragoman.tasks import open_tasks
assert not {"sqlite3", "cryptography", "asyncio"} & {*sys.modules}, sorted(sys.modules)
open_tasks("memory:")
assert "cryptography" not in sys.modules
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}  # it imports sqlite3
    subprocess.run([sys.executable, "-c", program], check=True, env=env)
