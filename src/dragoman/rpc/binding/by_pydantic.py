"""Reads pydantic's metadata in annotations, and makes adapters for annotations that pydantic decodes.

Rules:

- pydantic is recognised by the names of its modules, and imported only where an annotation has something of it.
- Constraints, titles, descriptions and examples that msgspec can hold become `msgspec.Meta`. If an annotation has more
  of pydantic (validators, discriminators, its own types), a TypeAdapter decodes the whole annotation from JSON text.
- TypeAdapters are strict, as all decoding here is: "3" is not an integer. A model is as strict as it is configured.
- What neither msgspec nor pydantic can honour raises a LocalError that says what to write. Nothing is ignored silently.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Meta, Struct

from ...jsonrpc.errors import LocalError
from .adapters import Adapter, Described
from .tree import UNION, is_model

_KNOWN = ("min_length", "max_length", "pattern", "gt", "ge", "lt", "le", "multiple_of")
"""Attributes of pydantic's metadata that `msgspec.Meta` has too."""
_MORE = (
    "strip_whitespace",
    "to_upper",
    "to_lower",
    "max_digits",
    "decimal_places",
    "coerce_numbers_to_str",
    "union_mode",
)
"""Attributes of pydantic's metadata that `msgspec.Meta` lacks."""
_SERIALIZERS = ("PlainSerializer", "WrapSerializer", "SerializeAsAny", "EncodedBytes", "EncodedStr")


class ParameterField(Struct, frozen=True):
    """What a `Field` says about a parameter beside its type. `name`: of the argument, None for the parameter's own;
    `default`: UNDEFINED where there is none; `factory`: makes the default, None where there is none."""

    name: str | None
    default: Any
    factory: Any


class Undefined(Struct, frozen=True):
    """The class of `UNDEFINED`, which stands for a default that is not given."""


UNDEFINED = Undefined()


def is_pydantic(value: Any) -> bool:
    """Return whether an object's class is one of pydantic's."""
    return type(value).__module__.partition(".")[0] == "pydantic"


def is_field(value: Any) -> bool:
    """Return whether an object is what pydantic's `Field(...)` returns."""
    return is_pydantic(value) and type(value).__name__ == "FieldInfo"


# -- Field ----------------------------------------------------------------------------------------


def parameter_field(field: Any, where: str) -> ParameterField:
    """Return what a `Field` says about a parameter. Raises LocalError, whose text begins with `where`, for what no call
    can honour."""
    name = field.validation_alias if field.validation_alias is not None else field.alias
    if name is not None and not isinstance(name, str):
        raise LocalError(
            f"{where}: an argument has one name, so Field(validation_alias={type(name).__name__}(...)) cannot be honoured; "
            'write Field(validation_alias="name"), or take a pydantic model'
        )
    factory = field.default_factory
    if factory is not None and getattr(field, "default_factory_takes_validated_data", False):
        raise LocalError(
            f"{where}: a default_factory here takes no other values; write Field(default_factory=lambda: ...), or "
            "make the value in the function"
        )
    absent = field.default is ... or type(field.default).__name__ == "PydanticUndefinedType"
    return ParameterField(name, UNDEFINED if absent else field.default, factory)


def spread(field: Any, where: str) -> list[Any]:
    """Return a `Field` as separate members of `Annotated`: its metadata, its discriminator, and a Meta with its
    descriptions. Raises LocalError, whose text begins with `where`, for options that only a model honours."""
    if field.validate_default:
        raise LocalError(f"{where}: Field(validate_default=True) is for models; write the default as it is to arrive")
    more = field.json_schema_extra
    if more is not None and not isinstance(more, dict):
        raise LocalError(
            f"{where}: Field(json_schema_extra=...) is a dict here, not a function; write what it would add"
        )
    extra = dict(more or {})
    if field.deprecated:
        extra["deprecated"] = True
    found = list(field.metadata)
    if field.discriminator is not None:
        found.append(_discriminator(field.discriminator))
    described = {"title": field.title, "description": field.description, "examples": field.examples}
    described = {key: value for key, value in described.items() if value is not None}
    if described or extra:
        found.append(Meta(**described, extra_json_schema=extra or None))
    return found


def _discriminator(value: Any) -> Any:
    from pydantic import Discriminator  # noqa: PLC0415 - see the rules above

    return Discriminator(value) if isinstance(value, str) else value


def spread_inner(field: Any, where: str) -> list[Any]:
    """`spread` a Field inside of another type. Raises LocalError, whose text begins with `where`, also if it has an
    alias or a default, which belong to a parameter."""
    options = parameter_field(field, where)
    for option, given in (
        ("alias", options.name is not None),
        ("default", options.default is not UNDEFINED),
        ("default_factory", options.factory is not None),
    ):
        if given:
            raise LocalError(
                f"{where}: Field({option}=...) is for a parameter or a model's field, not inside of another type; "
                "leave it out, or write a pydantic model"
            )
    return spread(field, where)


# -- other metadata -------------------------------------------------------------------------------


def needs_pydantic(extra: Any) -> bool:
    """Return whether only pydantic can honour this member of `Annotated`."""
    if isinstance(extra, type) and is_model(extra):
        return False
    if not is_pydantic(extra):
        return hasattr(type(extra), "__get_pydantic_core_schema__")
    name = type(extra).__name__
    if name == "Strict":
        return extra.strict is False
    if name in ("Examples", "FieldInfo"):
        return False
    if any(_given(extra, key) for key in _MORE):
        return True
    return not any(_given(extra, key) for key in _KNOWN) and not hasattr(extra, "allow_inf_nan")


def _given(extra: Any, key: str) -> bool:
    value = getattr(extra, key, None)
    return value is not None and value is not False


def of_pydantic(extra: Any) -> Iterable[tuple[str, Any]]:
    """Yield the `msgspec.Meta` arguments, name and value, for one of pydantic's members of `Annotated` that msgspec can
    honour."""
    for key in _KNOWN:
        if _given(extra, key):
            value = getattr(extra, key)
            yield key, getattr(value, "pattern", value) if key == "pattern" else value


def refuse_serializer(extra: Any, where: str) -> None:
    """Raise LocalError, whose text begins with `where`, if a member of `Annotated` is a serializer of pydantic, which
    would change a result and is not run here."""
    if is_pydantic(extra) and type(extra).__name__ in _SERIALIZERS:
        raise LocalError(
            f"{where}: {type(extra).__name__} is run by pydantic alone, in its models; convert the value in the function, "
            "or return a model"
        )


# -- pydantic's TypeAdapter -----------------------------------------------------------------------


def is_foreign(cls: Any) -> bool:
    """Return whether a class is decoded by pydantic and is no model: a type of pydantic itself, or one made for it."""
    return isinstance(cls, type) and hasattr(cls, "__get_pydantic_core_schema__") and not is_model(cls)


def type_adapter(hint: Any, where: str) -> Adapter:
    """Return an adapter that decodes and describes an annotation by pydantic's TypeAdapter. Raises LocalError, whose
    text begins with `where`, if pydantic cannot decode it."""
    try:
        made = _made(_for_pydantic(hint))
    except LocalError:
        raise
    except Exception as error:
        first = str(error).partition("\n")[0].rstrip(".")
        raise LocalError(
            f"{where}: pydantic cannot decode {hint}: {first}; use pydantic models, dataclasses and built-in types in it"
        ) from error

    def schema(refs: str, result: bool) -> Described:
        mode: Literal["serialization", "validation"] = "serialization" if result else "validation"
        found = made.json_schema(ref_template=refs.replace("{name}", "{model}"), mode=mode)
        return found, found.pop("$defs", {})

    return Adapter(lambda raw: made.validate_json(bytes(raw)), schema)


def _made(hint: Any) -> Any:
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter  # noqa: PLC0415 - see the rules above

    config = ConfigDict(strict=True)
    if not _encodes(hint):  # else bytes would be decoded twice
        config |= ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
    try:
        return TypeAdapter(hint, config=config)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(hint)  # a model, a dataclass or a TypedDict has a configuration of its own


def _encodes(hint: Any) -> bool:
    """Return whether an annotation itself says how its bytes are encoded as text."""
    return type(hint).__name__ == "EncodedBytes" or any(_encodes(arg) for arg in get_args(hint))


def _for_pydantic(hint: Any) -> Any:
    """Return the annotation with each `msgspec.Meta` and each description as pydantic's `Field`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner, *extras = args
        return Annotated[(_for_pydantic(inner), *(_as_field(extra) for extra in extras))]
    if origin is None or origin is Literal or not args or isinstance(hint, TypeVar):
        return hint
    parts = tuple(arg if isinstance(arg, list) else _for_pydantic(arg) for arg in args)
    if parts == args and all(a is b for a, b in zip(parts, args, strict=True)):
        return hint
    return Union[parts] if origin in UNION else origin[parts]  # noqa: UP007


_FIELD_OPTIONS = (*_KNOWN, "title", "description", "examples")


def _as_field(extra: Any) -> Any:
    from pydantic import Field  # noqa: PLC0415 - see the rules above

    if isinstance(extra, Meta):
        options = {key: value for key in _FIELD_OPTIONS if (value := getattr(extra, key)) is not None}
        return Field(**options, json_schema_extra=extra.extra_json_schema)
    text = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
    return Field(description=text) if isinstance(text, str) else extra


@functools.lru_cache(256)
def written_by(cls: type) -> Any:
    """Return the function that encodes a value of this class, which pydantic knows, as JSON text."""
    return _made(cls).dump_json
