"""Two tenants of one Redis, with the ACL that the page shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from dragoman import connect, serve
from dragoman.channel import Broken, Options
from dragoman.engines.redis.wire import adapter_at
from dragoman.jsonrpc.errors import LocalError
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import BrokerMessage, Refused

from ..brokers import Engine, engine, name
from ..tenants import PASSWORDS, pays, rules, tenants, url_of
from ..wires import PATIENCE, calculator

Words = tuple[Any, ...]
ATTACKS: dict[str, Words] = {
    "read requests": ("XREAD", "STREAMS", "calculator", "0"),
    "read a range of them": ("XRANGE", "calculator", "-", "+"),
    "take requests": ("XREADGROUP", "GROUP", "workers", "me", "STREAMS", "calculator", ">"),
    "drop requests": ("DEL", "calculator"),
    "read answers": ("XREAD", "STREAMS", "{box}", "0"),
    "forge an answer": ("XADD", "{box}", "*", "head", "{}", "body", "1"),
    "drop answers": ("XTRIM", "{box}", "MAXLEN", "0"),
    "delete a mailbox": ("DEL", "{box}"),
    "read by a script": ("EVAL", "return redis.call('XRANGE', KEYS[1], '-', '+')", "1", "calculator"),
    "forge by a script": ("EVAL", "return redis.call('XADD', KEYS[1], '*', 'a', 'b')", "1", "{box}"),
    "copy a mailbox": ("COPY", "{box}", "calculator:to:mallory:copy"),
    "read the dead": ("XREAD", "STREAMS", "calculator:dead", "0"),
    "call another service": ("XADD", "payroll", "*", "head", "{}", "body", "1"),
    "hear cancels": ("SUBSCRIBE", "calculator:control@0"),
    "watch": ("MONITOR",),
    "look around": ("SCAN", "0"),
    "more rights": ("ACL", "SETUSER", "mallory", "allkeys"),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Engine]:
    """A server with that ACL. The default user may ask whether it is there."""

    def recipe(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
        acl = rules("redis_tenants.acl").replace("user default off", "user default on nopass -@all +ping")
        (folder / "users.acl").write_text(acl)
        words = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
        return [program, *words, "--aclfile", str(folder / "users.acl")], {}, ""

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DRAGOMAN_TEST_REDIS", raising=False)
        with engine("redis", "redis-server", recipe) as one:
            yield one


async def test_a_tenant_reads_and_forges_nothing(shared: Engine) -> None:
    taken: list[str] = []
    host, port = shared.address
    async with (
        tenants(shared.url, "calculator") as (bank, alice, _),
        Redis(host=host, port=port, username="mallory", password=PASSWORDS["mallory"]) as client,
    ):
        thief: Any = client
        for what, words in ATTACKS.items():
            try:
                await thief.execute_command(*(word.replace("{box}", bank.mailboxes["alice"]) for word in words))
                taken.append(what)
            except NoPermissionError:
                pass
        assert await pays(alice, "alice") == ["alice paid"] * 5
    assert taken == []


async def test_a_tenant_is_told_of_a_queue_that_is_full_or_not_there(shared: Engine) -> None:
    url = url_of(shared.url, "alice", "calculator")
    host, port = shared.address
    async with Redis(host=host, port=port, username="worker", password=PASSWORDS["worker"]) as redis:
        await redis.xtrim("calculator", maxlen=0)
        async with connect(f"{url}&max=1", timeout=PATIENCE) as alice:
            await redis.xadd("calculator", {"head": "{}", "body": "1"})
            with pytest.raises(Refused, match="is full: it holds 1 requests"):
                await alice.call("add", [1, 2])
        await redis.xtrim("calculator", maxlen=0)


async def test_an_error_names_the_missing_permission(shared: Engine) -> None:
    for given in ("mailbox=alice", ""):
        url = url_of(shared.url, "mallory", "calculator").replace("mailbox=mallory", given)
        with pytest.raises(Broken, match=r"does not let this user keep the mailbox calculator:to:.*permission"):
            async with connect(url):
                pass
    with pytest.raises(Broken, match=r"does not let this user keep the mailbox payroll:to:mallory:"):
        async with connect(url_of(shared.url, "mallory", "payroll")):
            pass
    with pytest.raises(LocalError, match=r"permission"):
        async with serve(calculator(), urls=url_of(shared.url, "worker", "payroll")):
            pass


async def test_a_queue_that_a_user_may_not_write_to_is_named(redis: Engine) -> None:
    queue, user = name(), name("user")
    async with Redis.from_url(redis.url) as client:
        admin: Any = client
        words = ("on", ">word", "resetkeys", f"~{queue}:to:half:*", "allchannels", "+@all")
        await admin.execute_command("ACL", "SETUSER", user, *words)
        try:
            async with connect(f"redis://{user}:word@{redis.url[8:]}/{queue}?mailbox=half", timeout=PATIENCE) as peer:
                with pytest.raises(Refused, match=rf"permission.*\(XLEN and XADD {queue}\)"):
                    await peer.call("add", [1, 2])
        finally:
            await admin.execute_command("ACL", "DELUSER", user)


async def test_a_request_in_doubt_is_sent_again_marked_where_its_queue_cannot_be_read(shared: Engine) -> None:
    """The first may be there: with the right to read the queue it is looked for."""
    host, port = shared.address
    one = adapter_at(parse(url_of(shared.url, "alice", "calculator")), Options())
    await one.open()
    try:
        async with Redis(host=host, port=port, username="worker", password=PASSWORDS["worker"]) as redis:
            await redis.xadd("calculator", {"head": "{}"})  # so that there is a queue, whatever ran before
            await redis.xtrim("calculator", maxlen=0)
            one._doubtful["c"] = 0.0
            await one.request(BrokerMessage(body=b"1", correlation="c"), None)
            found: Any = await redis.xrange("calculator")
            ((_, entry),) = found
            assert json.loads(entry[b"head"])["count"] == 1
            assert one._doubtful == {}
            await redis.xtrim("calculator", maxlen=0)
    finally:
        await one.close()
