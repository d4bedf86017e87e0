"""bind: every shape of a signature, by position and by name, with and without the context."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, Struct

from dragoman import Service
from dragoman.jsonrpc.errors import InvalidParams, LocalError
from dragoman.rpc.binding.binding import bind
from tests.rpc.binding.bindings import CONTEXT, Context, Special, bound, call, faults


def plain(a: int, b: int) -> Any:
    return a, b


def optional(a: int, b: int = 2, c: str = "c") -> Any:
    return a, b, c


def none_needed(a: int = 1, b: str | None = None) -> Any:
    return a, b


def nothing() -> Any:
    return ()


def positional(a: int, b: int = 2, /, c: int = 3) -> Any:
    return a, b, c


def free(a: int = 1, /, b: int = 2) -> Any:
    return a, b


def star(*numbers: int) -> Any:
    return numbers


def lead_star(a: int, b: int = 2, *numbers: int) -> Any:
    return a, b, numbers


def named(a: int, *, b: int, c: int = 3) -> Any:
    return a, b, c


def named_order(a: int = 1, *, b: int, c: int = 3, d: int) -> Any:
    return a, b, c, d


def named_optional(a: int, *, b: int = 2) -> Any:
    return a, b


def star_named(*numbers: int, scale: int = 1) -> Any:
    return numbers, scale


def members(**values: int) -> Any:
    return values


def lead_members(a: int, **values: int) -> Any:
    return a, values


def hidden_members(a: int = 1, /, **values: int) -> Any:
    return a, values


def star_members(*numbers: int, **values: int) -> Any:
    return numbers, values


def everything(a: int, b: int = 2, *numbers: int, c: int = 3, **values: int) -> Any:
    return a, b, numbers, c, values


def bare(a, b=2):  # type: ignore[no-untyped-def]
    return a, b


def odd_names(self: int, cls: int = 1, p0: int = 2, _x: int = 3) -> Any:
    return self, cls, p0, _x


@pytest.mark.parametrize(
    ("function", "params", "expected"),
    [
        (plain, [1, 2], (1, 2)),
        (plain, {"b": 2, "a": 1}, (1, 2)),
        (optional, [1], (1, 2, "c")),
        (optional, [1, 5], (1, 5, "c")),
        (optional, [1, 5, "d"], (1, 5, "d")),
        (optional, {"a": 1, "c": "d"}, (1, 2, "d")),
        (none_needed, UNSET, (1, None)),
        (none_needed, [], (1, None)),
        (none_needed, {}, (1, None)),
        (none_needed, {"b": "x"}, (1, "x")),
        (none_needed, [1, None], (1, None)),
        (nothing, UNSET, ()),
        (nothing, [], ()),
        (nothing, {}, ()),
        (positional, [1], (1, 2, 3)),
        (positional, [1, 4, 5], (1, 4, 5)),
        (free, {"b": 5}, (1, 5)),
        (free, [5], (5, 2)),
        (free, UNSET, (1, 2)),
        (star, [], ()),
        (star, UNSET, ()),
        (star, {}, ()),
        (star, [1, 2, 3], (1, 2, 3)),
        (lead_star, [1], (1, 2, ())),
        (lead_star, [1, 3, 4, 5], (1, 3, (4, 5))),
        (lead_star, {"b": 7, "a": 1}, (1, 7, ())),
        (named, {"a": 1, "b": 2}, (1, 2, 3)),
        (named, {"c": 5, "b": 2, "a": 1}, (1, 2, 5)),
        (named_order, {"d": 4, "b": 2}, (1, 2, 3, 4)),
        (named_optional, [1], (1, 2)),
        (named_optional, {"a": 1, "b": 5}, (1, 5)),
        (star_named, [1, 2], ((1, 2), 1)),
        (star_named, {"scale": 3}, ((), 3)),
        (star_named, UNSET, ((), 1)),
        (members, {"x": 1, "y": 2}, {"x": 1, "y": 2}),
        (members, [], {}),
        (members, UNSET, {}),
        (lead_members, {"x": 1, "a": 2}, (2, {"x": 1})),
        (lead_members, [2], (2, {})),
        (hidden_members, {"a": 5}, (1, {"a": 5})),
        (hidden_members, [5], (5, {})),
        (hidden_members, UNSET, (1, {})),
        (star_members, [1, 2], ((1, 2), {})),
        (star_members, {"x": 1}, ((), {"x": 1})),
        (star_members, UNSET, ((), {})),
        (everything, [1], (1, 2, (), 3, {})),
        (everything, [1, 4, 5, 6], (1, 4, (5, 6), 3, {})),
        (everything, {"a": 1, "c": 7, "z": 9}, (1, 2, (), 7, {"z": 9})),
        (bare, [{"x": [1.5]}], ({"x": [1.5]}, 2)),
        (odd_names, {"self": 1, "p0": 5, "_x": 6}, (1, 1, 5, 6)),
        (odd_names, [1, 2, 3, 4], (1, 2, 3, 4)),
    ],
)
def test_shapes(function: Callable[..., Any], params: Any, expected: Any) -> None:
    assert call(bound(function), params) == expected


@pytest.mark.parametrize(
    ("function", "params", "expected"),
    [
        (plain, [1], [("b", "Missing argument")]),
        (plain, UNSET, [("a", "Missing argument"), ("b", "Missing argument")]),
        (plain, [1, 2, 3, 4], [("[2]", "Surplus argument: there are 2 by position"), ("[3]", "Surplus argument: there are 2 by position")]),
        (nothing, [1], [("[0]", "Surplus argument: there are none by position")]),
        (nothing, {"x": 1}, [("x", "Unknown argument")]),
        (optional, {}, [("a", "Missing argument")]),
        (plain, {"a": 1, "bb": 2}, [("b", "Missing argument"), ("bb", "Unknown argument; did you mean 'b'?")]),
        (positional, {"a": 1}, [("a", "Missing argument; it is given only by position"), ("a", "This argument is given only by position")]),
        (positional, [], [("a", "Missing argument")]),
        (nothing, {"x" * 64: 1, "y" * 65: 1}, [("x" * 64, "Unknown argument"), (f'["{"y" * 61}..."]', "Unknown argument")]),
        (free, {"a": 1}, [("a", "This argument is given only by position")]),
        (star, {"numbers": [1]}, [("numbers", "This argument is given only by position")]),
        (star, [1, "x", 3, None], [("[1]", "Expected an integer, got a string"), ("[3]", "Expected an integer, got null")]),
        (lead_star, ["x", 2, "y"], [("a", "Expected an integer, got a string"), ("[2]", "Expected an integer, got a string")]),
        (lead_star, {}, [("a", "Missing argument")]),
        (named, [1], [("b", "Missing argument; it is given only by name")]),
        (named, [1, 2], [("b", "Missing argument; it is given only by name"), ("[1]", "Surplus argument: there are 1 by position")]),
        (named, UNSET, [("a", "Missing argument"), ("b", "Missing argument")]),
        (members, {"x": "1"}, [("x", "Expected an integer, got a string")]),
        (members, [1], [("[0]", "Surplus argument: there are none by position")]),
        (everything, {"b": "x", "z": True}, [("a", "Missing argument"), ("b", "Expected an integer, got a string"), ("z", "Expected an integer, got a boolean")]),
    ],
)  # fmt: skip
def test_faults_of_shapes(function: Callable[..., Any], params: Any, expected: Any) -> None:
    assert faults(bound(function), params) == expected


def test_plain_functions_are_called_themselves() -> None:
    for function in (plain, optional, star, lead_star, positional):
        assert bound(function).function is function
    assert bound(named).function is not named


class Point(Struct):
    x: int = 0


class Fixed(Struct, frozen=True):
    x: int = 0
    y: tuple[int, ...] = ()


@dataclass
class Note:
    lines: list[str] = field(default_factory=list)


SENTINEL = object()


@pytest.mark.parametrize(
    "default", [SENTINEL, Fixed(), (1, "a"), frozenset({1}), print, "text"], ids=lambda one: type(one).__name__
)
def test_a_default_that_cannot_be_changed_is_the_functions_own_object(default: Any) -> None:
    def either(a: int, b: Any = default) -> Any:
        return b

    def only(a: int, *, b: Any = default) -> Any:
        return b

    for function in (either, only):
        for params in ([1], {"a": 1}):
            assert call(bound(function), params) is default


@pytest.mark.parametrize(
    "default",
    [
        [],
        [[1]],
        {},
        {"a": [1]},
        set(),
        bytearray(b"x"),
        deque([1]),
        Point(),
        Note(["a"]),
        (1, []),
        Fixed(y=cast(Any, ([],))),
    ],
    ids=repr,
)
def test_a_default_that_can_be_changed_is_each_calls_own(default: Any) -> None:
    """No caller may see what another call did to it."""

    def either(a: int, b: Any = default) -> Any:
        return b

    def only(a: int, *, b: Any = default) -> Any:
        return b

    def rest(ctx: Context, a: int = 1, b: Any = default, *more: int) -> Any:
        return b

    def members(a: int = 1, *, b: Any = default, **more: int) -> Any:
        return b

    for function in (either, only, rest, members):
        for params in ([1], {"a": 1}):
            if (function is rest) == (type(params) is dict):
                continue
            first, second = (call(bound(function), params) for _ in range(2))
            assert first == second == default
            assert first is not second
            assert first is not default


async def test_a_default_is_not_shared_by_callers() -> None:
    service = Service("lists")

    @service.method(inline=True)
    def add(item: str, items: list[str] = []) -> list[str]:  # noqa: B006
        items.append(item)
        return items

    ask = b'{"jsonrpc":"2.0","method":"add","params":["a"],"id":1}'
    for _ in range(2):
        assert service.answer(ask) == b'{"jsonrpc":"2.0","result":["a"],"id":1}'


def test_a_default_that_cannot_be_copied_is_refused() -> None:
    lock = threading.Lock()

    def function(a: Any = [lock]) -> None: ...  # noqa: B006

    for by_position in (True, False):
        with pytest.raises(LocalError, match=r"parameter 'a': its default cannot be copied .*; make it None"):
            bind(function, context_type=Context, by_position=by_position)


def test_members_are_a_new_dict_each_time() -> None:
    binding = bound(members)
    assert call(binding) is not call(binding)


# -- context


def context_first(ctx: Context, a: int, b: int = 2) -> Any:
    return ctx, a, b


def context_middle(a: int, ctx: Context, b: int = 2) -> Any:
    return ctx, a, b


def context_last(a: int, b: int = 2, ctx: Context | None = None) -> Any:
    return ctx, a, b


def context_named(a: int, b: int = 2, *, ctx: Context) -> Any:
    return ctx, a, b


def context_special(a: int, b: int = 2, *, z: int = 0, ctx: Special) -> Any:
    return ctx, a, b


def context_hidden(ctx: Context, a: int, /, b: int = 2) -> Any:
    return ctx, a, b


def context_annotated(a: int, ctx: Annotated[Context, "the call"], b: int = 2) -> Any:
    return ctx, a, b


def context_members(a: int, ctx: Context, b: int = 2, **values: int) -> Any:
    return ctx, a, b


def context_star(a: int, ctx: Context, b: int = 2, *numbers: int) -> Any:
    return ctx, a, b


CONTEXTS = [
    context_first,
    context_middle,
    context_last,
    context_named,
    context_special,
    context_hidden,
    context_annotated,
    context_members,
    context_star,
]


@pytest.mark.parametrize("function", CONTEXTS)
def test_context(function: Callable[..., Any]) -> None:
    binding = bound(function)
    assert binding.wants_context
    assert "ctx" not in [p.name for p in binding.parameters]
    assert "ctx" not in json.dumps(binding.params_schema())
    assert call(binding, [7]) == (CONTEXT, 7, 2)
    assert call(binding, [7.0, 3]) == (CONTEXT, 7, 3)
    if function is not context_hidden:
        assert call(binding, {"a": 7, "b": 3}) == (CONTEXT, 7, 3)
        assert faults(binding, {"a": 7, "ctx": {}})[0] == ("ctx", "Unknown argument")
    assert faults(binding, ["x"]) == [("a", "Expected an integer, got a string")]


def test_context_alone_needs_no_params() -> None:
    def only(ctx: Context) -> Any:
        return ctx

    binding = bound(only)
    assert call(binding) is CONTEXT
    assert call(binding, []) is CONTEXT
    assert call(binding, {}) is CONTEXT


def test_nobody_gives_the_context_through_kwargs() -> None:
    def only(ctx: Context, **values: Any) -> Any:
        return ctx, values

    def by_name(*, ctx: Context, a: int = 1, **values: Any) -> Any:
        return ctx, values

    def hidden(ctx: Context, /, **values: Any) -> Any:
        return ctx, values

    for function in (only, by_name, context_members):
        assert ("ctx", "Unknown argument") in faults(bound(function), {"ctx": "forged", "a": 1})
    assert call(bound(by_name), {"z": 1}) == (CONTEXT, {"z": 1})
    assert call(bound(hidden), {"ctx": "a member like others"}) == (CONTEXT, {"ctx": "a member like others"})


def test_no_context() -> None:
    assert not bound(plain).wants_context


def test_context_faults() -> None:
    def two(a: Context, b: Special) -> None: ...
    def many(*a: Context) -> None: ...

    with pytest.raises(LocalError, match=r"two.*'a' and 'b' both take the context"):
        bound(two)
    with pytest.raises(LocalError, match=r"many.*'a': the context is one object"):
        bound(many)


# -- Python is the oracle

SHAPES = [
    plain,
    none_needed,
    nothing,
    positional,
    free,
    star,
    lead_star,
    named,
    named_order,
    named_optional,
    star_named,
    members,
    lead_members,
    hidden_members,
    star_members,
    everything,
    odd_names,
]
NUMBERS = st.integers(-5, 5)
NAMES = st.sampled_from(["a", "b", "c", "d", "e", "x", "ctx", "numbers", "values", "self", "cls", "p0", "_x", "scale"])


@given(st.sampled_from(SHAPES), st.lists(NUMBERS, max_size=6) | st.dictionaries(NAMES, NUMBERS, max_size=5))
def test_a_call_is_what_python_would_make_of_it(
    function: Callable[..., Any], params: list[int] | dict[str, int]
) -> None:
    binding = bound(function)
    if function is none_needed and (params[1:2] if isinstance(params, list) else "b" in params):
        return  # b is a string
    try:
        expected = function(**params) if isinstance(params, dict) else function(*params)
    except TypeError:
        assert faults(binding, params)
    else:
        assert call(binding, params) == expected


def by_name_optional(a: int = 1, b: int = 2) -> None: ...
def by_name_beside(a: int = 1, **rest: int) -> None: ...
def by_name_members(**rest: int) -> None: ...
def by_name_required(a: int, *, b: int = 2) -> None: ...


@pytest.mark.parametrize("function", [by_name_optional, by_name_beside, by_name_members, by_name_required])
@pytest.mark.parametrize("params", [b"[]", b"[5]"])
def test_arguments_that_have_names_alone_are_no_array(function: Callable[..., None], params: bytes) -> None:
    binding = bind(function, context_type=Context, by_position=False)
    with pytest.raises(InvalidParams, match="so they are an object"):
        binding.arguments(Raw(params))
    assert binding.arguments(Raw(b'{"a": 3}'))
