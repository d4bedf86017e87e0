"""bind: every kind of callable, what its schema says, and what is loaded for it."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest
from msgspec import Meta, Raw, Struct
from typing_extensions import Doc

from dragoman.jsonrpc.errors import LocalError, ParseError
from tests.rpc.binding.bindings import bound, call, faults, result_schema


def plain(a: int, b: int) -> Any:
    return a, b


def optional(a: int, b: int = 2, c: str = "c") -> Any:
    return a, b, c


def positional(a: int, b: int = 2, /, c: int = 3) -> Any:
    return a, b, c


def star(*numbers: int) -> Any:
    return numbers


def lead_members(a: int, **values: int) -> Any:
    return a, values


def everything(a: int, b: int = 2, *numbers: int, c: int = 3, **values: int) -> Any:
    return a, b, numbers, c, values


def members(**values: int) -> Any:
    return values


# -- kinds of callables


class Callee:
    def method(self, a: int, b: int = 2) -> Any:
        return a, b

    @classmethod
    def of_class(cls, a: int, b: int = 2) -> Any:
        return a, b

    @staticmethod
    def static(a: int, b: int = 2) -> Any:
        return a, b

    def __call__(self, a: int, b: int = 2) -> Any:
        return a, b


class Later:
    async def __call__(self, a: int) -> int:
        return a

    async def method(self, a: int) -> int:
        return a


async def later(a: int, b: int = 2) -> Any:
    return a


def awaiting(a: int) -> Awaitable[int]:
    return later(a)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return around


@pytest.mark.parametrize(
    "function",
    [
        Callee().method,
        Callee.of_class,
        Callee.static,
        Callee(),
        staticmethod(optional),
        functools.partial(lambda x, a, b=2: (a, b), 0),
        decorated(optional),
    ],
)
def test_callables(function: Any) -> None:
    binding = bound(function)
    assert binding.kind == "plain"
    assert call(binding, [1])[:2] == (1, 2)
    assert call(binding, {"a": 1, "b": 3})[:2] == (1, 3)


@pytest.mark.parametrize("function", [later, Later(), Later().method, functools.partial(later, b=3), awaiting])
async def test_coroutine_functions(function: Any) -> None:
    binding = bound(function)
    assert binding.kind == "async"
    assert await call(binding, [1]) == 1


def test_the_type_behind_an_awaitable_is_the_result() -> None:
    assert bound(awaiting).result_type is int
    assert result_schema(bound(awaiting)) == {"type": "integer"}


def test_partial_keywords_keep_their_values() -> None:
    binding = bound(functools.partial(optional, b=9))
    assert call(binding, [1]) == (1, 9, "c")
    assert call(binding, {"a": 1, "c": "z"}) == (1, 9, "z")


def test_classes_are_callables() -> None:
    class Point(Struct):
        x: int
        y: int = 0

    assert call(bound(Point), [1]) == Point(1, 0)


def test_generators_are_refused() -> None:
    def generator() -> Any:
        yield 1

    async def async_generator() -> Any:
        yield 1

    for function in (generator, async_generator):
        with pytest.raises(LocalError, match="generator"):
            bound(function)


def test_what_is_not_a_callable_is_refused() -> None:
    with pytest.raises(LocalError, match="a method is a function"):
        bound(5)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="no signature"):
        bound(max)


def test_a_function_that_cannot_be_called_is_refused() -> None:
    def split(a: int, /, *, b: int) -> None: ...

    with pytest.raises(LocalError, match="by position and others by name"):
        bound(split)


# -- what stands in the schema


def documented(
    a: Annotated[int, Doc("The first.")],
    b: Annotated[int, Meta(gt=0, description="The second.")] = 2,
    c: list[str] = ["x"],  # noqa: B006
    d: Any = object,
    *rest: int,
    e: str = "e",
) -> int:
    """Do something.

    Longer.

    Args:
        a: not this one
        c (list): the third,
            over two lines
        *rest: further ones

    Returns:
        e: not a parameter
    """
    return a


def sphinx(a: int, b: int) -> None:
    """Do.

    :param a: first
    :param int b: second
        and on
    :returns: nothing
    """


def test_descriptions_and_defaults() -> None:
    binding = bound(documented)
    found = {p.name: (p.kind, p.required, p.description) for p in binding.parameters}
    assert found == {
        "a": ("either", True, "The first."),
        "b": ("either", False, "The second."),
        "c": ("either", False, "the third, over two lines"),
        "d": ("either", False, ""),
        "rest": ("rest", False, "further ones"),
        "e": ("named", False, ""),
    }
    properties = binding.params_schema()["properties"]
    assert properties["b"] == {"type": "integer", "exclusiveMinimum": 0, "description": "The second.", "default": 2}
    assert properties["c"]["default"] == ["x"]
    assert "default" not in properties["d"]
    assert {p.name: p.description for p in bound(sphinx).parameters} == {"a": "first", "b": "second and on"}


def test_params_schema() -> None:
    assert bound(optional).params_schema() == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "integer", "default": 2},
            "c": {"type": "string", "default": "c"},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert bound(lead_members).params_schema()["additionalProperties"] == {"type": "integer"}
    assert bound(star).params_schema() == {"type": "array", "items": {"type": "integer"}, "minItems": 0}
    array = bound(positional).params_schema()
    assert array["type"] == "array"
    assert len(array["prefixItems"]) == 3
    assert array["items"] is False
    assert array["minItems"] == 1


def test_opaque() -> None:
    def raw(a: Raw, b: int) -> Any:
        return bytes(a), b

    binding = bound(raw)
    assert binding.opaque
    assert not bound(plain).opaque
    assert binding.function(*binding.arguments(Raw(b'[{"x": 1.50},2]'))) == (b'{"x": 1.50}', 2)
    assert binding.function(*binding.arguments(Raw(b"[1.50,2.0]"))) == (b"1.5", 2)


# -- numbers and text


@pytest.mark.parametrize("raw", [b"[1e400,2]", b'{"a":1,"b":1e400}', b"[1,2,[1e999]]", b'{"a":"x","c":-1e400}'])
def test_a_number_that_no_double_holds_is_a_parse_error(raw: bytes) -> None:
    for function in (plain, everything, star, members):
        with pytest.raises(ParseError):
            bound(function).arguments(Raw(raw))


def test_text_nested_beyond_the_decoder_is_a_parse_error() -> None:
    def anything(a: Any) -> None: ...

    with pytest.raises(ParseError):
        bound(anything).arguments(Raw(b"[" * 100_000 + b"]" * 100_000))


def test_params_that_are_not_a_structure() -> None:
    assert faults(bound(plain), 5) == [("", "Expected an array or an object")]


def test_binding_imports_no_asyncio_and_no_inspect_for_plain_functions() -> None:
    text = (
        "import logging, sys; sys.modules['typing_extensions'] = None\n"  # from 3.14 on logging brings both
        "before = set(sys.modules)\n"  # coverage may have come first
        "from dragoman.rpc.binding.binding import bind\n"
        "def f(a: int, *, b: int = 2) -> int: return a + b\n"
        "bind(f, context_type=Exception)\n"
        "print([m for m in ('asyncio', 'inspect', 'dataclasses', 'pydantic', 'annotated_types') if m in sys.modules.keys() - before])"
    )
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_signatures_agree_with_inspect() -> None:
    for function in (plain, optional, positional, star, lead_members, everything, Callee().method):
        found = [(p.name, p.default if not p.required else None) for p in bound(function).parameters]
        real = inspect.signature(function).parameters.values()
        assert found == [(p.name, None if p.default is p.empty else p.default) for p in real]


def test_marked_coroutine_functions() -> None:
    if sys.version_info < (3, 12):
        pytest.skip("inspect.markcoroutinefunction came with 3.12")
    assert bound(inspect.markcoroutinefunction(lambda a: later(a))).kind == "async"
    assert inspect.iscoroutinefunction(later)


DOCSTRINGS = [
    """Do.

    Args:
        a (int): the a
        b (list[tuple[int, str]], optional): the b
            goes on
    Keyword Args:
        c: the c

    Returns:
        d: not a parameter
    """,
    """Do.

    Parameters
    ----------
    a : {1, 2}, optional
        the a
    b
        the b
        goes on

    Other Parameters
    ----------------
    c : int
        the c

    Returns
    -------
    d : int
        not a parameter
    """,
    """Do.

    :param int a: the a
    :param dict[str, int] b: the b
        goes on
    :type b: dict
    :keyword c: the c
    :returns: not a parameter
    """,
]


@pytest.mark.parametrize("text", DOCSTRINGS, ids=["google", "numpy", "sphinx"])
def test_descriptions_of_each_style(text: str) -> None:
    def function(a: int, b: Any, *, c: int = 1, d: int = 2) -> Any: ...

    function.__doc__ = text
    found = {p.name: p.description for p in bound(function).parameters}
    assert found == {"a": "the a", "b": "the b goes on", "c": "the c", "d": ""}


def test_several_names_in_one_entry_of_numpy() -> None:
    def function(x: int, y: int) -> Any:
        """Do.

        Parameters
        ----------
        x, y : int
            both
        """

    assert [p.description for p in bound(function).parameters] == ["both", "both"]
