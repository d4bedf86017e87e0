"""Whose a task is, on a real wire and after a restart: it is run again as its caller, who must still be allowed to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dragoman import Context, Identity, InternalError, InvalidParams, Peer, Service, TaskPolicy, connect, serve
from dragoman.access import LocalUser
from dragoman.channel import Admitted, Denied, Handshake
from dragoman.jsonrpc.limits import SERVER
from dragoman.kept_identity import keep_identity, restore_identity
from tests.engines.wires import until
from tests.rpc.tasks.lab import Lab

AGAIN = TaskPolicy(idempotent=True)
IDENTITIES = {
    "nobody": None,
    "a subject": Identity(subject="ada"),
    "all of it": Identity(
        subject="ada",
        client_id="cli",
        issuer="https://issuer",
        scopes=frozenset({"a", "b"}),
        roles=frozenset({"judge"}),
        claims={"groups": ["x"]},
    ),
    "the user of this machine": LocalUser(subject="ada", issuer="local:"),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_an_identity_is_kept_and_restored(name: str) -> None:
    identity = IDENTITIES[name]
    found = restore_identity(keep_identity(identity))
    assert found == identity
    assert type(found) is type(identity)


def test_what_an_identity_cannot_keep() -> None:
    """Claims that JSON does not have; and what it showed, and when that expires, which are not for later."""
    given = Identity(subject="ada", scopes=frozenset({"a"}), claims={"x": object()}, expires_at=5.0)
    assert restore_identity(keep_identity(given)) == Identity(subject="ada", scopes=frozenset({"a"}))


async def guard(handshake: Handshake) -> Admitted | Denied:
    """Lets in whoever says a name."""
    name = dict(handshake.headers).get(b"x-name")
    return Denied(reason="no name") if name is None else Admitted(identity=Identity(subject=name.decode()))


def connected(url: str, name: str) -> Any:
    return connect(url, headers={"x-name": name})


async def test_a_task_is_its_callers_also_after_a_restart(tmp_path: Path) -> None:
    store, names = f"sqlite:{tmp_path / 'lab.db'}", list[str]()
    allowed = True

    def served() -> tuple[Service, asyncio.Event]:
        api, go = Service("who", tasks=store, limits=SERVER.but(drain_timeout=0.1)), asyncio.Event()

        @api.method(task=AGAIN)
        async def who(context: Context) -> str:
            assert context.identity is not None
            names.append(context.identity.subject)
            await go.wait()
            return context.identity.subject

        @api.method(task=AGAIN, allow=lambda identity, arguments: allowed)
        async def if_allowed() -> None:
            names.append("if allowed")
            await go.wait()

        return api, go

    first, _ = served()
    async with serve(first, urls="http://127.0.0.1:0", guard=guard) as serving:
        ada: Peer
        eve: Peer
        async with connected(serving.urls[0], "ada") as ada, connected(serving.urls[0], "eve") as eve:
            task, other = await ada.start("who"), await ada.start("if_allowed")
            with pytest.raises(InvalidParams, match="is unknown"):
                await eve.task(task.id).status()
            await until(lambda: len(names) == 2)
    allowed = False
    second, go = served()
    async with serve(second, urls="http://127.0.0.1:0", guard=guard) as serving:
        url = serving.urls[0]
        async with connected(url, "ada") as ada, connected(url, "eve") as eve:
            await until(lambda: len(names) == 3)
            go.set()
            assert await ada.task(task.id).result(timeout=20) == "ada"
            with pytest.raises(InvalidParams, match="is unknown"):
                await eve.task(task.id).result(timeout=20)
            allowed = True  # who may not call it, may not look at its tasks either
            with pytest.raises(InternalError, match="could not be begun again"):
                await ada.task(other.id).result(timeout=20)
    assert sorted(names) == ["ada", "ada", "if allowed"]


async def test_orphans_that_find_no_room_wait_for_it(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'lab.db'}"
    first = Lab(AGAIN, tasks=store)
    async with serve(first.api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        ids = [(await peer.start("train", [rows])).id for rows in range(5)]
        await until(lambda: len(first.began) == 5)
    second = Lab(AGAIN, tasks=store, limits=SERVER.but(detached_calls=2))
    async with serve(second.api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        await until(lambda: len(second.began) == 1)
        last = peer.task(ids[4])
        statuses = [(await peer.task(id).status()).status for id in ids]
        assert statuses == ["working"] * 5
        await last.cancel()
        second.go.set()
        results = [(await peer.task(id).result(timeout=30))["rows"] for id in ids[:4]]
        assert results == [0, 1, 2, 3]
        assert (await last.status()).status == "cancelled"


def test_a_script_without_a_loop_has_tasks_too() -> None:
    lab = Lab()
    start = b'{"jsonrpc":"2.0","method":"tasks.start","params":["count",[3]],"id":1}'
    id = json.loads(lab.api.answer(start) or b"")["result"]["id"]
    result = {"jsonrpc": "2.0", "method": "tasks.result", "params": [id, 20], "id": 1}
    assert json.loads(lab.api.answer(json.dumps(result).encode()) or b"")["result"]["result"] == [0, 1, 2]
