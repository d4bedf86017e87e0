"""A block of content of a type that this library does not know, kept as its JSON text. Pure.

`foreign_decoding` makes such blocks, `encoding` writes them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct, field, json

from ...jsonrpc.errors import LocalError


class _Typed(Struct):
    """The member of a block that is checked here."""

    type: str


class ForeignContent(Struct, frozen=True, rename="camel", tag_field="type", tag="x-dragoman/foreign"):
    """A block of a type that this library does not know, as the JSON text that came. It is sent as that text.

    Raises LocalError if `raw` is not the JSON text of a block of this type.
    """

    type: Annotated[str, Meta(pattern="(?!)")] = field(name="foreignType")
    """Its type, such as "hologram"."""
    # the pattern matches no text: a peer that sends our tag makes no such block; only `foreign_decoding` makes one
    raw: Raw
    """The whole block, `type` included."""

    def __post_init__(self) -> None:
        try:
            bytes(self.raw).decode()
            found = json.decode(self.raw, type=_Typed).type
        except (TypeError, ValueError, RecursionError) as error:
            raise LocalError(f"raw is the JSON text of a block of the type {self.type!r:.40}: {error}") from None
        if found != self.type:
            raise LocalError(f"raw is a block of the type {found!r:.40}, and not of {self.type!r:.40}")
