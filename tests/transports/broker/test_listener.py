"""The listener of every broker, delivery by delivery: an adapter that does what a test says, and a servable that keeps
what comes. `test_memory` and `engines/test_every_broker` have both behind a broker."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.channel import Admitted, Denied, Exchange, Handshake, Identity, Options
from dragoman.jsonrpc.codec import AnyAnswer, FailedAnswer, failed_answer, text_of, unsent_failure
from dragoman.jsonrpc.errors import Refusal, RpcError
from dragoman.jsonrpc.limits import SERVER, Limits
from dragoman.net.scheme import SCHEMES
from dragoman.net.urls import parse
from dragoman.observer import Rejection
from dragoman.transports.broker import contract, listener
from dragoman.transports.broker.channel import BrokerChannel
from dragoman.transports.broker.contract import BrokerMessage, Refused, Take
from dragoman.transports.broker.listener import BrokerListener
from tests.engines.hostile import ADD, request
from tests.engines.wires import PATIENCE, until
from tests.servable import Idle, refused

from .stores import Recording

BUSY = Refusal("busy", "Busy", {})
DRAINING = Refusal("draining", "Draining", {})


class Held(Idle):
    """Served: keeps every exchange until the test answers it."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[Exchange] = []

    def exchange(self, x: Exchange) -> None:
        self.came.append(x)


class Script:
    """A `BrokerAdapter`: the test puts deliveries into it and sees what goes out."""

    name = "Script"
    limit = 1_000
    durable = True

    def __init__(self) -> None:
        self.on_state: Any = None
        self.take: Take = lambda message: None
        self.hears: Take = lambda message: None
        self.sent: list[tuple[str, BrokerMessage]] = []
        self.faults: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = False

    async def open(self) -> None: ...

    async def work(self, take: Take, prefetch: int) -> None:
        self.take = take

    async def pause(self) -> None:
        if self.closed:
            raise ConnectionError("closed")

    async def receive_control(self, take: Take) -> None:
        self.hears = take

    async def mailbox(self, take: Take) -> str:
        return ""

    async def request(self, message: BrokerMessage, ttl: float | None) -> None: ...

    async def send_control(self, message: BrokerMessage) -> None: ...

    def answerable(self, message: BrokerMessage) -> bool:
        return message.reply_to.startswith("box")

    async def answer(self, to: str, message: BrokerMessage) -> None:
        await self.gate.wait()
        if self.closed:
            raise ConnectionError("closed")
        if self.faults:
            raise self.faults.pop()
        self.sent.append((to, message))

    async def close(self) -> None:
        self.closed = True

    # -- what a test does

    def deliver(self, body: bytes = ADD, reply_to: str = "box", correlation: str = "c", **fields: Any) -> list[str]:
        """A delivery comes; how it is settled."""
        settled: list[str] = []
        fields.setdefault("headers", {})
        self.take(BrokerMessage(body=body, reply_to=reply_to, correlation=correlation, settle=settled.append, **fields))
        return settled

    def cancel(self, correlation: str = "c") -> None:
        self.hears(BrokerMessage(body=b"", correlation=correlation, headers={"kind": "cancel"}))

    def broadcast(self, body: bytes, **headers: str) -> None:
        self.hears(BrokerMessage(body=body, headers={"kind": "broadcast"} | headers))

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(message.body) for _, message in self.sent]


class Answering(Held):
    """Served: answers every exchange with the same."""

    def __init__(self, answer: AnyAnswer) -> None:
        super().__init__()
        self._answer = answer

    def exchange(self, x: Exchange) -> None:
        self.came.append(x)
        x.respond(self._answer)


class Scene:
    def __init__(self, options: Options, query: str, held: Held) -> None:
        where = parse(f"memory+broker:q{query}")
        self.adapter, self.held = Script(), held
        self.listener = BrokerListener(self.adapter, where, self.held, options, "q")


@asynccontextmanager
async def scene(
    limits: Limits = SERVER, query: str = "", held: Held | None = None, **options: Any
) -> AsyncIterator[Scene]:
    one = Scene(Options(limits=limits, **options), query, held or Held())
    await one.listener.begin()
    try:
        yield one
    finally:
        one.adapter.gate.set()
        for x in one.held.came:
            x.respond(None)
        await asyncio.wait_for(one.listener.closed(), PATIENCE)
        assert one.adapter.closed


# -- how a delivery ends --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "answer", "refusal", "outcome", "sent"),
    [
        ({}, b"1", None, "answered", 1),
        ({}, None, None, "nothing_owed", 0),
        ({"reply_to": ""}, b"1", None, "nothing_owed", 0),
        ({"reply_to": "", "body": b"no JSON"}, b"1", None, "reject", 0),
        ({"body": b"no JSON"}, b"1", None, "answered", 1),
        ({}, b"", DRAINING, "retry", 0),
    ],
)
async def test_a_delivery_is_settled_once(
    fields: Any, answer: bytes | None, refusal: Refusal | None, outcome: str, sent: int
) -> None:
    async with scene() as one:
        settled = one.adapter.deliver(**fields)
        (x,) = one.held.came
        x.respond(answer if refusal is None else refused(refusal, answer))
        x.respond(b"2")
        one.adapter.cancel()
        await until(lambda: bool(settled))
        assert settled == [outcome]
        assert [(to, message.body, message.correlation) for to, message in one.adapter.sent] == [("box", b"1", "c")][
            :sent
        ]
    assert settled == [outcome]


async def test_an_answer_is_settled_when_the_broker_has_it_and_sent_again_until_then() -> None:
    async with scene() as one:
        one.adapter.gate.clear()
        one.adapter.faults = [ConnectionError("not now")]
        settled = one.adapter.deliver()
        one.held.came[0].respond(b"1")
        await asyncio.sleep(0)
        assert settled == []
        one.adapter.gate.set()
        await until(lambda: bool(settled))
        assert settled == ["answered"]
        assert len(one.adapter.sent) == 1


async def test_an_answer_that_the_broker_never_takes_is_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as one:
        one.adapter.faults = [Refused("never")]
        settled = one.adapter.deliver()
        one.held.came[0].respond(b"1")
        await until(lambda: bool(settled))
        assert settled == ["reject"]
        assert one.adapter.sent == []
    assert "an answer cannot be sent, the request is set aside: never" in caplog.text


async def test_an_answer_that_is_too_large_for_the_broker_is_an_error_that_says_so() -> None:
    async with scene() as one:
        for size in (1_000, 1_001):
            settled = one.adapter.deliver(request(id=size))
            one.held.came[-1].respond(b'"' + b"x" * (size - 2) + b'"')
            await until(lambda settled=settled: bool(settled))  # type: ignore[misc]
            assert settled == ["answered"]
        first, second = one.adapter.bodies
        assert len(first) == 998
        assert second == {
            "jsonrpc": "2.0",
            "error": {
                "code": -32003,
                "message": "Too large: Script takes 1000 bytes, the answer would have 1001",
                "data": {"limit": "Script", "allowed": 1_000, "received": 1_001},
            },
            "id": 1_001,
        }


# -- what is not run ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"reply_to": "elsewhere"}, "wants its answer at 'elsewhere', which is not a mailbox"),
        ({"correlation": "c" * 1_025}, "has a correlation of 1025 characters, id_length allows 1024"),
    ],
)
async def test_what_is_rejected_unread_is_told_with_its_caller(fields: Any, words: str) -> None:
    told: list[Rejection] = []
    async with scene(rejected=told.append) as one:
        assert one.adapter.deliver(**fields) == ["reject"]
        assert one.adapter.deliver(correlation="c" * 1_024) == []
        assert len(one.held.came) == 1
        (rejection,) = told
        assert words in rejection.reason
        assert (rejection.kind, rejection.size, rejection.place) == ("malformed", len(ADD), one.listener.url)
        assert rejection.caller is not None
        assert rejection.caller.remote == fields.get("reply_to", "box")
        measures = one.listener.measures()
        assert (measures["deliveries_refused_total"], measures["deliveries_unsettled"]) == (1, 1)


async def test_the_caller_of_what_is_rejected_is_its_mailbox() -> None:
    told: list[Rejection] = []
    async with scene(rejected=told.append) as one:
        one.adapter.deliver(reply_to="elsewhere.17", mailbox="elsewhere")
    assert told[0].caller is not None
    assert told[0].caller.remote == "elsewhere"


async def test_given_up_is_answered_set_aside_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Rejection] = []
    async with scene(query="?deliveries=3", rejected=told.append) as one:
        assert one.adapter.deliver(count=2) == []
        assert len(one.held.came) == 1
        one.adapter.gate.clear()
        settled = one.adapter.deliver(request(id=7), correlation="d", count=3)
        one.adapter.cancel("d")  # it is over already: its end is not the caller's any more
        one.adapter.gate.set()
        await until(lambda: bool(settled))
        assert settled == ["reject"]
        assert len(one.held.came) == 1
        [answer] = one.adapter.bodies
        assert (answer["id"], answer["error"]["code"]) == (7, -32603)
        assert answer["error"]["data"] == {"limit": "deliveries", "allowed": 3}
        for body in (b'{"jsonrpc":"2.0","method":"note"}', b"no JSON"):
            settled = one.adapter.deliver(body, correlation="e", count=3)
            await until(lambda settled=settled: bool(settled))  # type: ignore[misc]
            assert settled == ["reject"]
        assert len(one.adapter.sent) == 1
    assert [one.kind for one in told] == ["failed"] * 3
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    [error] = errors  # a line and a count: who sends such requests cannot fill the log
    assert "a request was delivered 3 times and never answered; it is set aside" in error


async def test_a_request_that_is_too_large_is_answered_and_not_run() -> None:
    told: list[Rejection] = []
    async with scene(SERVER.but(message_size=len(ADD)), rejected=told.append) as one:
        one.adapter.deliver()
        settled = one.adapter.deliver(ADD + b" ", correlation="d")
        await until(lambda: bool(settled))
        assert settled == ["answered"]
        assert len(one.held.came) == 1
        [answer] = one.adapter.bodies
        assert (answer["id"], answer["error"]["code"]) == (None, -32003)
    assert [one.kind for one in told] == ["too_large"]


async def test_a_request_after_its_deadline_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "now", lambda: 1_000.0)
    async with scene() as one:
        for text, late in (
            ("999999", True),
            ("1000000", False),
            ("1000001", False),
            ("0", True),
            ("", False),
            ("-1", False),
            ("٣", False),
            ("0" * 19, True),
            ("0" * 20, False),
        ):
            before = len(one.held.came)
            settled = one.adapter.deliver(headers={"deadline": text}, correlation=text)
            assert (settled == ["nothing_owed"], len(one.held.came) == before) == (late, late), text


async def test_a_cancel_ends_what_runs_and_what_comes_after_it() -> None:
    async with scene(SERVER.but(cancels_kept=2)) as one:
        gone: list[str] = []
        first, other = one.adapter.deliver(correlation="first"), one.adapter.deliver(correlation="other")
        for x, name in zip(one.held.came, ("first", "other"), strict=True):
            x.gone = lambda name=name: gone.append(name)
        one.adapter.cancel("first")
        assert (first, other, gone) == (["nothing_owed"], [], ["first"])
        assert one.adapter.deliver(correlation="first") == ["nothing_owed"]
        one.adapter.cancel("x" * 1_025)
        one.adapter.cancel("")
        one.adapter.cancel("second")
        assert one.adapter.deliver(correlation="first") == ["nothing_owed"]
        one.adapter.cancel("third")
        assert one.adapter.deliver(correlation="first") == []  # the oldest of three is forgotten
        assert one.adapter.deliver(correlation="second") == ["nothing_owed"]
        assert one.adapter.deliver(correlation="") == []


# -- slots ----------------------------------------------------------------------------------------


async def test_what_finds_no_slot_is_offered_until_nothing_waits() -> None:
    async with scene() as one:
        settled = one.adapter.deliver()
        one.held.came[0].respond(refused(BUSY))
        assert settled == []
        assert one.listener.measures()["deliveries_waiting"] == 1
        await until(lambda: len(one.held.came) == 2)
        assert one.listener.measures()["deliveries_waiting"] == 0
        assert one.listener._offering is None
        one.held.came[1].respond(b"1")
        await until(lambda: bool(settled))
        assert settled == ["answered"]


async def test_one_that_is_over_does_not_keep_those_behind_it_waiting() -> None:
    async with scene() as one:
        first, second = one.adapter.deliver(correlation="first"), one.adapter.deliver(correlation="second")
        for x in list(one.held.came):
            x.respond(refused(BUSY))
        one.adapter.cancel("first")
        assert first == ["nothing_owed"]
        await until(lambda: len(one.held.came) == 3)
        one.held.came[2].respond(b"1")
        await until(lambda: bool(second))
        assert second == ["answered"]


async def test_what_waits_goes_back_when_the_listener_closes() -> None:
    async with scene() as one:
        settled = one.adapter.deliver()
        one.held.came[0].respond(refused(BUSY))
        await one.listener.close()
        assert settled == ["retry"]
        late = one.adapter.deliver()
        assert late == ["retry"]
        assert len(one.held.came) == 1


# -- broadcasts, guards ---------------------------------------------------------------------------


async def test_a_broadcast_is_run_up_to_the_size_of_messages_and_until_the_end() -> None:
    async with scene(SERVER.but(message_size=len(ADD))) as one:
        one.adapter.broadcast(ADD)
        one.adapter.broadcast(ADD + b" ")
        assert [x.request for x in one.held.came] == [ADD]
        await one.listener.close()
        one.adapter.broadcast(ADD)
        assert len(one.held.came) == 1


async def test_what_a_guard_sees_and_says() -> None:
    seen: list[Handshake] = []

    async def guard(handshake: Handshake) -> Admitted | Denied:
        seen.append(handshake)
        shown = dict(handshake.headers).get(b"authorization")
        return Admitted(identity=Identity(subject="ada")) if shown == b"ada" else Denied(reason="no")

    told: list[Rejection] = []
    async with scene(guard=guard, rejected=told.append) as one:
        one.adapter.deliver(headers={"Authorization": "ada", "X-\u00e9": "\ud800"}, mailbox="boxes", reply_to="box.1")
        await until(lambda: bool(one.held.came))
        identity = one.held.came[0].caller.identity
        assert identity is not None
        assert identity.subject == "ada"
        assert seen[0].remote == "boxes"
        assert seen[0].scheme == "memory+broker"
        assert seen[0].url == one.listener.url
        assert seen[0].headers == [(b"authorization", b"ada"), ("x-\u00e9".encode(), b"\\ud800")]
        denied, unanswerable = one.adapter.deliver(correlation="d"), one.adapter.deliver(reply_to="", correlation="e")
        await until(lambda: bool(denied and unanswerable))
        assert (denied, unanswerable) == (["answered"], ["nothing_owed"])
        assert [(to, message.correlation) for to, message in one.adapter.sent] == [("box", "d")]
        one.adapter.broadcast(ADD)
        one.adapter.broadcast(ADD, authorization="ada")
        await until(lambda: len(one.held.came) == 2)
        assert one.held.came[1].caller.identity == identity
        assert [one.kind for one in told] == ["denied"] * 3


async def test_no_more_broadcasts_wait_for_a_guard_than_calls_may_run() -> None:
    gate = asyncio.Event()

    async def guard(handshake: Handshake) -> Admitted | Denied:
        await gate.wait()
        return Admitted()

    told: list[Rejection] = []
    async with scene(SERVER.but(calls=2), guard=guard, rejected=told.append) as one:
        for _ in range(5):
            one.adapter.broadcast(ADD)
        assert (len(one.listener.background), [one.kind for one in told]) == (2, ["busy"] * 3)
        gate.set()
        await until(lambda: len(one.held.came) == 2)
        one.adapter.broadcast(ADD)
        await until(lambda: len(one.held.came) == 3)


# -- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("write_timeout", [1_000.0, None])
async def test_the_end_waits_for_what_runs_while_the_broker_is_there(
    monkeypatch: pytest.MonkeyPatch, write_timeout: float | None
) -> None:
    monkeypatch.setattr(listener, "PAUSES", (0.0, 1.0))
    async with scene(SERVER.but(write_timeout=write_timeout)) as one:
        settled = one.adapter.deliver()
        ended = asyncio.gather(one.listener.closed(), one.listener.closed())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not ended.done()
        assert not one.adapter.closed
        one.held.came[0].respond(b"1")
        await asyncio.wait_for(ended, PATIENCE)
        assert settled == ["answered"]
        assert len(one.adapter.sent) == 1


async def test_the_end_waits_no_longer_than_write_timeout() -> None:
    async with scene(SERVER.but(write_timeout=0.01)) as one:
        settled = one.adapter.deliver()
        await asyncio.wait_for(one.listener.closed(), PATIENCE)
        assert settled == []


async def test_the_end_does_not_wait_for_a_broker_that_is_away() -> None:
    async with scene(SERVER.but(write_timeout=1_000.0)) as one:
        one.adapter.on_state(False, "it is away")
        assert one.listener.measures()["broker_connected"] == 0
        settled = one.adapter.deliver()
        await asyncio.wait_for(one.listener.closed(), PATIENCE)
        assert settled == []


async def test_outages_are_counted_once_each() -> None:
    async with scene() as one:
        for online in (False, False, True, True, False, True):
            one.adapter.on_state(online, "why")
        assert one.listener.measures()["broker_outages_total"] == 2


# -- what is kept under an idempotency key --------------------------------------------------------

RESULT = b'{"jsonrpc":"2.0","result":1,"id":1}'


def fault(code: int, refusal: Refusal | None = None) -> FailedAnswer:
    return failed_answer(1, RpcError.of(code, "m"), refusal=refusal)


@pytest.mark.parametrize("shared", [False, True], ids=["here", "shared"])
@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (RESULT, True),
        (None, True),  # of a notification
        (unsent_failure(RpcError.of(-32602, "m"), None), True),
        (fault(-32603), True),
        (fault(-32000), True),
        (fault(1001), True),
        (b'{"result":1,"error":null,"id":1}', True),
        (b"[" + RESULT + b"," + (fault(-32601).text or b"") + b"]", True),
        (fault(-32601), False),
        (fault(-32602), False),
        (fault(-32600), False),
        (fault(-32700), False),
        (failed_answer(1, RpcError.of(-32601, "m"), "1.0"), False),
        (fault(-32000, Refusal("rate_limited", "Rate limited", {})), False),
        (fault(-32000, Refusal("forbidden", "Forbidden", {})), False),
        (fault(-32000, Refusal("too_large", "Too large", {})), False),
        (fault(-32602, Refusal("unfit", "no such method", {})), False),
    ],
)
async def test_only_the_answer_of_a_call_that_began_is_kept(answer: AnyAnswer, kept: bool, shared: bool) -> None:
    store = Recording() if shared else None
    async with scene(held=Answering(answer), store=store) as one:
        for _ in range(2):
            settled = one.adapter.deliver(headers={"key": "k"})
            await until(lambda settled=settled: settled)  # type: ignore[misc]
        assert len(one.held.came) == (1 if kept else 2)
        text = text_of(answer)
        assert [message.body for _, message in one.adapter.sent] == ([] if text is None else [text] * 2)
        assert store is None or len(store.values) == kept


async def test_a_request_that_is_too_large_may_come_again_under_its_key() -> None:
    async with scene(limits=SERVER.but(message_size=len(ADD)), held=Answering(RESULT)) as one:
        for body in (ADD + b" ", ADD):
            settled = one.adapter.deliver(body, headers={"key": "k"})
            await until(lambda settled=settled: settled)  # type: ignore[misc]
        assert [list(body) for body in one.adapter.bodies] == [["jsonrpc", "error", "id"], ["jsonrpc", "result", "id"]]


async def test_no_acknowledgement_waits_for_the_deletion_of_older_answers() -> None:
    store = Recording()
    store.go.clear()
    async with scene(limits=SERVER.but(answers_kept=2), held=Answering(RESULT), store=store) as one:
        for number in range(6):
            settled = one.adapter.deliver(headers={"key": f"k-{number}"})
            await until(lambda settled=settled: settled == ["answered"])  # type: ignore[misc]
        assert (len(store.deleted), len(store.values)) == (1, 6)
        store.go.set()
        await until(lambda: len(store.values) == 2)
    assert len(store.deleted) == 4


# -- the caller -----------------------------------------------------------------------------------

BROKERS = ("memory+broker", *(scheme for scheme, row in SCHEMES.items() if row.dial.startswith("engines.")))


@pytest.mark.parametrize("scheme", BROKERS)
async def test_tls_is_what_the_scheme_says_at_both_ends(scheme: str) -> None:
    where = parse(f"{scheme}:q" if scheme == "memory+broker" else f"{scheme}://host/q")
    adapter, held = Script(), Held()
    serving = BrokerListener(adapter, where, held, Options(limits=SERVER), "q")
    await serving.begin()
    adapter.deliver()
    adapter.broadcast(ADD)
    callers = [x.caller for x in held.came] + [BrokerChannel(Script(), where, SERVER).caller]
    assert [caller.tls for caller in callers] == [scheme in ("amqps", "mqtts", "natss", "rediss")] * 3
    held.came[0].respond(None)
    await serving.closed()
