"""Adapters: decoders and JSON Schemas for types that msgspec does not decode by itself.

Rules:

- An `Adapter` decodes the JSON text of one value and describes its type. In types for msgspec a class stands for it
  (`marker`); msgspec's hooks (`hooks`) find the adapter in the class attribute `adapter`.
- The JSON of a path or an address is its text. Files are not opened, and host names are not resolved.
- A ValueError or TypeError that an adapter raises is reported as a fault of the value.
"""

from __future__ import annotations

import functools
import os
import sys
from abc import ABC
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

Described: TypeAlias = tuple[dict[str, Any], dict[str, Any]]
"""A JSON Schema, and the components it refers to."""


class Adapter(Struct, frozen=True, eq=False):
    """Decodes and describes one type. `read(text)` decodes JSON text. `schema(refs, result)` returns the JSON Schema:
    `refs` is like "#/$defs/{name}"; `result` is True for the schema of what is sent, False for what is received."""

    read: Callable[[bytes], Any]
    schema: Callable[[str, bool], Described]


class Adapted(ABC):
    """The base of the classes that stand for adapters in types for msgspec. msgspec asks whether a decoded value is an
    instance of them; the answer is always yes."""

    adapter: Adapter

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return True


def marker(adapter: Adapter) -> Any:
    """Return a new class that stands for this adapter in types for msgspec."""
    return type("Adapted", (Adapted,), {"adapter": adapter})


def adapter_of(cls: Any) -> Adapter | None:
    """Return the adapter of a marker class, a path class or an address class; None for other classes."""
    found = getattr(cls, "adapter", None)
    if isinstance(found, Adapter):
        return found
    return _text(cls) if is_text(cls) else None


_ADDRESSES = {
    "IPv4Address": "ipv4",
    "IPv6Address": "ipv6",
    "IPv4Network": "ipv4network",
    "IPv6Network": "ipv6network",
    "IPv4Interface": "ipv4interface",
    "IPv6Interface": "ipv6interface",
}
"""The names of the classes of `ipaddress` (which is not imported here), and their `format` in a JSON Schema."""


def is_text(cls: Any) -> bool:
    """Return whether a class is one of paths or addresses, whose JSON is their text."""
    if not isinstance(cls, type):
        return False
    pathlib = sys.modules.get("pathlib")  # start-up: its classes are known only where something has imported it
    return (
        (pathlib is not None and issubclass(cls, pathlib.PurePath))
        or cls is os.PathLike
        or (cls.__module__ == "ipaddress" and cls.__name__ in _ADDRESSES)
    )


def format_of(cls: Any) -> str:
    """Return the `format` that a JSON Schema names for the text of this path class or address class."""
    return _ADDRESSES.get(cls.__name__, "path")


@functools.lru_cache(256)
def _text(cls: Any) -> Adapter:
    from pathlib import Path  # noqa: PLC0415  (start-up)

    make = Path if cls is os.PathLike else cls
    text = msgspec.json.Decoder(str)

    def read(raw: bytes) -> Any:
        return make(text.decode(raw))

    form = format_of(cls)
    return Adapter(read, lambda refs, result: ({"type": "string", "format": form}, {}))
