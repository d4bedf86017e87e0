"""What stands for all engines of a bus: the URLs that name one, and what becomes of an error of a subscriber."""

from __future__ import annotations

import pytest

from dragoman import LocalError
from dragoman.bus import open_bus
from dragoman.bus.contract import call_subscriber, published_in, with_trace_context


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("gopher:hole", "'gopher:hole' is not a bus: a bus has a URL of the scheme "),
        ("tcp://127.0.0.1:5", "'tcp://127.0.0.1:5' is not a bus: a bus has a URL of the scheme "),
        (
            "https://ada:sec@ret@host/?key=secret",
            "'https://ada:***@host/' is not a bus: a bus has a URL of the scheme ",
        ),
    ],
)
async def test_a_url_that_names_no_bus_is_refused_by_what_would(url: str, words: str) -> None:
    with pytest.raises(LocalError) as refused:
        await open_bus(url)
    text = str(refused.value)
    assert text.startswith(words)
    for scheme in ("memory", "unix", "redis", "nats", "amqp"):
        assert scheme in text
    assert "gopher," not in text
    assert "tcp," not in text


def test_an_error_of_a_subscriber_is_logged_and_its_context_ends(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[bytes, str]] = []

    def take(message: bytes) -> None:
        heard.append((message, published_in.get()))
        raise ValueError("its own fault")

    call_subscriber(take, "topic", with_trace_context(b"one\ntwo", "00-1"))
    assert heard == [(b"one\ntwo", "00-1")]
    assert published_in.get() == ""
    [record] = caplog.records
    assert record.getMessage() == "a subscriber of topic raised"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "its own fault"
