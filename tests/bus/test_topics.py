"""Subscriptions by topic: who hears what, and when the engine is told that nothing listens any more."""

from __future__ import annotations

from contextlib import suppress

from dragoman.bus.topics import Topics


async def test_a_message_goes_to_every_subscriber_of_its_topic_and_to_no_other() -> None:
    topics, heard = Topics(), list[tuple[str, bytes]]()
    topics.add("a", lambda message: heard.append(("first", message)))
    topics.add("a", lambda message: heard.append(("second", message)))
    topics.add("b", lambda message: heard.append(("other", message)))
    topics.deliver("a", b"1")
    topics.deliver("c", b"2")
    assert heard == [("first", b"1"), ("second", b"1")]
    assert list(topics) == ["a", "b"]
    assert [one.topic for one in topics.of("a")] == ["a", "a"]
    assert topics.of("c") == ()


async def test_what_is_closed_hears_nothing_also_when_it_is_told_directly() -> None:
    topics, heard = Topics(), list[bytes]()
    one = topics.add("a", heard.append)
    other = topics.add("a", lambda message: heard.append(b"other " + message))
    await one.close()
    assert topics.of("a") == (other,)
    one.deliver(b"1")
    topics.deliver("a", b"2")
    assert heard == [b"other 2"]


async def test_what_one_subscriber_closes_does_not_disturb_the_others() -> None:
    """It is closed while a message is passed on: the copy of the list still has it."""
    topics, heard = Topics(), list[str]()

    def first(message: bytes) -> None:
        heard.append("first")
        with suppress(StopIteration):  # it waits for nothing, so its first step is its last
            second.close().send(None)

    topics.add("a", first)
    second = topics.add("a", lambda message: heard.append("second"))
    topics.add("a", lambda message: heard.append("third"))
    topics.deliver("a", b"1")
    assert heard == ["first", "third"]


async def test_the_engine_is_told_once_when_the_last_subscription_of_a_topic_is_closed() -> None:
    left: list[str] = []

    async def note(topic: str) -> None:
        left.append(topic)

    topics = Topics(note)
    one, two = topics.add("a", print), topics.add("a", print)
    topics.add("b", print)
    await one.close()
    assert left == []
    await one.close()
    assert left == []
    await two.close()
    assert left == ["a"]
    assert list(topics) == ["b"]
    await two.close()
    assert left == ["a"]


async def test_a_topic_can_be_taken_up_again_after_its_last_subscription() -> None:
    left: list[str] = []

    async def note(topic: str) -> None:
        left.append(topic)

    topics, heard = Topics(note), list[bytes]()
    await topics.add("a", print).close()
    again = topics.add("a", heard.append)
    topics.deliver("a", b"1")
    await again.close()
    assert heard == [b"1"]
    assert left == ["a", "a"]


async def test_without_an_engine_the_last_one_just_goes() -> None:
    topics = Topics()
    await topics.add("a", print).close()
    assert list(topics) == []
