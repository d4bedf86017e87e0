"""msgspec's hooks for types it does not know: they decode, encode and describe pydantic models and types with an
adapter.

Rules: pydantic is never imported here. A model decodes, encodes and describes itself, in pydantic's JSON mode; its
fields have their aliases as names in JSON, received and sent. All other types that msgspec does not know cannot be
put into JSON.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CoroutineType
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Raw

from .adapters import adapter_of, is_text
from .by_pydantic import is_foreign, written_by
from .rewriting import renamed, typed
from .tree import UNION, Node, is_model


def decode_hook(cls: Any, value: Any) -> Any:
    """msgspec's `dec_hook`: decode a model by pydantic, in its JSON mode, and other types by their adapters. Raises
    NotImplementedError for a class that neither decodes."""
    return reader(cls)(msgspec.json.encode(value))


def reader(cls: Any) -> Callable[[bytes], Any]:
    """Return the function that decodes JSON text to a class that msgspec does not know. Raises NotImplementedError if
    there is none."""
    if is_model(cls):
        read: Callable[[bytes], Any] = cls.__pydantic_validator__.validate_json
        return read
    if (adapter := adapter_of(cls)) is None:
        raise NotImplementedError
    return adapter.read


def encode_hook(value: Any) -> Any:
    """msgspec's `enc_hook`: encode a model by pydantic, under its aliases, and paths and addresses as their text.
    Raises TypeError for a value that has no JSON."""
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    serializer = getattr(type(value), "__pydantic_serializer__", None)
    if serializer is not None:
        return Raw(serializer.to_json(value, by_alias=True))
    if is_foreign(type(value)):
        kind: Any = type(value)
        return Raw(written_by(kind)(value))
    if is_text(type(value)):
        return str(value)
    if isinstance(value, Iterator):  # of a function that is declared to return an Iterable
        return list(value)
    if isinstance(value, CoroutineType):
        value.close()
        raise TypeError("the method returned a coroutine that was not awaited: make it `async def`")
    raise TypeError(
        f"{type(value).__qualname__} cannot be put into JSON: give a dict, a list, text, a number, a bool or None, a dataclass, "
        "a TypedDict, a msgspec Struct or a pydantic model"
    )


_PLAIN: dict[Any, Callable[[Any], Any]] = {kind: msgspec.json.Decoder(kind).decode for kind in (str, int, float, bool)}


def decoder(tree: Node) -> Callable[[Any], Any]:
    """Return the function that decodes JSON text to a value of a compiled annotation; it raises what msgspec raises."""
    if tree.type in (str, int, float, bool):
        return _PLAIN[tree.type]
    return decoder_of(tree.type, tree.check if tree.twinned else None)


def decoder_of(type: Any, check: Any = None) -> Callable[[Any], Any]:
    """Return the function that decodes JSON text to a value of a type. `check`: another type that the text is decoded
    to first, so that what does not fit it is refused."""
    decode = msgspec.json.Decoder(type, dec_hook=decode_hook).decode
    if check is None:
        return decode
    first = msgspec.json.Decoder(check, dec_hook=decode_hook).decode

    def checked(text: Any) -> Any:
        first(text)
        return decode(text)

    return checked


# -- JSON Schema ----------------------------------------------------------------------------------

_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schemas(
    hints: Iterable[Any], *, refs: str, result: bool = False, inline: bool = False
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the JSON Schemas (2020-12) of annotations, and the components to which they refer, by name: one for each
    class with fields and each Enum. `refs`: the form of references, like "#/$defs/{name}".

    `result`: describe what is sent, where pydantic's schemas differ from those of what is received. `inline`: write
    pydantic's models out where they are used, for readers that follow no references.
    """
    hints = list(hints)
    if all(isinstance(hint, type) and hint in _TYPES for hint in hints):
        return [{"type": _TYPES[hint]} for hint in hints], {}
    components = _Components(refs, result, inline)
    found = components.generate(hints)
    if clashing := {name for name, part in components.own.items() if components.models.get(name, part) != part}:
        components = _Components(refs, result, inline, frozenset(clashing))
        found = components.generate(hints)
    return found, components.own | components.models


class _Components:
    """Collects the components of some schemas: `own`, those of msgspec, and `models`, those of pydantic and of
    adapters. If two classes have the same name, the second is named with its module. `clashing`: names that no model
    may have, because another component in `own` has them."""

    def __init__(self, refs: str, result: bool, inline: bool, clashing: frozenset[str] = frozenset()) -> None:
        self.own: dict[str, Any] = {}
        self.models: dict[str, Any] = {}
        self._refs, self._result, self._inline, self._clashing = refs, result, inline, clashing
        self._described: dict[str, Any] = {}
        """The models' schemas as pydantic described them, before references in them were renamed."""

    def generate(self, hints: list[Any]) -> list[dict[str, Any]]:
        """Return the schemas of annotations; the components to which they refer are added to this object's."""
        try:
            found, own = msgspec.json.schema_components(hints, schema_hook=self._hook, ref_template=self._refs)
        except (TypeError, NotImplementedError):
            if len(hints) > 1:
                return [schema for hint in hints for schema in self.generate([hint])]
            # msgspec encodes it but could not decode it: describe the members of a union one by one; else allow
            # anything
            return [{"anyOf": self.generate(list(get_args(hints[0])))} if get_origin(hints[0]) in UNION else {}]
        self.own |= {name: typed(part) for name, part in own.items()}
        return [typed(schema) for schema in found]

    def _hook(self, cls: Any) -> dict[str, Any]:
        adapter = adapter_of(cls)
        if adapter is not None:
            schema, parts = adapter.schema(self._refs, self._result)
        elif is_model(cls):
            schema, parts = _model_schema(cls, self._refs, self._result, self._inline)
        else:
            raise NotImplementedError
        parts = {name: typed(part) for name, part in parts.items()}
        names = self._named(parts, "pydantic" if adapter is not None else cls.__module__)
        for name, part in parts.items():
            self._described[names.get(name, name)] = part
            self.models[names.get(name, name)] = renamed(part, names, self._refs)
        found: dict[str, Any] = renamed(schema, names, self._refs)
        return found

    def _named(self, parts: Mapping[str, Any], module: str) -> dict[str, str]:
        """Return the new names of the components whose own names others have already, by their own names."""
        names: dict[str, str] = {}

        def rename_if_taken(name: str, known: Mapping[str, Any], part: Any) -> bool:
            """Give a component another name if what it is called so far is taken; return whether it was."""
            now = names.get(name, name)
            if now not in self._clashing and known.get(now, part) == part:
                return False
            taken = (f"{module}.{name}-{number}" if number > 1 else f"{module}.{name}" for number in itertools.count(1))
            names[name] = next(one for one in taken if known.get(one, part) == part and one not in self._clashing)
            return True

        for name, part in parts.items():
            rename_if_taken(name, self._described, part)
        for _ in parts:  # a component that refers to a renamed one may have to be renamed too
            for name, part in parts.items():
                rename_if_taken(name, self.models, renamed(part, names, self._refs))
        return names


def _model_schema(cls: Any, refs: str, result: bool, inline: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    mode = "serialization" if result else "validation"
    schema: dict[str, Any] = cls.model_json_schema(ref_template=refs.replace("{name}", "{model}"), mode=mode)
    parts = schema.pop("$defs", {})
    if inline or schema.keys() == {"$ref"}:  # a model that refers to itself
        return schema, parts
    name = "".join(char if char.isalnum() or char in "._-" else "_" for char in cls.__name__)
    if name in parts:
        name = f"{cls.__module__}.{name}"
    return {"$ref": refs.replace("{name}", name)}, parts | {name: schema}
