"""Turns the value that a function returned into content: of a tool's result, of a resource, of a prompt.

Rules:

- Text is a text block, an `Image` or `Audio` is its block, a `File` is an image, audio or an embedded resource,
  bytes are an embedded resource, content blocks stay as they are, lists of these are several blocks, None is no
  block. Any other value is its JSON text.
- A path is sent as text. The content of a file is sent only for `File(path)`, `Image(path)` and `Audio(path)`.
- Media types are given, or derived from a file's name or the first bytes; a type that cannot be derived is refused.
- Files are read when the result is made: in the function's thread, or on the loop for `async def`.
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ...jsonrpc.errors import LocalError
from ...rpc.binding.results import write
from ..protocol.errors import ResourceNotFound
from ..protocol.foreign import ForeignContent
from ..protocol.params import CallToolResult, GetPromptResult, ReadResourceResult
from ..protocol.results import S, read_back
from ..protocol.types import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    Free,
    ImageContent,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
)

Block: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | ForeignContent

BINARY: Final = "application/octet-stream"
RESULT_URI: Final = "result:bytes"
"""The URI of bytes that a tool returned, which have no URI of their own."""


class _Media(Struct, frozen=True):
    """An image or audio to send. `data`: bytes, or the path of a file; `annotations` and `meta`: those of the block."""

    data: bytes | bytearray | memoryview | str | os.PathLike[str]
    mime_type: str | None = None
    """The media type; None: found by the name of the file or the first bytes."""
    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def read(self) -> bytes:
        """Return the bytes. Raises OSError for a file that cannot be read."""
        return _bytes_of(self.data) if isinstance(self.data, str | os.PathLike) else bytes(self.data)


class Image(_Media, frozen=True):
    """An image: bytes, or the path of a file. If the media type is not given, the name or the bytes determine it."""


class Audio(_Media, frozen=True):
    """Audio: bytes, or the path of a file. If the media type is not given, the name or the bytes determine it."""


class File(Struct, frozen=True):
    """A file to send: as an image or audio, or otherwise as an embedded resource, text or blob by its media type.

    If the media type is not given, the name determines it. `uri`: the resource's URI for the client; by default the
    file's own (`file:///...`, with its folders). A folder fails with LocalError when the result is made.
    """

    path: str | os.PathLike[str]
    """The path, absolute or relative to the working directory."""
    mime_type: str | None = None
    """The media type; None: found by the file's name."""
    uri: str | None = None


BLOCKS: Final = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource, ForeignContent)
CONTENT: Final[tuple[type, ...]] = (
    *BLOCKS,
    Image,
    Audio,
    File,
    ResourceContents,
    CallToolResult,
    ReadResourceResult,
    GetPromptResult,
    PromptMessage,
)
"""Types that are content, not data: a function that returns one of them has no output schema."""
_MIXED: Final = (*BLOCKS, Image, Audio, File, ResourceContents, bytes, bytearray)


# -- media types ----------------------------------------------------------------------------------

_BEGINNINGS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)


def type_by_bytes(data: bytes) -> str | None:
    """Return the media type of an image or audio, by its first bytes; None for other bytes."""
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12])
    return next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), None)


def _bytes_of(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _uri_of(path: str | os.PathLike[str]) -> str:
    from pathlib import Path  # noqa: PLC0415  (start-up)

    return Path(path).absolute().as_uri()


def type_by_name(name: str | os.PathLike[str]) -> str | None:
    """Return the media type of a file, by its name; None for an unknown one."""
    from mimetypes import guess_type  # noqa: PLC0415  (start-up: files alone need it)

    kind, encoding = guess_type(str(name), strict=False)
    return kind if encoding is None else "application/" + encoding


def is_text(kind: str) -> bool:
    """Return whether content of a media type is text."""
    kind = kind.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.endswith(("+json", "+xml")) or kind in _TEXTS


_TEXTS = frozenset(
    f"application/{name}"
    for name in ("json", "xml", "javascript", "toml", "yaml", "x-yaml", "x-sh", "sql", "x-ndjson", "graphql")
)


def _media_type(media: _Media, data: bytes, what: str) -> str:
    named = type_by_name(media.data) if isinstance(media.data, str | os.PathLike) else None
    kind = media.mime_type or named or type_by_bytes(data)
    if kind is None or (media.mime_type is None and not kind.startswith(what)):
        name = "Image" if what == "image/" else "Audio"
        raise LocalError(f"{name}: the media type is not known; give it: {name}(data, {what + '...'!r})")
    return kind


def base64(data: bytes | bytearray | memoryview) -> str:
    """Return bytes as base64."""
    return b2a_base64(data, newline=False).decode()


def check_readable(value: S) -> S:
    """Return a value of the protocol's types that a function made. Raises LocalError for one that no client could
    decode."""
    read_back(value)
    for held in _contents_in(value):
        if held.text is UNSET and held.blob is UNSET:
            raise LocalError(f"ResourceContents of {held.uri}: they have a text or a blob")
    return value


def _contents_in(value: Any) -> Iterator[ResourceContents]:
    """Yield the resource contents in a value of the protocol's types."""
    if isinstance(value, ResourceContents):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _contents_in(one)
    else:
        for name in ("resource", "content", "contents", "messages"):
            yield from _contents_in(getattr(value, name, ()))


# -- of tools -------------------------------------------------------------------------------------


def blocks(value: Any) -> list[Block]:
    """Return the content blocks of any value. Raises LocalError for what cannot be sent, OSError for a file that cannot
    be read."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        if any(isinstance(one, _MIXED) for one in value) or all(isinstance(one, str) for one in value):
            return [block for one in value for block in blocks(one)]
        return [TextContent(text(value))]
    return [] if value is None else [_block(value)]


def _block(value: Any) -> Block:
    if isinstance(value, str):
        return TextContent(value)
    if isinstance(value, BLOCKS):
        return check_readable(value)
    if isinstance(value, Image | Audio):
        return _media_block(value)
    if isinstance(value, ResourceContents):
        return check_readable(EmbeddedResource(value))
    if isinstance(value, File):
        return _file_block(value)
    if isinstance(value, os.PathLike):
        return TextContent(os.fspath(value))
    if isinstance(value, bytes | bytearray):
        kind = type_by_bytes(bytes(value[:16]))
        if kind is not None:
            return _media_block(Image(value, kind) if kind.startswith("image/") else Audio(value, kind))
        return EmbeddedResource(ResourceContents(uri=RESULT_URI, mime_type=BINARY, blob=base64(value)))
    return TextContent(text(value))


def text(value: Any) -> str:
    """Return a value as text for people and models: itself, or its JSON."""
    return value if isinstance(value, str) else write(value).decode()


def _media_block(media: Image | Audio) -> ImageContent | AudioContent:
    data = media.read()
    kind = _media_type(media, data, "image/" if isinstance(media, Image) else "audio/")
    make = ImageContent if isinstance(media, Image) else AudioContent
    notes = UNSET if media.annotations is None else media.annotations
    return make(base64(data), kind, notes, UNSET if media.meta is None else dict(media.meta))


def _file_block(file: File) -> Block:
    kind = file.mime_type or type_by_name(file.path)
    if kind is not None and kind.startswith("image/") and not is_text(kind):
        return _media_block(Image(file.path, kind))
    if kind is not None and kind.startswith("audio/"):
        return _media_block(Audio(file.path, kind))
    return EmbeddedResource(_read(file, file.uri or _uri_of(file.path), kind))


def _read(file: File, uri: str, kind: str | None) -> ResourceContents:
    """Return the content of a file: as text if its media type is one of text, or is unknown and the bytes are UTF-8;
    otherwise as a blob."""
    try:
        data = _bytes_of(file.path)
    except OSError:
        if not os.path.isdir(file.path):
            raise
        raise LocalError(f"File({str(file.path)!r}) is a folder: give a file") from None
    if kind is None or is_text(kind):
        try:
            return ResourceContents(uri=uri, mime_type=kind or "text/plain", text=data.decode())
        except UnicodeDecodeError:
            pass
    return ResourceContents(uri=uri, mime_type=kind or BINARY, blob=base64(data))


# -- of resources ---------------------------------------------------------------------------------


def contents(value: Any, uri: str, mime_type: str | None, meta: Free | UnsetType = UNSET) -> list[ResourceContents]:
    """Return the contents of a resource: text, bytes, a file, JSON, or several of them. `meta`: the `_meta` of those
    that the function did not return as `ResourceContents`.

    Raises ResourceNotFound for None and for a file that does not exist: "Servers MUST NOT return an empty `contents`
    array for a non-existent resource" (server/resources).
    """
    if isinstance(value, list | tuple) and any(isinstance(one, _MIXED) for one in value):
        return [part for one in value for part in contents(one, uri, mime_type, meta)]
    made = _contents_of(value, uri, mime_type)
    if meta is not UNSET and made.meta is UNSET and not isinstance(value, ResourceContents | EmbeddedResource):
        made = msgspec.structs.replace(made, meta=meta)
    return [made]


def _contents_of(value: Any, uri: str, mime_type: str | None) -> ResourceContents:
    if isinstance(value, str):
        return ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=value)
    if isinstance(value, ResourceContents):
        return check_readable(value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        kind = mime_type or type_by_bytes(data) or BINARY
        return ResourceContents(uri=uri, mime_type=kind, blob=base64(data))
    if isinstance(value, EmbeddedResource):
        return check_readable(value).resource
    if isinstance(value, ForeignContent):
        raise LocalError(f"{uri}: a resource has text or bytes, and no block of the type {value.type!r:.40}")
    if isinstance(value, TextContent):
        return ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=value.text)
    if isinstance(value, Image | Audio):
        shown = _media_block(value)
        return ResourceContents(uri=uri, mime_type=shown.mime_type, blob=shown.data)
    if isinstance(value, ImageContent | AudioContent):
        return ResourceContents(uri=uri, mime_type=value.mime_type, blob=value.data)
    if isinstance(value, File):
        try:
            return _read(value, value.uri or uri, value.mime_type or mime_type or type_by_name(value.path))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ResourceNotFound from error
    if isinstance(value, os.PathLike):
        return ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=os.fspath(value))
    if value is None:
        raise ResourceNotFound
    return ResourceContents(uri=uri, mime_type=mime_type or "application/json", text=write(value).decode())


# -- of prompts -----------------------------------------------------------------------------------


def messages(value: Any) -> list[PromptMessage]:
    """Return the messages of a prompt: text and content are messages of the user; a `PromptMessage`, or a dict with
    `role` and `content`, states its role; a list is several messages. Raises LocalError for an unknown role."""
    if isinstance(value, PromptMessage):
        return [check_readable(value)]
    if isinstance(value, dict) and value.keys() == {"role", "content"}:
        if value["role"] not in ("user", "assistant"):
            raise LocalError(f"a prompt's message is the user's or the assistant's, not {value['role']!r}")
        content = value["content"]
        if isinstance(content, dict):
            content = msgspec.convert(content, Block)
        return [PromptMessage(value["role"], block) for block in blocks(content)]
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [message for one in value for message in messages(one)]
    return [PromptMessage("user", block) for block in blocks(value)]
