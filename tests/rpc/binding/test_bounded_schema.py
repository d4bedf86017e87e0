"""Schemas and patterns of a far end: basic/index, "Composition-Keyword Resource Use"."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.jsonrpc.errors import LocalError
from dragoman.rpc.binding.bounded_schema import BoundedSchema
from dragoman.rpc.binding.far_pattern import STEPS, far_pattern, states_of
from dragoman.rpc.binding.json_schema import validator

from .hostile import CASES, HERE, NO_INTEGER, arrays


def test_the_corpus_is_one() -> None:
    names = [name for name, *_ in CASES]
    assert len(set(names)) == len(names) >= 60


@pytest.mark.parametrize(("name", "schema", "value", "ends"), CASES, ids=[case[0] for case in CASES])
def test_hostile(name: str, schema: Any, value: Any, ends: str) -> None:
    try:
        check = BoundedSchema(schema)
    except LocalError:
        assert ends.startswith("refused"), name
        return
    found = check(value)
    assert check.steps <= 2 * STEPS + 1
    bounded = bool(found) and found[0].message.startswith("It cannot be checked")
    how = "bounded" if bounded else "fault" if found else "fits"
    assert ends in ("", how, f"refused or {how}"), (name, found)
    assert len(found) <= 1
    assert len(str(found)) < 2_000


def test_steps_grow_with_the_depth_and_not_with_its_power() -> None:
    check = BoundedSchema({"allOf": [{"items": HERE}, {"items": HERE}]} | NO_INTEGER)
    taken = []
    for levels in (10, 20, 40):
        assert [one.message for one in check(arrays(levels))] == ["1 fits what it must not"]
        taken.append(check.steps)
    assert taken[2] < 5 * taken[0]


def test_the_number_of_steps_is_the_bound() -> None:
    check = BoundedSchema({"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}})  # it has no rate, so it is walked
    assert check([0] * 1_000) == []
    assert 2_000 < check.steps < 20_000
    assert check([0] * 200_000)[0].message == f"It cannot be checked: it takes more than {STEPS} steps"
    assert check.steps == STEPS + 1


@pytest.mark.parametrize(
    ("pattern", "states"),
    [
        ("", 0),
        ("abc", 3),
        ("a{10}", 10),
        ("(a{10}b){10}", 110),
        ("[a-z{9}]{2,5}", 5),
        (r"\d{3,}x", 4),
        ("a{,3}", 5),
        ("((", 2),
    ],
)
def test_states_of_patterns(pattern: str, states: int) -> None:
    assert states_of(pattern) <= max(states, 1) * 2
    assert states_of(pattern) >= states - 2


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(?<!a)b", "((", "a{100000}"])
def test_patterns_that_are_not_run(pattern: str) -> None:
    assert far_pattern(pattern).search is None
    assert far_pattern(pattern).matches("whatever")


def test_patterns_that_run() -> None:
    assert far_pattern("^[a-z]{3}$").matches("abc")
    assert not far_pattern("^[a-z]{3}$").matches("abcd")
    assert far_pattern("é").matches("café")
    check = BoundedSchema({"items": {"pattern": "^a", "properties": {"x": HERE}}})
    assert [one.field for one in check(["ab", "b"])] == ["[1]"]
    beyond = BoundedSchema({"pattern": "^(?!x)", "minLength": 3, "allOf": [{}]})
    assert beyond("xyz") == []
    assert len(beyond("xy")) == 1


def test_faults_have_their_place() -> None:
    check = BoundedSchema(
        {
            "properties": {
                "list": {"items": {"type": "integer"}},
                "known": {"properties": {"a": {}}, "additionalProperties": False},
                "must": {"required": ["there"]},
                "names": {"propertyNames": {"maxLength": 2}},
            }
        }
    )
    for value, field in (
        ({"list": [1, "x"]}, "list[1]"),
        ({"known": {"b": 1}}, "known.b"),
        ({"must": {}}, "must.there"),
        ({"names": {"long": 1}}, "names.long"),
    ):
        assert [one.field for one in check(value)] == [field]


_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -2.0])
    | st.sampled_from(["", "a", "ab"])
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
_kinds = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
_small = st.integers(0, 3)
_leaf = st.fixed_dictionaries(
    {},
    optional={
        "type": _kinds,
        "minimum": _small,
        "exclusiveMaximum": _small,
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": _small,
        "maxItems": _small,
        "minProperties": _small,
        "uniqueItems": st.booleans(),
        "enum": st.lists(_values, min_size=1, max_size=3),
        "const": _values,
        "required": st.lists(st.sampled_from("abc"), unique=True, max_size=2),
        "pattern": st.sampled_from(["a", "^a$", "b+"]),
    },
)


def _within(inner: Any) -> Any:
    some = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "items": inner,
            "prefixItems": some,
            "contains": inner,
            "minContains": _small,
            "properties": named,
            "patternProperties": named,
            "additionalProperties": inner,
            "propertyNames": inner,
            "dependentSchemas": named,
            "unevaluatedItems": inner,
            "unevaluatedProperties": inner,
        },
    )


_schemas = st.recursive(_leaf | st.booleans(), _within, max_leaves=6)


@given(_schemas, _values)
def test_it_agrees_with_the_library(schema: Any, value: Any) -> None:
    check = BoundedSchema(schema)
    fits = not validator(schema)(value)
    assert (check(value) == []) is fits
    check._quick = None
    assert (check(value) == []) is fits
