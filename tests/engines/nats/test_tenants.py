"""Two tenants of one NATS server, with the permissions that the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg

from dragoman import connect, serve
from dragoman.channel import Broken
from dragoman.jsonrpc.errors import LocalError
from dragoman.transports.broker.contract import Refused

from ..brokers import Engine, engine
from ..tenants import PASSWORDS, pays, rules, tenants, url_of
from ..wires import PATIENCE, calculator

SERVICES = {"nats_tenants.conf": ("calculator", ()), "nats_tenants_stream.conf": ("orders", ("stream=work",))}


@pytest.fixture(params=SERVICES, scope="module")
def shared(request: pytest.FixtureRequest) -> Iterator[tuple[Engine, str, tuple[str, ...]]]:
    """A server with those permissions, and the service that they are for."""

    def recipe(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
        (folder / "nats.conf").write_text(rules(request.param))
        words = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder), "-c", str(folder / "nats.conf")]
        return [program, *words], {}, ""

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DRAGOMAN_TEST_NATS", raising=False)
        with engine("nats", "nats-server", recipe, "/usr/sbin/nats-server") as one:
            yield one, *SERVICES[request.param]


async def test_a_tenant_reads_and_forges_nothing(shared: tuple[Engine, str, tuple[str, ...]]) -> None:
    broker, path, query = shared
    refused: list[str] = []
    read: list[bytes] = []

    async def denied(error: Exception) -> None:
        refused.append(str(error))

    async def came(message: Msg) -> None:
        read.append(message.data)

    async with tenants(broker.url, path, *query) as (bank, alice, _):
        thief = await nats.connect(broker.url, user="mallory", password=PASSWORDS["mallory"], error_cb=denied)
        for subject in (path, f"{path}.>", ">", "_INBOX.>", "_INBOX.alice.>", "$JS.API.>", "*"):
            await thief.subscribe(subject, cb=came)
        for subject in (bank.mailboxes["alice"] + ".1", "_INBOX.worker.x", f"{path}.all", f"{path}.dead", "other"):
            await thief.publish(subject, b'{"jsonrpc":"2.0","result":"mallory paid","id":1}')
        await thief.publish("$JS.API.STREAM.MSG.GET.work", b'{"seq":1}', reply="_INBOX.mallory.x")
        await thief.flush()
        assert await pays(alice, "alice") == ["alice paid"] * 5
        await thief.flush()
        await thief.close()
    assert read == []
    assert len(refused) == 7 + 5 + 1
    assert all("permissions violation" in one for one in refused)


async def test_an_error_names_the_missing_permission(shared: tuple[Engine, str, tuple[str, ...]]) -> None:
    broker, path, query = shared
    for who, gives in (("mallory", "alice"), ("alice", "")):  # another's prefix, and that of all
        url = url_of(broker.url, who, path, *query).replace(f"mailbox={who}", f"mailbox={gives}" if gives else "")
        with pytest.raises(Broken, match=rf"does not let this user subscribe to _INBOX\.{gives}.*\?mailbox="):
            async with connect(url):
                pass
    async with connect(url_of(broker.url, "mallory", "payroll", *query), timeout=PATIENCE) as peer:
        with pytest.raises(Refused, match=r"does not let this user publish to payroll"):
            await peer.call("add", [1, 2])
    with pytest.raises(LocalError, match=r"does not let this user (subscribe to payroll|publish to \$JS\.API)"):
        async with serve(calculator(), urls=url_of(broker.url, "worker", "payroll", *(one + "2" for one in query))):
            pass
