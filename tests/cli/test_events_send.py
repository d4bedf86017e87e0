"""`dragoman events send`, against receivers in this process: one of the package, and such as refuse, lie and hang."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman import Service, serve
from dragoman.mcp.extensions.events import EventReceiver, ReceivedEvent, new_secret
from tests.mcp.extensions.events.receiving import OTHER, SECRET, Behaviour, Posted, echo, receiving, reply

from .conftest import Command, Done

Send = Callable[..., Any]


@pytest.fixture
def send(command: Command) -> Send:
    """The command, beside this loop."""

    async def run(url: str, *words: str, env: dict[str, str] | None = None) -> Done:
        return await asyncio.to_thread(command.run, "events", "send", url, *words, env=env)

    return run


class Kept:
    """What a receiver of the package has handled; `fails`: it raises."""

    def __init__(self, **options: Any) -> None:
        self.events: list[ReceivedEvent] = []
        self.fails = False
        self.receiver = EventReceiver(self.handle, **options)

    async def handle(self, event: ReceivedEvent) -> None:
        if self.fails:
            raise ValueError("not today")
        self.events.append(event)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve it; its URL."""
        hooks = Service("hooks")
        self.receiver.mount(hooks, "/hooks")
        async with serve(hooks, urls="http://127.0.0.1:0/rpc") as serving:
            yield serving.urls[0].replace("/rpc", "/hooks")


@pytest.mark.parametrize("chatgpt", [False, True])
@pytest.mark.parametrize("by", ["begin", "secret_for"])
async def test_a_receiver_of_the_package_accepts_it_once(send: Send, by: str, chatgpt: bool) -> None:
    secret = new_secret()
    kept = Kept(secret_for=lambda id: secret if id == "sub_mine" else None) if by == "secret_for" else Kept()
    if by == "begin":
        kept.receiver.begin(secret)
    words = ["orders.shipped", "order=42", 'note="42"', "--secret", secret, "--event-id", "evt_1"]
    words += ["--subscription", "sub_mine"] + ["--chatgpt"] * chatgpt
    async with kept.served() as url:
        for _ in range(2):
            done = await send(url, *words)
            assert (done.status, done.err) == (0, ""), done
            assert done.out == "challenge  returned (200)\nevent      accepted (204)  evt_1\n"
        (event,) = kept.events
        assert (event.id, event.name, event.data) == ("evt_1", "orders.shipped", {"order": 42, "note": "42"})
        assert event.subscription == "sub_mine"


@pytest.mark.parametrize("chatgpt", [False, True])
async def test_it_is_what_a_server_posts(send: Send, chatgpt: bool) -> None:
    async with receiving() as receiver:
        words = ["--data", '{"order":"42"}', "--secret", SECRET] + ["--chatgpt"] * chatgpt
        done = await send(receiver.url, "orders.shipped", *words)
        assert done.status == 0, done
        first, second = receiver.posted
        assert first.is_verification
        assert (second.message["name"], second.message["data"]) == ("orders.shipped", {"order": "42"})
        assert all(one.is_signed_by(SECRET) for one in receiver.posted)
        assert all(one.headers["content-type"] == "application/json" for one in receiver.posted)
        assert first.headers["x-mcp-subscription-id"] == second.headers["x-mcp-subscription-id"]
        assert (second.headers["webhook-id"] == second.message["eventId"]) is chatgpt


async def test_without_a_secret_one_is_made_and_told(send: Send) -> None:
    async with receiving() as receiver:
        done = await send(receiver.url, "orders.shipped")
        assert done.status == 0, done
        made = done.err.split()[3].rstrip(":")
        assert all(one.is_signed_by(made) for one in receiver.posted)
        found = (await send(receiver.url, "orders.shipped", "--json")).json
        assert receiver.posted[-1].is_signed_by(found["secret"])
        event = receiver.posted[-1].message
        assert found["sent"] == {
            "id": event["eventId"],
            "name": "orders.shipped",
            "data": {},
            "subscription": receiver.posted[-1].headers["x-mcp-subscription-id"],
        }
        assert found["challenge"] == {"accepted": True, "status": 200, "reason": None}
        assert found["event"] == {"accepted": True, "status": 204, "reason": None}
        known = await send(receiver.url, "x", "--json", env={"DRAGOMAN_WEBHOOK_SECRET": SECRET})
        assert "secret" not in known.json
        assert receiver.posted[-1].is_signed_by(SECRET)


def by_status(challenge: bytes | None, event: bytes | None = None) -> Behaviour:
    return lambda posted: challenge if posted.is_verification else event


def half(posted: Posted) -> bytes:
    """An answer that does not go on."""
    return b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"challenge"' if posted.is_verification else reply(204)


REFUSING: dict[str, tuple[Behaviour, int, str]] = {
    "another answer": (by_status(reply(200, b"ok")), 1, "not returned (200): the answer to a challenge is"),
    "an empty answer": (by_status(reply(204)), 1, "there was none, or none that"),
    "another challenge": (by_status(reply(200, b'{"challenge":"x"}')), 1, "not returned (200)"),
    "escapes": (by_status(reply(200, b"\x1b[2J\xff")), 1, "the body was '\\x1b[2J"),
    "much": (by_status(reply(200, b"x" * 100_000)), 1, "there was none, or none that could be read"),
    "half an answer": (half, 3, "no answer came within 2 s"),
    "no signature": (by_status(reply(401)), 1, "refused (401): it did not take the signature"),
    "another path": (by_status(reply(404)), 1, "refused (404): nothing answers at that path"),
    "elsewhere": (by_status(reply(307, b"", "Location: /other")), 1, "refused (307): it leads elsewhere"),
    "a fault": (by_status(reply(500)), 1, "refused (500): it failed; its log says why"),
    "no HTTP": (by_status(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), 3, "what came is no answer of HTTP"),
    "nothing": (by_status(None), 3, "no answer came within 2 s"),
}


@pytest.mark.parametrize("case", REFUSING)
async def test_a_challenge_that_is_not_returned(send: Send, case: str) -> None:
    behave, status, said = REFUSING[case]
    async with receiving(behave) as receiver:
        done = await send(receiver.url, "orders.shipped", "--secret", SECRET, "--timeout", "2")
        assert done.status == status, done
        first, second = done.out.splitlines()
        assert said in first, done.out
        assert second == "event      not sent, as a server does not without the challenge"
        assert "\x1b" not in done.out
        assert receiver.events == []


def accepting(event: bytes | None) -> Behaviour:
    return lambda posted: echo(posted) if posted.is_verification else event


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (reply(410), 1, "refused (410): it knows no such subscription"),
        (reply(413), 1, "refused (413): the event is too large for it"),
        (reply(503, b"", "Retry-After: 5"), 1, "refused (503): it is busy"),
        (reply(503, b"", "Retry-After: 5"), 1, "; come again in 5 s"),
        (reply(418), 1, "refused (418): it refused"),
        (None, 3, "failed: no answer came within 2 s"),
    ],
)
async def test_an_event_that_is_refused(send: Send, answer: bytes | None, status: int, said: str) -> None:
    async with receiving(accepting(answer)) as receiver:
        done = await send(receiver.url, "orders.shipped", "--secret", SECRET, "--timeout", "2")
        assert done.status == status, done
        first, second = done.out.splitlines()
        assert (first, said in second) == ("challenge  returned (200)", True), done.out
        found = (await send(receiver.url, "orders.shipped", "--secret", SECRET, "--timeout", "2", "--json")).json
        assert found["event"]["accepted"] is False
        assert found["event"]["reason"] in ("http_4xx", "http_5xx", "timeout")


async def test_the_package_refuses_another_secret_and_says_when_it_failed(send: Send) -> None:
    kept = Kept()
    kept.receiver.begin(SECRET)
    async with kept.served() as url:
        done = await send(url, "orders.shipped", "--secret", OTHER)
        assert (done.status, "refused (503)" in done.out) == (1, True), done  # its subscription may be on its way
        kept.fails = True
        done = await send(url, "orders.shipped", "--secret", SECRET)
        assert (done.status, "event      refused (500): it failed; its log says why" in done.out) == (1, True), done
        done = await send(url + "/none", "orders.shipped", "--secret", SECRET)
        assert (done.status, "refused (404)" in done.out) == (1, True), done


async def test_nothing_listens_there(send: Send) -> None:
    async with receiving() as receiver:
        url = receiver.url
    done = await send(url, "orders.shipped", "--secret", SECRET)
    assert (done.status, "no connection: nothing listens there" in done.out) == (3, True), done
    done = await send("https://no-such-host.invalid/hooks", "orders.shipped", "--secret", SECRET)
    assert (done.status, "the name of the host is not found" in done.out) == (3, True), done
    found = json.loads((await send(url, "x", "--secret", SECRET, "--json")).out)
    assert (found["challenge"]["reason"], found["event"]) == ("connection_refused", None)


WRONG: dict[str, tuple[list[str], str]] = {
    "no name": (["http://127.0.0.1/"], "NAME"),
    "no URL": (["shop.py", "x"], "shop.py"),
    "a private address": (["https://10.1.2.3/", "x"], "--allow-private 10.1.2.3 does"),
    "credentials of a cloud": (["https://169.254.169.254/", "x"], "which is forbidden"),
    "a public address by http": (["http://192.88.98.1/", "x"], "servers post by https:// alone"),
    "a user": (["https://ada:secret@example.org/", "x"], "neither a user nor a password"),
    "no network": (["http://127.0.0.1/", "x", "--allow-private", "10.0.0.0/99"], "--allow-private 10.0.0.0/99: write"),
    "a secret of ours": (["http://127.0.0.1/", "x", "--secret", "hunter2"], "a webhook secret begins with 'whsec_'"),
    "data that is a list": (["http://127.0.0.1/", "x", "1"], "the data of an event is an object"),
    "data twice": (["http://127.0.0.1/", "x", "a=1", "--data", "{}"], "not both"),
    "data that is cut off": (["http://127.0.0.1/", "x", "--data", "{"], "--data is not JSON"),
    "no time": (["http://127.0.0.1/", "x", "--timeout", "0"], "--timeout 0"),
    "no id": (["http://127.0.0.1/", "x", "--chatgpt", "--event-id", "a b"], "visible ASCII"),
    "an id of two lines": (["http://127.0.0.1/", "x", "--subscription", "a\r\nb: c"], "visible ASCII"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_wrong_uses(send: Send, case: str) -> None:
    words, said = WRONG[case]
    done = await send(*words, *([] if "--secret" in words else ["--secret", SECRET]))
    assert (done.status, done.out) == (2, ""), done
    assert said in done.err, done.err
    assert "hunter2" not in done.err


async def test_data_of_a_file_or_too_much(send: Send, command: Command) -> None:
    (command.folder / "data.json").write_text('{"order": "42", "deep": {"a": [1.0]}}')
    async with receiving() as receiver:
        done = await send(receiver.url, "orders.shipped", "--secret", SECRET, "--data", "@data.json")
        assert done.status == 0, done
        assert receiver.posted[-1].message["data"] == {"order": "42", "deep": {"a": [1.0]}}
        (command.folder / "data.json").write_text(json.dumps({"order": "x" * 300_000}))
        done = await send(receiver.url, "orders.shipped", "--secret", SECRET, "--data", "@data.json")
        assert (done.status, "receivers need to take no more than 262144" in done.err) == (2, True), done
        assert len(receiver.posted) == 2
