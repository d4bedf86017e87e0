"""Random values of every type, as an author writing for one revision may make them.

Members that the revision does not know are there too, at any depth: leaving them out is encoding's part.
What it requires is set, and what no encoding could tell it (a tool call in a message of before tools) is not made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from dragoman.mcp.protocol import params, types
from dragoman.mcp.protocol.encoding import requires
from dragoman.mcp.protocol.foreign import ForeignContent
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, Revision

Values = st.SearchStrategy[Any]

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
# The schemas write "integer" where numbers are meant inside free JSON: they came from TypeScript's `number`.
JSON: Values = st.recursive(
    TEXT | st.integers(-(2**53), 2**53) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=2)
# `_meta` has keys of which the protocol knows the values.
META = st.dictionaries(TEXT.map("com.example/".__add__), JSON, max_size=2)
SCHEMA = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "$schema": st.just("https://json-schema.org/draft/2020-12/schema"),
        "properties": st.dictionaries(TEXT, st.booleans() | st.just({"type": "string"}), max_size=2),
        "required": st.lists(TEXT, max_size=2, unique=True),
        "additionalProperties": st.booleans(),
    },
)
FORM = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(TEXT, st.just({"type": "string"}), max_size=2)},
    optional={"required": st.lists(TEXT, max_size=2)},
)
SHARE = st.integers(0, 1) | st.floats(0, 1)
MEMBERS: dict[tuple[type[Struct], str], Values] = {
    (types.Tool, "input_schema"): SCHEMA,
    (types.Tool, "output_schema"): SCHEMA | st.just({"type": "array"}) | st.just({}),
    (types.Annotations, "priority"): SHARE,
    (types.ModelPreferences, "cost_priority"): SHARE,
    (types.ModelPreferences, "speed_priority"): SHARE,
    (types.ModelPreferences, "intelligence_priority"): SHARE,
    (types.RequestMeta, "log_level"): st.sampled_from(get_args(types.LoggingLevel)),
    (params.SetLevelRequestParams, "level"): st.sampled_from(get_args(types.LoggingLevel)),
    (params.SubscriptionsListenResult, "meta"): META.map({types.SUBSCRIPTION_ID: 1}.__or__),
    (params.Completion, "values"): st.lists(TEXT, max_size=100),
}
for _kind in (types.ClientCapabilities, types.ServerCapabilities):
    MEMBERS[_kind, "tasks"] = st.just({})
    MEMBERS[_kind, "experimental"] = MEMBERS[_kind, "extensions"] = st.dictionaries(TEXT, OBJECT, max_size=2)


@cache
def some(kind: type[Struct], revision: Revision) -> Values:
    """Values of a type for a revision."""
    special = SPECIAL.get(kind)
    return special(revision) if special else struct(kind, revision)


def struct(kind: type[Struct], revision: Revision, **members: Values) -> Values:
    """Values of a type, some members as told, UNSET where they may be."""
    made = {}
    for field in structs.fields(kind):
        given = members.get(field.name)
        made[field.name] = given if given is not None else member(kind, field, revision)
    return st.builds(kind, **made)


def member(kind: type[Struct], field: structs.FieldInfo, revision: Revision) -> Values:
    values = MEMBERS.get((kind, field.name))
    if values is None:
        values = META if field.name == "meta" and types.Free in options(field.type) else hinted(field.type, revision)
    if field.default is UNSET and not requires(field.type, revision):
        return st.just(UNSET) | values
    return values


def options(hint: Any) -> tuple[Any, ...]:
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(one for one in members if one not in (UnsetType, ForeignContent))


def hinted(hint: Any, revision: Revision) -> Values:
    """Values of an annotation."""
    origin = get_origin(hint)
    if len(options(hint)) > 1 or origin in (Annotated, Union, UnionType):
        return st.one_of(*(hinted(one, revision) for one in options(hint) if tellable(one, revision)))
    if origin is Literal:
        return st.sampled_from(get_args(hint))
    if origin is list:
        # Of a message in a list form, one block is what every revision takes.
        single = revision.order < R2025_11.order and types.ToolUseContent in options(get_args(hint)[0])
        return st.lists(hinted(get_args(hint)[0], revision), min_size=int(single), max_size=1 if single else 2)
    if hint == types.Free:
        return OBJECT
    if origin is dict:
        return st.dictionaries(TEXT, hinted(get_args(hint)[1], revision), max_size=2)
    if isinstance(hint, type) and issubclass(hint, Struct):
        return some(hint, revision)
    return PLAIN[hint]


def tellable(hint: Any, revision: Revision) -> bool:
    later = {types.ToolUseContent, types.ToolResultContent}
    return hint not in later or revision.order >= R2025_11.order


PLAIN: dict[Any, Values] = {
    str: TEXT,
    int: st.integers(0, 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    Raw: OBJECT.map(lambda value: Raw(json.dumps(value).encode())),
    Any: JSON,
}


def _contents(revision: Revision) -> Values:
    kind = types.ResourceContents
    return struct(kind, revision, blob=st.just(UNSET), text=TEXT) | struct(
        kind, revision, text=st.just(UNSET), blob=TEXT
    )


def _elicit(revision: Revision) -> Values:
    kind, absent = params.ElicitRequestParams, st.just(UNSET)
    form = struct(
        kind,
        revision,
        mode=absent | st.just("form"),
        requested_schema=FORM,
        url=absent,
        elicitation_id=absent,
    )
    if revision is R2025_06:
        return form
    url = struct(kind, revision, mode=st.just("url"), requested_schema=absent, url=TEXT, elicitation_id=TEXT)
    return form | url


def _elicited(revision: Revision) -> Values:
    one = TEXT | st.integers() | st.booleans()
    content = one if revision is R2025_06 else one | st.lists(TEXT, max_size=2)
    return struct(
        params.ElicitResult, revision, content=st.just(UNSET) | st.dictionaries(TEXT, content, max_size=2)
    )  # fmt: skip


def _answers(revision: Revision) -> Values:
    accepted = st.dictionaries(TEXT, st.just(Raw(b'{"action":"accept"}')), max_size=2)
    return st.just(UNSET) | accepted


def _asking(kind: type[Struct]) -> Callable[[Revision], Values]:
    return lambda revision: struct(kind, revision, input_responses=_answers(revision))


def _field_of_form(revision: Revision) -> Values:
    kind, absent = types.PrimitiveSchema, st.just(UNSET)
    every = {field.name: absent for field in structs.fields(kind)}
    texts = {"title": absent | TEXT, "description": absent | TEXT}
    words, size = st.lists(TEXT, max_size=2), absent | st.integers(0, 9)
    options_ = st.lists(struct(types.EnumOption, revision), max_size=2)
    items = struct(types.EnumItems, revision, any_of=absent, type=st.just("string"), enum=words) | struct(
        types.EnumItems, revision, any_of=options_, type=absent, enum=absent
    )
    formats = absent | st.sampled_from(("email", "uri", "date", "date-time"))
    # The first revision with forms has defaults for yes and no alone.
    later = st.nothing() if revision is R2025_06 else TEXT
    number, text, truth = absent | later.map(len), absent | later, absent | st.booleans()
    forms: list[dict[str, Values]] = [
        {"type": st.just("string"), "min_length": size, "max_length": size, "format": formats, "default": text},
        {"type": st.sampled_from(("number", "integer")), "minimum": size, "maximum": size, "default": number},
        {"type": st.just("boolean"), "default": truth},
        {"type": st.just("string"), "enum": words, "enum_names": absent | words},
    ]
    if revision is not R2025_06:
        forms += [
            {"type": st.just("string"), "one_of": options_, "default": text},
            {"type": st.just("array"), "items": items, "min_items": size, "max_items": size, "default": absent | words},
        ]
    return st.one_of(*(struct(kind, revision, **(every | texts | form)) for form in forms))


SPECIAL: dict[type[Struct], Callable[[Revision], Values]] = {
    types.ResourceContents: _contents,
    types.PrimitiveSchema: _field_of_form,
    params.ElicitRequestParams: _elicit,
    params.ElicitResult: _elicited,
    params.CallToolRequestParams: _asking(params.CallToolRequestParams),
    params.ReadResourceRequestParams: _asking(params.ReadResourceRequestParams),
    params.GetPromptRequestParams: _asking(params.GetPromptRequestParams),
}
