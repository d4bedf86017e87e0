"""What pydantic says beside a type, and the annotations that pydantic decodes.

Rules:

- pydantic is recognised by the names of its modules, and imported only where an annotation has something of it.
- Constraints, titles, descriptions and examples that msgspec can hold become `msgspec.Meta`. Where there is more
  (validators, discriminators, its own types), its TypeAdapter decodes the whole annotation from the JSON text.
- It is strict, as everything here is: "3" is not an integer. A model is as strict as it says.
- What neither can honour is a LocalError that says what to write. Nothing is dropped in silence.
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
_MORE = (
    "strip_whitespace",
    "to_upper",
    "to_lower",
    "max_digits",
    "decimal_places",
    "coerce_numbers_to_str",
    "union_mode",
)
"""What pydantic's metadata says: with a word in msgspec, and without."""
_SERIALIZERS = ("PlainSerializer", "WrapSerializer", "SerializeAsAny", "EncodedBytes", "EncodedStr")


class ParameterField(Struct, frozen=True):
    """What a `Field` says about a parameter beside its type. `default`, `factory`: UNDEFINED, None where absent."""

    name: str | None
    default: Any
    factory: Any


class Undefined(Struct, frozen=True):
    """Stands for a default that is not there."""


UNDEFINED = Undefined()


def is_pydantic(value: Any) -> bool:
    """Whether an object is one of pydantic's."""
    return type(value).__module__.partition(".")[0] == "pydantic"


def is_field(value: Any) -> bool:
    """Whether it is what pydantic's `Field(...)` returns."""
    return is_pydantic(value) and type(value).__name__ == "FieldInfo"


# -- Field ----------------------------------------------------------------------------------------


def parameter_field(field: Any, where: str) -> ParameterField:
    """What a `Field` says about a parameter. Raises LocalError, beginning with `where`, for what no call can honour."""
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
    """A `Field` as separate members of `Annotated`: its metadata, its discriminator, and a Meta with its
    descriptions."""
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


def of_one_field(field: Any, where: str) -> list[Any]:
    """`spread` for a Field inside of an annotation, where it names no parameter and has no default."""
    said = parameter_field(field, where)
    for option, given in (
        ("alias", said.name is not None),
        ("default", said.default is not UNDEFINED),
        ("default_factory", said.factory is not None),
    ):
        if given:
            raise LocalError(
                f"{where}: Field({option}=...) is for a parameter or a model's field, not inside of another type; "
                "leave it out, or write a pydantic model"
            )
    return spread(field, where)


# -- other metadata -------------------------------------------------------------------------------


def needs_pydantic(extra: Any) -> bool:
    """Whether only pydantic can honour this member of `Annotated`."""
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
    """`msgspec.Meta` arguments for one of pydantic's members of `Annotated` that need no pydantic."""
    for key in _KNOWN:
        if _given(extra, key):
            value = getattr(extra, key)
            yield key, getattr(value, "pattern", value) if key == "pattern" else value


def refuse_serializer(extra: Any, where: str) -> None:
    """Raises LocalError for what would change a result."""
    if is_pydantic(extra) and type(extra).__name__ in _SERIALIZERS:
        raise LocalError(
            f"{where}: {type(extra).__name__} is run by pydantic alone, in its models; convert the value in the function, "
            "or return a model"
        )


# -- pydantic's TypeAdapter -----------------------------------------------------------------------


def is_foreign(cls: Any) -> bool:
    """Whether a class is one that pydantic decodes: of pydantic itself, or made for it; but no model."""
    return isinstance(cls, type) and hasattr(cls, "__get_pydantic_core_schema__") and not is_model(cls)


def type_adapter(hint: Any, where: str) -> Adapter:
    """pydantic's adapter of an annotation. Raises LocalError, beginning with `where`, where pydantic has none."""
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
    """Whether an annotation says how its bytes are text."""
    return type(hint).__name__ == "EncodedBytes" or any(_encodes(arg) for arg in get_args(hint))


def _for_pydantic(hint: Any) -> Any:
    """The annotation with `msgspec.Meta` and descriptions in pydantic's words."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner, *extras = args
        return Annotated[(_for_pydantic(inner), *(_in_its_words(extra) for extra in extras))]
    if origin is None or origin is Literal or not args or isinstance(hint, TypeVar):
        return hint
    parts = tuple(arg if isinstance(arg, list) else _for_pydantic(arg) for arg in args)
    if parts == args and all(a is b for a, b in zip(parts, args, strict=True)):
        return hint
    return Union[parts] if origin in UNION else origin[parts]  # noqa: UP007


_DESCRIBED = (*_KNOWN, "title", "description", "examples")


def _in_its_words(extra: Any) -> Any:
    from pydantic import Field  # noqa: PLC0415 - see the rules above

    if isinstance(extra, Meta):
        said = {key: value for key in _DESCRIBED if (value := getattr(extra, key)) is not None}
        return Field(**said, json_schema_extra=extra.extra_json_schema)
    text = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
    return Field(description=text) if isinstance(text, str) else extra


@functools.lru_cache(256)
def written_by(cls: type) -> Any:
    """What makes JSON text of a value of a class that pydantic knows."""
    return _made(cls).dump_json
