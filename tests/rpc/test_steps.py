"""Whatever inner step of ours raises: its message is answered with -32603, and everything beside it as ever.

The steps are found by walking calls over each wire; one that stands in neither table below and does not keep the rule
fails here.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import websockets

from dragoman import Limits, serve
from dragoman.channel import CallLimit
from dragoman.system.sockets import UNIX

from .steps import arm_step, broken_service, walked
from .test_peer import raw

METHODS = ("later", "in_thread", "inline")
GUARDS = {
    "rpc.channel_peer:ChannelPeer.received": "catches what the rest raises",
    "rpc.runner:Runner.exchange": "catches what the rest raises",
    "rpc.channel_peer:ChannelPeer.answer": "sends the answer, that of a fault too",
    "rpc.inbound:InboundCall.start": "catches what the beginning of a call raises",
    "rpc.inbound:InboundCall._close": "catches what the end of a call raises",
    "rpc.inbound:InboundCall._deliver_once": "sends the answer, that of a fault too",
    "rpc.thread_pool:Work.settle": "the end of a thread's work: called by the loop, under the guard of the pool",
    "rpc.thread_pool:_Queue.call": "called by the loop, and calls the rest under a guard",
}
"""Steps that are the way of every answer, and why nothing behind them can answer in their place."""
AFTER = {
    "rpc.inbound:InboundCall._gone",
    "rpc.inbound:InboundCall.take_slot",
    "rpc.deadlines:DeadlineClock.drop",
    "rpc.channel_peer:ChannelPeer.release",
    "rpc.runner:ExchangeOrigin.release",
    "jsonrpc.conversation:Conversation.release",
    "jsonrpc.call_limit:CallLimit.leave",
}
"""Steps behind the answer: the fault is logged, the answer is the result."""

BEFORE = {"jsonrpc.framing"}
"""What cuts a stream into messages: where it fails no message is there to be answered, and the channel is over."""


def request(method: str, id: int) -> bytes:
    return b'{"jsonrpc":"2.0","method":"%b","params":[%d],"id":%d}' % (method.encode(), id, id)


class Wire:
    """A far end that writes two messages at once and reads answers."""

    def __init__(self, write: Callable[[list[bytes]], Any], next: Callable[[], Any]) -> None:
        self.write = write
        self.next = next

    async def both(self, messages: list[bytes]) -> list[Any]:
        """The two answers, by id."""
        await self.write(messages)
        async with asyncio.timeout(20):
            found = [msgspec.json.decode(await self.next()) for _ in messages]
        return sorted(found, key=lambda answer: str(answer.get("id")))


@asynccontextmanager
async def memory() -> AsyncIterator[Wire]:
    async with raw(broken_service()) as (far, _):

        async def write(messages: list[bytes]) -> None:
            for message in messages:
                far.send(message.decode())

        yield Wire(write, far.next)


@asynccontextmanager
async def stream(url: str) -> AsyncIterator[Wire]:
    async with serve(broken_service(), urls=[url]) as serving:
        if url.startswith("unix:"):
            reader, writer = await asyncio.open_unix_connection(url.removeprefix("unix:"))
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(re.split(r"[:?/]", serving.urls[0])[4]))

        async def write(messages: list[bytes]) -> None:
            writer.write(
                b"".join(
                    b"Content-Length: %d\r\n\r\n%b" % (len(m), m) if "length" in url else m + b"\n" for m in messages
                )
            )

        async def next() -> bytes:
            if "length" not in url:
                return await reader.readline()
            head = await reader.readuntil(b"\r\n\r\n")
            return await reader.readexactly(int(head.split()[1]))

        yield Wire(write, next)
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def websocket() -> AsyncIterator[Wire]:
    async with (
        serve(broken_service(), urls=["ws://127.0.0.1:0"]) as serving,
        websockets.connect(serving.urls[0]) as socket,
    ):

        async def write(messages: list[bytes]) -> None:
            for message in messages:
                await socket.send(message)

        yield Wire(write, socket.recv)


@asynccontextmanager
async def http() -> AsyncIterator[Wire]:
    async with serve(broken_service(), urls=["http://127.0.0.1:0"]) as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(serving.urls[0].split(":")[2].strip("/")))
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"

        async def write(messages: list[bytes]) -> None:
            writer.write(b"".join(head % (len(message), message) for message in messages))

        async def next() -> bytes:
            answer = await reader.readuntil(b"\r\n\r\n")
            return await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))

        yield Wire(write, next)
        writer.close()
        await writer.wait_closed()


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.got: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.put_nowait(data)


@asynccontextmanager
async def udp() -> AsyncIterator[Wire]:
    async with serve(broken_service(), urls=["udp://127.0.0.1:0"], amplify=True) as serving:
        loop = asyncio.get_running_loop()
        address = ("127.0.0.1", int(serving.urls[0].split(":")[2]))
        transport, ours = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)

        async def write(messages: list[bytes]) -> None:
            for message in messages:
                transport.sendto(message)

        yield Wire(write, ours.got.get)
        transport.close()


WIRES: dict[str, Callable[[Path], Any]] = {
    "memory": lambda folder: memory(),
    "tcp": lambda folder: stream("tcp://127.0.0.1:0"),
    "tcp-lsp": lambda folder: stream("tcp://127.0.0.1:0?framing=content-length"),
    "unix": lambda folder: stream(f"unix:{folder}/s"),
    "ws": lambda folder: websocket(),
    "http": lambda folder: http(),
    "udp": lambda folder: udp(),
}


@pytest.fixture
def call_limits(monkeypatch: pytest.MonkeyPatch) -> list[CallLimit]:
    """Every one that is made in the test."""
    made: list[CallLimit] = []
    original = CallLimit.__init__

    def init(limit: CallLimit, limits: Limits) -> None:
        original(limit, limits)
        made.append(limit)

    monkeypatch.setattr(CallLimit, "__init__", init)
    return made


async def none_in_flight(limits: list[CallLimit], where: str) -> None:
    """Wait until no call is counted; one that is counted for ever holds back the end of its server."""
    try:
        async with asyncio.timeout(20):
            while any(limit.in_flight for limit in limits):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    except TimeoutError:
        pytest.fail(f"a call is counted for ever: {where}")


def known(step: str) -> str:
    return step.removeprefix("dragoman.")


async def steps_of(wire: Wire, method: str) -> set[str]:
    """What a call enters, but for functions within functions, which are entered from one of these."""
    with walked() as found:
        await wire.both([request(method, 1)])
        await asyncio.sleep(0.01)
    return {step for step in found if "<" not in step and known(step).split(":")[0] not in BEFORE}


@pytest.mark.parametrize("name", WIRES)
async def test_a_step_that_raises_is_the_fault_of_its_message_alone(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, call_limits: list[CallLimit]
) -> None:
    tried = 0
    async with WIRES[name](tmp_path) as wire:
        for method in METHODS:
            for step in sorted(await steps_of(wire, method)):
                if known(step) in GUARDS or known(step) in AFTER:
                    continue
                tried += 1
                caplog.clear()
                mend = arm_step(step)
                try:
                    answers = await wire.both([request(method, 1), request(method, 2)])
                finally:
                    raised = mend()
                where = f"{step} of {method}: {answers}"
                await none_in_flight(call_limits, where)
                failed = [answer for answer in answers if "error" in answer]
                assert [answer["id"] for answer in answers] == [1, 2], where
                if not raised:
                    assert not failed, where
                    continue
                (error,) = [answer["error"] for answer in failed]
                assert error["code"] == -32603, where
                (logged,) = [one for one in caplog.records if one.exc_info and "StepBroke" in str(one.exc_info[0])]
                assert error["data"]["reference"] in logged.getMessage(), where
    assert tried > 20


@pytest.mark.parametrize(
    "step", sorted(AFTER - {"jsonrpc.call_limit:CallLimit.leave", "rpc.runner:ExchangeOrigin.release"})
)
async def test_a_step_behind_the_answer_that_raises_is_logged(step: str, caplog: pytest.LogCaptureFixture) -> None:
    async with memory() as wire:
        mend = arm_step(f"dragoman.{step}")
        answers = await wire.both([request("later", 1), request("later", 2)])
        assert mend()
        assert [answer["result"] for answer in answers] == [1, 2]
        assert [one for one in caplog.records if one.exc_info and "StepBroke" in str(one.exc_info[0])]


async def test_no_step_stands_in_a_table_that_no_call_takes(tmp_path: Path) -> None:
    found: set[str] = set()
    for make in (make for name, make in WIRES.items() if UNIX or name != "unix"):
        async with make(tmp_path) as wire:
            for method in METHODS:
                found |= {known(step) for step in await steps_of(wire, method)}
    assert (GUARDS.keys() | AFTER) - {"jsonrpc.call_limit:CallLimit.leave"} <= found


STDIO = """
import asyncio
from dragoman import serve
from tests.rpc.steps import broken_service

async def main():
    await serve(broken_service(), urls=["stdio:"])

asyncio.run(main())
"""


async def test_a_step_that_raises_behind_standard_input() -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STDIO),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    async with raw(broken_service()) as (far, _):

        async def write(messages: list[bytes]) -> None:
            for message in messages:
                far.send(message.decode())

        steps = await steps_of(Wire(write, far.next), "later")
    for step in sorted(steps):
        if known(step) in GUARDS or known(step) in AFTER:
            continue
        child.stdin.write(b'{"jsonrpc":"2.0","method":"arm","params":["%b"],"id":0}\n' % step.encode())
        assert b"true" in await asyncio.wait_for(child.stdout.readline(), 20)
        async with asyncio.timeout(20):
            while f"armed {step}".encode() not in await child.stderr.readline():
                pass
        child.stdin.write(request("later", 1) + b"\n" + request("later", 2) + b"\n")
        answers = [msgspec.json.decode(await asyncio.wait_for(child.stdout.readline(), 20)) for _ in range(2)]
        assert sorted(answer["id"] for answer in answers) == [1, 2], step
        child.stdin.write(b'{"jsonrpc":"2.0","method":"raised","id":0}\n')
        raised = b"true" in await asyncio.wait_for(child.stdout.readline(), 20)
        assert [answer["error"]["code"] for answer in answers if "error" in answer] == [-32603] * raised, step
    child.stdin.close()
    assert await child.wait() == 0
