"""Calls through a binding, for the tests of bindings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET, Raw

from dragoman.jsonrpc.errors import InvalidParams
from dragoman.rpc.binding.binding import Binding, bind
from dragoman.rpc.binding.hooks import schemas
from dragoman.rpc.binding.schema import REFS


class Context:
    """Stands for the context type: `bind` takes any."""


class Special(Context):
    pass


CONTEXT = Context()


def bound(function: Callable[..., Any]) -> Binding:
    return bind(function, context_type=Context)


def call(binding: Binding, params: Any = UNSET) -> Any:
    raw = params if params is UNSET else Raw(json.dumps(params).encode())
    return binding.function(*binding.arguments(raw, CONTEXT))


def result_schema(binding: Binding) -> dict[str, Any]:
    (schema,), components = schemas([binding.result.shown], refs=REFS, result=True)
    return schema | ({"$defs": components} if components else {})


def faults(binding: Binding, params: Any = UNSET) -> list[tuple[str, str]]:
    with pytest.raises(InvalidParams) as caught:
        call(binding, params)
    assert caught.value.code == -32602
    return [(fault["field"], fault["message"]) for fault in caught.value.data["errors"]]
