"""Forms that a user fills in, as the restricted JSON Schema of elicitation.

Rules (client/elicitation, "Requested Schema"):

- A form is a flat object of strings, numbers, booleans, and choices of one or several strings. A type that a
  form cannot have raises a LocalError that names the field, at once and for every revision.
- It is made from a type (Struct, dataclass, TypedDict, pydantic model; a single value is a form of one field,
  `value`) or from a dict that already is such a schema and is sent unchanged.
- For an older revision titled choices become `enumNames`, and only booleans keep their defaults. A choice of several
  cannot be expressed there: `CannotAsk`.
- "Servers SHOULD validate received data matches the requested schema": answers are checked field by field,
  then decoded into the type. `null` for an optional field counts as missing; unknown fields are ignored.
"""

from __future__ import annotations

import datetime
import enum
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast, get_args, get_origin

import msgspec
from msgspec import Struct

from ...jsonrpc.errors import INVALID_REQUEST, BadAnswer, LocalError, RpcError
from ...rpc.binding.annotations import translate
from ...rpc.binding.far_pattern import far_pattern
from ...rpc.binding.faults import ValueFault, fault
from ...rpc.binding.hooks import schemas
from ...rpc.binding.results import result_decoder, to_json
from ...rpc.binding.tree import UNION, fields_of, has_fields, is_model
from ..protocol.revisions import Revision

VALUE = "value"
"""The field of a form that asks for a single value."""

_FORMATS = ("email", "uri", "date", "date-time")
_ABOUT = ("title", "description", "default")
_KNOWN: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format", "enum", "enumNames", "oneOf"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "boolean": (),
    "array": ("items", "minItems", "maxItems"),
}
_TYPES: dict[str, tuple[type, ...]] = {
    "minLength": (int, float),
    "maxLength": (int, float),
    "pattern": (str,),
    "format": (str,),
    "enum": (list, tuple),
    "enumNames": (list, tuple),
    "oneOf": (list, tuple),
    "minimum": (int, float),
    "maximum": (int, float),
    "items": (dict,),
    "minItems": (int, float),
    "maxItems": (int, float),
}
_ON_TOP = ("$schema", "type", "properties", "required", "title", "description", "additionalProperties")


class CannotAsk(RpcError):
    """This client cannot be asked: it did not declare the capability, its revision has no such question, or its session
    is not initialized yet.

    `code` is -32021 if the revision has a code for a missing capability, otherwise -32600. `data` has
    `requiredCapabilities` if capabilities were missing, written like a client's capabilities.
    """

    code = INVALID_REQUEST
    message = "This client cannot be asked"


class Form(Struct, frozen=True, eq=False):
    """A form. `properties`: the schema of each field; `decode`: decodes the JSON of its content; `nullable`: fields
    that are None in the form's type if they are missing."""

    properties: dict[str, dict[str, Any]]
    required: tuple[str, ...]
    decode: Callable[[bytes], Any]
    nullable: tuple[str, ...] = ()
    dialect: str | None = None

    def schema(self, revision: Revision) -> dict[str, Any]:
        """Return the `requestedSchema` for this revision. Raises CannotAsk if the revision cannot express a field."""
        schema: dict[str, Any] = {"$schema": self.dialect} if self.dialect and revision.rich_forms else {}
        fields = {name: _for_revision(name, field, revision) for name, field in self.properties.items()}
        schema |= {"type": "object", "properties": fields}
        return schema | ({"required": list(self.required)} if self.required else {})

    def read(self, content: Any, *, foreign: bool = False) -> Any:
        """Return the filled form, as the form's type. Raises BadAnswer with every fault when it does not fit.

        `foreign`: the far end made the form, so a `pattern` that needs backtracking is not run.
        """
        content = {} if content is None else content
        if not isinstance(content, dict):
            raise BadAnswer("the answer does not fit: content: Expected an object")
        given = {name: value for name, value in content.items() if name in self.properties}
        given = {name: value for name, value in given.items() if value is not None or name in self.required}
        found = [fault(name, "Missing field") for name in self.required if name not in given]
        for name, value in given.items():
            given[name] = _check(name, value, self.properties[name], found, foreign)
        if found:
            texts = "; ".join(f"{one.field}: {one.message}" for one in found[:10])
            raise BadAnswer(f"the answer does not fit: {texts}")
        return self.decode(to_json(dict.fromkeys(self.nullable) | given))


def form_of(schema: Any) -> Form:
    """Return the form for a type or a schema. Raises LocalError, which names the field, for what a form cannot have."""
    if isinstance(schema, Mapping):
        return _of_schema(schema)
    if isinstance(schema, list | tuple | set | frozenset):
        raise LocalError(f"{_short(schema)} is not a type: a choice is written Literal['a', 'b'], or as an Enum")
    try:
        return _of_type(schema)
    except TypeError:  # a type with unhashable metadata
        return _of_type.__wrapped__(schema)


# -- from a schema --------------------------------------------------------------------------------


def _of_schema(schema: Mapping[str, Any]) -> Form:
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise LocalError("a form's schema is {'type': 'object', 'properties': {...}}")
    for word in schema:
        if word not in _ON_TOP:
            raise LocalError(f"a form's schema cannot have {word!r}: it is a flat object, of {', '.join(_ON_TOP)}")
    properties = {name: _check_allowed(name, field) for name, field in schema["properties"].items()}
    required = tuple(_texts(schema.get("required", ()), "required"))
    for name in required:
        if name not in properties:
            raise LocalError(f"a form's schema requires {name!r}, which is none of its properties")
    return Form(properties, required, msgspec.json.decode, (), schema.get("$schema"))


def _check_allowed(name: str, field: Any) -> dict[str, Any]:
    """Return a field's schema unchanged. Raises LocalError if a form may not have it."""
    kind = field.get("type") if isinstance(field, dict) else None
    if not isinstance(kind, str) or kind not in _KNOWN:
        raise _field_error(name, f"{_short(field)} is not a string, number, integer, boolean, or array of choices")
    for word in field:
        if word not in ("type", *_ABOUT, *_KNOWN[kind]):
            raise _field_error(
                name, f"{word!r} is not among {', '.join(_KNOWN[kind]) or 'title, description, default'}"
            )
    for word, types in _TYPES.items():
        if word in field and (not isinstance(field[word], types) or isinstance(field[word], bool)):
            raise _field_error(name, f"{word} cannot be {_short(field[word])}")
    if "format" in field and field["format"] not in _FORMATS:
        raise _field_error(name, f"the format {field['format']!r} is not among {', '.join(_FORMATS)}")
    if kind == "array" and not _options(field.get("items")):
        raise _field_error(
            name, "the items of an array are a choice: {'type': 'string', 'enum': [...]} or {'anyOf': [...]}"
        )
    if any(not isinstance(value, str) for value in _options(field.get("items", field)) or ()):
        raise _field_error(name, "the values of a choice are strings")
    return cast(dict[str, Any], field)


def _texts(value: Any, word: str) -> list[str]:
    if not isinstance(value, list | tuple) or any(not isinstance(one, str) for one in value):
        raise LocalError(f"a form's {word!r} is a list of texts, not {_short(value)}")
    return list(value)


def _field_error(name: str, why: str) -> LocalError:
    return LocalError(f"field {name!r} cannot be in a form: {why}")


def _short(field: Any) -> str:
    text = str(field)
    return text if len(text) <= 100 else text[:97] + "..."


def _options(field: Any) -> list[Any] | None:
    """Return the values of a choice; None if any value is allowed."""
    if not isinstance(field, dict):
        return None
    titled = field.get("oneOf") or field.get("anyOf")
    if not titled:
        listed: list[Any] | None = field.get("enum")
        return listed
    return [one.get("const") if isinstance(one, dict) else None for one in titled]


# -- from a type ----------------------------------------------------------------------------------


@functools.lru_cache(1024)
def _of_type(kind: Any) -> Form:
    if kind is None:
        return Form({}, (), lambda content: None)
    where = f"a form of {getattr(kind, '__qualname__', kind)}"
    if not (has_fields(get_origin(kind) or kind) or is_model(kind)):
        return _of_value(kind)
    (schema,), parts = schemas([translate(kind, where).shown], refs="#/$defs/{name}", inline=True)
    schema = _follow_reference(schema, parts)
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise LocalError(f"{where}: a form is an object with fields")
    hints = _hints(kind)
    properties: dict[str, dict[str, Any]] = {}
    required, nullable = list(schema.get("required", ())), []
    for name, field in schema["properties"].items():
        field, empty = _not_null(_follow_reference(field, parts), parts)
        properties[name] = _check_allowed(name, _canonical(name, field, parts, _names(hints.get(name))))
        if empty and name in required:
            required.remove(name)
            nullable.append(name)
    return Form(properties, tuple(required), result_decoder(kind), tuple(nullable))


def _of_value(kind: Any) -> Form:
    """Return the form of one field that asks for a single value."""
    holder: Any = msgspec.defstruct("Value", [(VALUE, kind)])
    form = _of_type.__wrapped__(holder)  # the holder is built once
    return Form(form.properties, form.required, lambda content: form.decode(content).value, form.nullable)


def _hints(kind: Any) -> dict[str, Any]:
    """Return the annotations of the fields, by their names in JSON."""
    if is_model(kind):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
    return {field.name: field.hint for field in fields_of(kind)}


def _names(hint: Any) -> dict[Any, str]:
    """Return titles for the values of an Enum, where its names say more than the values; else an empty dict."""
    while get_args(hint) and get_origin(hint) is not Literal:
        arms = [arm for arm in get_args(hint) if arm is not type(None)]
        if len(arms) > 1 and get_origin(hint) in UNION:
            return {}
        hint = arms[0]
    if not (isinstance(hint, type) and issubclass(hint, enum.Enum)):
        return {}
    titles = {one.value: one.name.replace("_", " ") for one in hint}
    titles = {value: title.capitalize() if title.isupper() else title for value, title in titles.items()}
    same = all(str(value).replace("_", " ").casefold() == title.casefold() for value, title in titles.items())
    return {} if same else titles


def _follow_reference(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its reference replaced by the schema that it names; members beside the reference win."""
    while "$ref" in schema or len(schema.get("allOf", ())) == 1:
        inner = parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema["allOf"][0]
        schema = inner | {word: value for word, value in schema.items() if word not in ("$ref", "allOf")}
    return schema


def _not_null(schema: dict[str, Any], parts: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema without null, which forms do not have, and whether it allowed null."""
    beside = {word: value for word, value in schema.items() if word not in ("anyOf", "enum")}
    if beside.get("default", 0) is None:
        del beside["default"]
    if "anyOf" in schema:
        arms = [_follow_reference(arm, parts) for arm in schema["anyOf"]]
        real = [arm for arm in arms if arm.get("type") != "null"]
        if len(real) == 1:
            return real[0] | beside, len(real) < len(arms)
    if None in schema.get("enum", ()):
        return beside | {"enum": [value for value in schema["enum"] if value is not None]}, True
    return schema, False


def _canonical(name: str, field: dict[str, Any], parts: dict[str, Any], titles: dict[Any, str]) -> dict[str, Any]:
    """Return a field's schema with only those members that a form has; the type's decoder checks the rest. Raises
    LocalError."""
    about: dict[str, Any] = {word: field[word] for word in _ABOUT if word in field}
    if field.get("type") == "array" and isinstance(field.get("items"), dict):
        choice = _choice(_follow_reference(field["items"], parts), titles, "anyOf")
        counts: dict[str, Any] = {word: field[word] for word in ("minItems", "maxItems") if word in field}
        return {"type": "array", **about, **counts, "items": choice}
    if "enum" in field or "oneOf" in field:
        return {"type": "string", **about, **_choice(field, titles, "oneOf")}
    if "contentEncoding" in field:
        raise _field_error(name, "a person cannot fill in bytes")
    if "exclusiveMinimum" in field and field.get("type") == "integer":
        field = {"minimum": field["exclusiveMinimum"] + 1} | field
    if "exclusiveMaximum" in field and field.get("type") == "integer":
        field = {"maximum": field["exclusiveMaximum"] - 1} | field
    words = _KNOWN.get(field.get("type", ""))
    if words is None or field["type"] == "array":
        raise _field_error(name, f"{_short(field)} is not a string, number, integer, boolean, or choice among strings")
    rest = {word: field[word] for word in words if word in field}
    if rest.get("format", "email") not in _FORMATS:
        del rest["format"]
    return {"type": field["type"], **about, **rest}


def _choice(field: dict[str, Any], titles: dict[Any, str], titled: str) -> dict[str, Any]:
    if field.get(titled):
        return {titled: field[titled]}
    values = field.get("enum", ())
    if not titles and "enumNames" in field:
        titles = dict(zip(values, field["enumNames"], strict=False))
    if titles:
        return {titled: [{"const": value, "title": titles.get(value, str(value))} for value in values]}
    return {"type": "string", "enum": list(values)}


# -- for a revision -------------------------------------------------------------------------------


def _for_revision(name: str, field: dict[str, Any], revision: Revision) -> dict[str, Any]:
    """Return a field's schema as the revision has it. Raises CannotAsk if it cannot express the field."""
    if revision.rich_forms:
        return field if revision.form_patterns or "pattern" not in field else _without(field, "pattern")
    if field["type"] == "array":
        raise CannotAsk(f"This client's revision of MCP has no choice of several, which field {name!r} is")
    field = _without(field, "pattern") if field["type"] == "boolean" else _without(field, "pattern", "default")
    if "oneOf" in field:
        options = field["oneOf"]
        choice = {"enum": [one["const"] for one in options], "enumNames": [one["title"] for one in options]}
        return _without(field, "oneOf") | choice
    return field


def _without(field: dict[str, Any], *words: str) -> dict[str, Any]:
    return {word: value for word, value in field.items() if word not in words}


# -- checking the answer --------------------------------------------------------------------------


def _check(name: str, value: Any, field: dict[str, Any], found: list[ValueFault], foreign: bool) -> Any:
    """Return the value, converted to an integer if the schema has one; faults are appended to `found`."""
    kind = field["type"]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    why = _type_fault(value, kind) or _CHECKS[kind](value, field)
    if not why and kind == "string" and "pattern" in field and not _matches(field["pattern"], value, foreign):
        why = f"Expected text that matches {_short(field['pattern'])}"
    if why:
        found.append(fault(name, why, value))
    return value


_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
}
_ARTICLE = {
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "array": "an array",
}


def _type_fault(value: Any, kind: str) -> str:
    if isinstance(value, _PYTHON[kind]) and (kind == "boolean" or not isinstance(value, bool)):
        return ""
    return f"Expected {_ARTICLE[kind]}"


def _check_text(value: str, field: dict[str, Any]) -> str:
    options = _options(field)
    if options is not None:
        return "" if value in options else f"Expected one of {', '.join(map(repr, options[:20]))}"
    if len(value) < field.get("minLength", 0):
        return f"Expected at least {field['minLength']} characters"
    if len(value) > field.get("maxLength", len(value)):
        return f"Expected at most {field['maxLength']} characters"
    return _check_format(value, field.get("format"))


def _matches(pattern: Any, value: str, foreign: bool) -> bool:
    """Return whether a text has a match of a pattern. One of the two comes from the far end, so the time may not grow
    with both. `foreign`: the pattern does."""
    if not isinstance(pattern, str):
        return True
    compiled = far_pattern(pattern)
    if foreign or compiled.runs(value):
        return compiled.matches(value)
    return re.search(pattern, value) is not None


def _check_format(value: str, form: str | None) -> str:
    if form == "email":
        return "" if re.fullmatch(r"[^\s@]+@[^\s@]+", value) else "Expected an e-mail address"
    if form == "uri":
        return "" if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", value) else "Expected a URI"
    if form in ("date", "date-time"):
        try:
            msgspec.convert(value, datetime.date if form == "date" else datetime.datetime)
        except msgspec.ValidationError:
            return f"Expected a {form} (RFC 3339)"
    return ""


def _check_number(value: float, field: dict[str, Any]) -> str:
    if value < field.get("minimum", value):
        return f"Expected a number >= {field['minimum']}"
    return f"Expected a number <= {field['maximum']}" if value > field.get("maximum", value) else ""


def _check_choices(value: list[Any], field: dict[str, Any]) -> str:
    options = _options(field["items"]) or []
    if any(not isinstance(one, str) for one in value) or not frozenset(options).issuperset(value):
        return f"Expected some of {', '.join(map(repr, options[:20]))}"
    if len(value) < field.get("minItems", 0):
        return f"Expected at least {field['minItems']}"
    return f"Expected at most {field['maxItems']}" if len(value) > field.get("maxItems", len(value)) else ""


_CHECKS: dict[str, Callable[[Any, dict[str, Any]], str]] = {
    "string": _check_text,
    "number": _check_number,
    "integer": _check_number,
    "boolean": lambda value, field: "",
    "array": _check_choices,
}
