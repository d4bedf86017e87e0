"""`mqtt://` against a broker that does what a test says: what is subscribed to, taken, given back and refused."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from dragoman.engines.mqtt import wire
from dragoman.transports.broker.contract import BrokerMessage, Refused, Unroutable

from .scripted import CONTROL, MESSAGE, PLAIN, PUBLISH, SHARED, SUBSCRIBE, WILLS, ends, own


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try to connect again without a pause."""
    monkeypatch.setattr(wire, "PAUSES", (0.0, 0.0))


# -- what is subscribed to -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "connack", "filters"),
    [
        ("", {}, SHARED | WILLS),
        ("?client=me", {}, SHARED),  # its session is its own to come back to: it takes over none
        ("", {"SharedSubscriptionAvailable": 0}, PLAIN | WILLS),
        ("?group=g", {"SharedSubscriptionAvailable": 0}, PLAIN | {"q/fallen/g/+": 0}),
        ("?group=g", {}, {"$share/g/q": 1, "$share/g/q/request/#": 1, "q/fallen/g/+": 0}),
        ("?v=3.1.1", {}, PLAIN),
        ("?v=3.1.1&group=g", {}, {"$share/g/q": 1, "$share/g/q/request/#": 1}),
    ],
)
async def test_what_a_worker_subscribes_to(
    query: str, connack: dict[str, Any], filters: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Shared, where the broker says that it can, or the URL asks for it in the version that cannot say; the wills of
    the others, if it has one itself; and all of it again on the next connection."""
    caplog.set_level(logging.INFO)
    async with ends(query, **connack) as one:
        await one.work()
        for _ in range(2):
            assert {name: how & 3 for name, how in one.link.filters.items()} == filters | CONTROL
            if one.link.five:  # retained wills are wanted, retained requests are not
                assert {name for name, how in one.link.filters.items() if not how & 0x30} == filters.keys() & {
                    "q/fallen/dragoman/+",
                    "q/fallen/g/+",
                }
            await one.back()
    said = "no shared subscriptions; every worker of q gets every request" in caplog.text
    assert said is ("q" in filters)


@pytest.mark.parametrize(
    ("query", "mailbox", "subscribed"),
    [
        ("", "q/reply/CLIENT/RANDOM", "q/reply/CLIENT/RANDOM"),
        ("?v=3.1.1", "q/reply/CLIENT/RANDOM", "q/reply/CLIENT/RANDOM/#"),
        ("?mailbox=alice", "q/reply/alice/CLIENT/RANDOM", "q/reply/alice/CLIENT/RANDOM"),
        ("?client=kitchen", "q/reply/kitchen/RANDOM", "q/reply/kitchen/#"),
        ("?client=kitchen&mailbox=alice", "q/reply/alice/kitchen/RANDOM", "q/reply/alice/kitchen/#"),
    ],
)
async def test_where_answers_come(query: str, mailbox: str, subscribed: str) -> None:
    async with ends(query, serving=False) as one:
        found = await one.adapter.mailbox(one.read)
        last = found.rpartition("/")[2]
        assert re.fullmatch("[0-9a-f]{32}", last)
        client = one.adapter.endpoint.client
        texts = [text.replace("CLIENT", client).replace("RANDOM", last) for text in (mailbox, subscribed)]
        assert [found, {name: how & 3 for name, how in one.link.filters.items()}] == [texts[0], {texts[1]: 1}]


async def test_answers_to_an_earlier_process_of_that_name_are_acknowledged_and_dropped() -> None:
    async with ends("?client=kitchen", serving=False) as one:
        await one.adapter.mailbox(one.read)
        id = one.link.publish("q/reply/kitchen/before", b"0", CorrelationData=b"c")
        await one.broker.until(lambda: id in one.link.acknowledged())
        assert one.answers == []


async def test_a_subscription_that_is_refused() -> None:
    async with ends() as one:
        one.broker.answers[SUBSCRIBE] = lambda link, packet: link.suback(packet, *[0x80] * len(packet.filters))
        with pytest.raises(Refused, match=r"does not let us subscribe to q/control/# \(0x80\)"):
            await one.adapter.receive_control(one.heard.append)


# -- what comes in ---------------------------------------------------------------------------------


async def test_what_comes_where_it_is_taken_and_nowhere_else() -> None:
    async with ends() as one:
        await one.adapter.work(one.take, 10)
        one.link.publish("q/control", b"before it is wanted", qos=0)
        one.link.publish("q/control", b"before it is wanted")
        await one.fence()
        await one.adapter.receive_control(one.heard.append)
        one.link.publish("q/control", b"1", qos=0)
        one.link.publish("q/control/me/2", b"2", qos=0)
        one.link.publish("elsewhere", b"3")
        one.link.publish("q/dead", b"4", qos=0)
        one.link.publish("q/request", b"5")
        one.link.publish("q", b"6", retained=True)
        one.link.publish("q/control", b"7", retained=True)
        one.link.publish(own(one), b"8")
        await one.fence()
        assert [message.body for message in one.heard] == [b"1", b"2"]
        assert (one.came, one.answers) == ([], [])
        request = one.link.publish("q", b"9", ResponseTopic="q/reply/me", CorrelationData=b"c")
        below = one.link.publish("q/request/q%2Freply%2Fme/c/count=2", b"10")
        await one.broker.until(lambda: len(one.came) == 2)
        assert [(came.body, came.correlation, came.count) for came in one.came] == [(b"9", "c", 0), (b"10", "c", 2)]
        assert request not in one.link.acknowledged()
        for came in one.came:
            came.settle("answered")
        await one.broker.until(lambda: below in one.link.acknowledged())


async def test_answers_are_acknowledged_once_they_are_read() -> None:
    async with ends(serving=False) as one:
        mine = await one.adapter.mailbox(one.read)
        one.link.publish(f"{mine}x", b"0")
        id = one.link.publish(mine, b"1", CorrelationData=b"c")
        one.link.publish(f"{mine}/d/key=k", b"2")
        await one.broker.until(lambda: len(one.answers) == 2)
        assert [(came.body, came.correlation, came.headers) for came in one.answers] == [
            (b"1", "c", {}),
            (b"2", "d", {"key": "k"}),
        ]
        assert id not in one.link.acknowledged()
        one.answers[0].settle("answered")
        await one.broker.until(lambda: id in one.link.acknowledged())


async def test_what_a_session_has_kept_is_published_again_before_anything_is_run() -> None:
    """A request that was delivered to our namesake goes to all workers with its count raised, and is acknowledged when
    the broker has that; what comes meanwhile waits."""
    async with ends("?client=me", present=True) as one:
        one.broker.answers[PUBLISH] = lambda link, packet: None
        old = one.link.publish("q", b"old", again=True, CorrelationData=b"c", UserProperty=[("count", "1")])
        one.link.publish("q", b"new")
        await one.work()
        await one.broker.until(lambda: one.link.said("q"))
        await one.adapter.receive_control(one.heard.append)  # a turn of the broker's
        assert one.came == []
        (copy,) = one.link.said("q")
        assert (copy.body, copy.about["CorrelationData"]) == (b"old", b"c")
        assert copy.about["UserProperty"] == [("count", "2")]
        assert old not in one.link.acknowledged()
        one.link.puback(copy)
        await one.broker.until(lambda: one.came)
        assert [(came.body, came.count) for came in one.came] == [(b"new", 0)]
        await one.broker.until(lambda: old in one.link.acknowledged())
        # what comes again after an outage was ours, and is ours
        one.broker.answers[PUBLISH] = one.broker.published
        await one.back()
        one.link.publish("q", b"new", again=True)
        await one.broker.until(lambda: len(one.came) == 2)
        assert one.came[1].count == 1
        assert one.link.said("q") == []


@pytest.mark.parametrize(
    ("topic", "about", "outcome", "again"),
    [
        ("q", {}, "retry", ("q", [])),
        ("q", {"UserProperty": [("a", "b"), ("count", "3")]}, "retry", ("q", [("a", "b"), ("count", "3")])),
        ("q/request/me/c", {}, "retry", ("q/request/me/c", [])),
        ("q/request/me/c/a=b&count=3", {}, "retry", ("q/request/me/c/a=b&count=3", [])),
        ("q", {"MessageExpiryInterval": 9}, "reject", ("q/dead", [])),
        ("q/request/me/c/a=b", {}, "reject", ("q/dead", [])),
    ],
)
async def test_what_is_given_back_or_set_aside(
    topic: str, about: dict[str, Any], outcome: Any, again: tuple[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It is acknowledged when the broker has it elsewhere."""
    async with ends() as one:
        await one.work()
        one.broker.answers[PUBLISH] = lambda link, packet: None
        id = one.link.publish(topic, b"{}", **about)
        await one.broker.until(lambda: one.came)
        one.came[0].settle(outcome)
        await one.broker.until(lambda: one.link.said(again[0]))
        (said,) = one.link.said(again[0])
        assert (said.body, said.about.get("UserProperty", [])) == (b"{}", again[1])
        assert "MessageExpiryInterval" not in said.about
        assert said.flags & 6 == 2
        await one.adapter.receive_control(one.heard.append)
        assert id not in one.link.acknowledged()
        one.link.puback(said)
        await one.broker.until(lambda: id in one.link.acknowledged())
        one.broker.answers[PUBLISH] = one.broker.published
    assert ("2 bytes set aside at q/dead (a subscriber hears that)" in caplog.text) is (outcome == "reject")


async def test_what_no_other_worker_would_get_stays_with_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    async with ends() as one:
        await one.work()
        one.broker.answers[PUBLISH] = lambda link, packet: link.puback(packet, 0x10)
        ids = [one.link.publish("q", b"{}") for _ in range(2)]
        await one.broker.until(lambda: len(one.came) == 2)
        one.came[0].settle("reject")  # confirmed at <topic>/dead
        await one.broker.until(lambda: one.link.acknowledged())
        one.came[1].settle("retry")
        await one.broker.until(lambda: one.link.said("q"))
        await one.adapter.receive_control(one.heard.append)
        assert one.link.acknowledged() == ids[:1]
    assert "no other worker serves q; a request stays with the broker" in caplog.text
    assert "set aside at q/dead (no subscriber hears that)" in caplog.text


# -- what goes out ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "id"), [("", "c"), ("?v=3.1.1", "c/ü")])
async def test_how_a_request_looks(query: str, id: str) -> None:
    message = BrokerMessage(body=b"{}", reply_to="a/b", correlation=id, headers={"key": "k k"})
    async with ends(query, serving=False) as one:
        await one.adapter.request(message, 1.5)
        await one.adapter.request(BrokerMessage(body=b"{}", reply_to="a", correlation="d"), None)
        first, second = one.link.got(PUBLISH)
    if query:
        assert [first.topic, second.topic] == ["q/request/a%2Fb/c%2F%C3%BC/key=k%20k", "q/request/a/d"]
    else:
        assert first.about == {
            "ResponseTopic": "a/b",
            "CorrelationData": b"c",
            "UserProperty": [("key", "k k")],
            "MessageExpiryInterval": 2,
        }
        assert second.about == {"ResponseTopic": "a", "CorrelationData": b"d"}


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (0x10, Unroutable, "no worker serves q at"),
        (0x80, Refused, r"does not take the request at q \(reason code 0x80\)"),
        (0x87, Refused, r"does not take the request at q \(not authorized\)"),
    ],
)
async def test_what_the_broker_says_of_a_request(code: int, error: type[Exception], words: str) -> None:
    async with ends(serving=False) as one:
        one.broker.answers[PUBLISH] = lambda link, packet: link.puback(packet, code)
        with pytest.raises(error, match=words):
            await one.adapter.request(MESSAGE, None)


@pytest.mark.parametrize(("packet", "limit"), [(20_000, 20_000 - 4_096 - 2), (100, 1), (None, 268_435_455 - 4_096 - 2)])
async def test_the_longest_message_is_what_the_broker_says(packet: int | None, limit: int) -> None:
    """Less what topic and properties may need."""
    said: dict[str, Any] = {} if packet is None else {"MaximumPacketSize": packet}
    async with ends(**said) as one:
        assert one.adapter.limit == limit


async def test_where_an_answer_may_go() -> None:
    async with ends("?reply_to=my/*") as one:
        boxes = ("q/reply/me", "my/box", "q", "my/+", "q/reply/#", "q/reply/me/c/#")
        asked = [one.adapter.answerable(BrokerMessage(body=b"", reply_to=box)) for box in boxes]
        assert asked == [True, True, False, False, True, True]


async def test_an_answer_to_a_caller_without_properties_says_all_in_its_topic() -> None:
    async with ends() as one:
        await one.adapter.answer("a/c/#", BrokerMessage(body=b"1", correlation="c", headers={"key": "k k"}))
        await one.adapter.answer("a/c/#", BrokerMessage(body=b"2", correlation="c"))
        await one.adapter.answer("a", BrokerMessage(body=b"3", correlation="c", headers={"key": "k"}))
        said = one.link.got(PUBLISH)
        assert [(one.topic, one.body, one.about) for one in said] == [
            ("a/c/key=k%20k", b"1", {}),
            ("a/c", b"2", {}),
            ("a", b"3", {"CorrelationData": b"c", "UserProperty": [("key", "k")]}),
        ]


@pytest.mark.parametrize(("code", "lost"), [(0, False), (0x10, False), (0x80, True), (0x87, True)])
async def test_what_the_broker_says_of_an_answer(code: int, lost: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with ends() as one:
        one.broker.answers[PUBLISH] = lambda link, packet: link.puback(packet, code)
        await one.adapter.answer("q/reply/me", MESSAGE)
        await one.adapter.answer("q/reply/me/c/#", MESSAGE)
        assert [said.topic for said in one.link.got(PUBLISH)] == ["q/reply/me", "q/reply/me/c"]
    assert caplog.text.count("an answer is lost: the broker does not take it") == (1 if lost else 0)
