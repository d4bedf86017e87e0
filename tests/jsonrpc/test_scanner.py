"""The examination of JSON text beside a plain one that looks at each character."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.jsonrpc.scanner import too_deep

VALUES = st.recursive(
    st.none() | st.integers() | st.text('"\\[]{}u,:', max_size=12),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text('"\\[]{}', max_size=4), inner, max_size=6),
    max_leaves=60,
)


def depth_of(value: Any) -> int:
    """Levels of arrays and objects."""
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth_of, inner), default=0)
    return 0


@given(VALUES, st.integers(1, 30))
def test_depth_is_that_of_the_value(value: Any, depth: int) -> None:
    text = json.dumps(value).encode()
    assert too_deep(text, depth) is (depth_of(value) > depth)


@given(st.integers(1, 40), st.integers(0, 300), st.integers(1, 30))
def test_a_wide_text_with_one_deep_place(deep: int, before: int, depth: int) -> None:
    text = b"[" + b'{"a":[]},' * before + b"[" * deep + b"]" * deep + b',{"a":[]}' * before + b"]"
    assert too_deep(text, depth) is (max(deep + 1, 3 if before else 0) > depth)


def test_a_piece_that_may_be_too_deep_and_is_not() -> None:
    assert not too_deep(b"[[[[],[]]]]", 4)
    assert too_deep(b"[[[[],[[]]]]]", 4)
