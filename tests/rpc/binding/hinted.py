"""One parameter of any type, taken by position and by name, for the tests of bindings."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from msgspec import Raw

from dragoman.jsonrpc.errors import InvalidParams
from dragoman.rpc.binding.binding import Binding, bind


class Special2:
    """Stands for the context type."""


def binding_of(hint: Any) -> Binding:
    def function(it: Any) -> Any:
        return it

    function.__annotations__["it"] = hint
    return bind(function, context_type=Special2)


def take(hint: Any, value: Any) -> Any:
    """The argument that arrives, by position and by name alike."""
    binding = binding_of(hint)
    (by_position,) = binding.arguments(Raw(json.dumps([value]).encode()))
    (by_name,) = binding.arguments(Raw(json.dumps({"it": value}).encode()))
    assert by_position == by_name
    assert type(by_position) is type(by_name)
    jsonschema.validate({"it": value}, binding.params_schema(), cls=jsonschema.Draft202012Validator)
    return by_position


def faults(hint: Any, value: Any) -> list[tuple[str, str]]:
    binding = binding_of(hint)
    found = []
    for params in ([value], {"it": value}):
        with pytest.raises(InvalidParams) as caught:
            binding.arguments(Raw(json.dumps(params).encode()))
        found.append([(fault["field"], fault["message"]) for fault in caught.value.data["errors"]])
    assert found[0] == found[1]
    return found[0]
