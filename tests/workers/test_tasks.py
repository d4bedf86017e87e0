"""Tasks in a file with `dragoman serve --workers`: what one start has kept, the next one opens."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from dragoman import connect

from .conftest import PATIENCE, Starter

SERVICE = """\
from dragoman import Service

api = Service("lab", tasks={settings})


@api.method(task=True)
async def train(rows: int) -> str:
    return f"{{rows}} rows"
"""


@pytest.mark.parametrize("secret", ["", "a-secret-of-ones-own"], ids=["no secret", "a secret"])
async def test_a_task_outlives_all_workers(secret: str, starter: Starter, tmp_path: Path) -> None:
    starter.file.write_text(SERVICE.format(settings=repr(f"sqlite:{tmp_path}/tasks.db")))
    env = {"DRAGOMAN_SECRET": secret} if secret else {}
    first = await starter.serve("tcp://127.0.0.1:0", env=env)
    async with await connect(first.urls[0]) as peer:
        task = await peer.start("train", [3])
        assert await task.result(timeout=PATIENCE) == "3 rows"
    first.signal(signal.SIGTERM)
    assert await first.ended() == 0
    assert (b"3 rows" in (tmp_path / "tasks.db").read_bytes()) is (not secret)
    second = await starter.serve("tcp://127.0.0.1:0", env=env)
    async with await connect(second.urls[0]) as peer:
        assert await peer.task(task.id).result(timeout=PATIENCE) == "3 rows"
