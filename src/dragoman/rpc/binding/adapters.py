"""Types that msgspec does not decode by itself, and what decodes them.

Rules:

- An `Adapter` reads the JSON text of one value and describes it. For msgspec it is a class of its own (`marker`), found
  in `hooks` by its `adapter`.
- Paths and addresses are their text. Files are not opened, and names are not looked up.
- A ValueError or TypeError of an adapter is a fault of the value.
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
    """Decodes and describes one type. `schema(refs, result)`: `refs` is like "#/$defs/{name}", `result` says that it
    describes what goes out."""

    read: Callable[[bytes], Any]
    schema: Callable[[str, bool], Described]


class Adapted(ABC):
    """The class that stands for an adapter in types for msgspec, which asks whether a value is an instance of it."""

    adapter: Adapter

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return True


def marker(adapter: Adapter) -> Any:
    """A class that stands for this adapter in types for msgspec."""
    return type("Adapted", (Adapted,), {"adapter": adapter})


def adapter_of(cls: Any) -> Adapter | None:
    """The adapter of a marker, a path or an address; None for others."""
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
"""Classes of `ipaddress`, which is not imported, and their `format`."""


def is_text(cls: Any) -> bool:
    """Whether a class is a path or an address, which is its text."""
    if not isinstance(cls, type):
        return False
    pathlib = sys.modules.get("pathlib")  # start-up: its classes are known only where something has imported it
    return (
        (pathlib is not None and issubclass(cls, pathlib.PurePath))
        or cls is os.PathLike
        or (cls.__module__ == "ipaddress" and cls.__name__ in _ADDRESSES)
    )


def format_of(cls: Any) -> str:
    """The `format` of the text of a path or an address in a JSON Schema."""
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
