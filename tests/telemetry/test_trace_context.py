"""W3C Trace Context: what is a parent, and what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.telemetry.trace_context import STATE, Parent, parent, write_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-01", 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"cc-{TRACE}-{SPAN}-01-what the future has", 1),
        (f"cc-{TRACE}-{SPAN}-01", 1),
    ],
)
def test_a_parent(text: str, flags: int) -> None:
    assert parent(text) == Parent(int(TRACE, 16), int(SPAN, 16), flags)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "00",
            f"00-{TRACE}-{SPAN}",
            f"00-{TRACE}-{SPAN}-01-more",
            f"ff-{TRACE}-{SPAN}-01",
            f"00-{'0' * 32}-{SPAN}-01",
        ),
        *(
            f"00-{TRACE}-{'0' * 16}-01",
            f"00-{TRACE.upper()}-{SPAN}-01",
            f"00-{TRACE}-{SPAN}-0x",
            f" 00-{TRACE}-{SPAN}-01",
        ),
        *(
            f"00-{TRACE}-{SPAN}-01\n",
            f"cc-{TRACE}-{SPAN}-01-{'x' * STATE}",
            None,
            7,
            ["00"],
            f"00-{TRACE}-{SPAN}-01, 00-{TRACE}",
        ),
    ],
)
def test_no_parent(text: object) -> None:
    assert parent(text) is None


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
def test_what_is_written_is_read(trace: int, span: int, flags: int) -> None:
    assert parent(write_traceparent(trace, span, flags)) == Parent(trace, span, flags)


@given(st.text(alphabet="0123456789abcdef-", max_size=70))
def test_nothing_raises(text: str) -> None:
    parent(text)


@pytest.mark.parametrize(("state", "kept"), [("a=1,b=2", "a=1,b=2"), ("x" * (STATE + 1), ""), (7, "")])
def test_its_state(state: object, kept: str) -> None:
    found = parent(f"00-{TRACE}-{SPAN}-01", state)
    assert found is not None
    assert found.state == kept
