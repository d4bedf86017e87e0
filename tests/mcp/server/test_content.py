"""Plain values as content blocks: server/tools, Tool Result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp import (
    Annotations,
    Audio,
    AudioContent,
    CallToolResult,
    Completion,
    EmbeddedResource,
    File,
    GetPromptResult,
    Image,
    ImageContent,
    PromptMessage,
    ReadResourceResult,
    ResourceContents,
    ResourceLink,
    Server,
    TextContent,
)
from dragoman.mcp.protocol.revisions import R2024_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.server.content import blocks, is_text, type_by_bytes, type_by_name

from ..calling import calling

PNG = b"\x89PNG\r\n\x1a\nrest"
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "
TEXT = ResourceContents(uri="x://y", text="a")


class Thing(msgspec.Struct):
    a: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        ("a", [TextContent("a")]),
        ("", [TextContent("")]),
        (5, [TextContent("5")]),
        (True, [TextContent("true")]),
        ({"a": [1, None]}, [TextContent('{"a":[1,null]}')]),
        (Thing(1), [TextContent('{"a":1}')]),
        ([1, 2], [TextContent("[1,2]")]),
        ([], []),
        ([{"a": 1}], [TextContent('[{"a":1}]')]),
        (["a", "b"], [TextContent("a"), TextContent("b")]),
        (("a", Image(PNG)), [TextContent("a"), ImageContent("iVBORw0KGgpyZXN0", "image/png")]),
        (["a", TEXT, {"b": 1}], [TextContent("a"), EmbeddedResource(TEXT), TextContent('{"b":1}')]),
        (Image(b"x", "image/x"), [ImageContent("eA==", "image/x")]),
        (Image(bytearray(PNG)), [ImageContent("iVBORw0KGgpyZXN0", "image/png")]),
        (Audio(WAV), [AudioContent("UklGRgAAAABXQVZFZm10IA==", "audio/wav")]),
        (PNG, [ImageContent("iVBORw0KGgpyZXN0", "image/png")]),
        (WAV, [AudioContent("UklGRgAAAABXQVZFZm10IA==", "audio/wav")]),
        (
            b"\x00",
            [EmbeddedResource(ResourceContents(uri="result:bytes", mime_type="application/octet-stream", blob="AA=="))],
        ),
        (TEXT, [EmbeddedResource(TEXT)]),
        *(
            (block, [block])
            for block in (
                TextContent("a"),
                ImageContent("AA==", "image/png"),
                AudioContent("AA==", "audio/wav"),
                EmbeddedResource(TEXT),
                ResourceLink(uri="x://y", name="y"),
            )
        ),
    ],
)
def test_blocks(value: Any, expected: list[Any]) -> None:
    assert blocks(value) == expected


def test_media_with_notes() -> None:
    notes = Annotations(priority=1)
    (block,) = blocks(Image(PNG, annotations=notes, meta={"example.com/a": 1}))
    assert isinstance(block, ImageContent)
    assert (block.annotations, block.meta) == (notes, {"example.com/a": 1})


def test_files(tmp_path: Path) -> None:
    def made(name: str, data: bytes) -> File:
        (tmp_path / name).write_bytes(data)
        return File(tmp_path / name)

    (image,) = blocks(made("a.png", b"x"))
    assert image == ImageContent("eA==", "image/png")
    (same,) = blocks(Image(str(tmp_path / "a.png")))
    assert same == image
    (sound,) = blocks(made("a.wav", b"x"))
    assert isinstance(sound, AudioContent)
    (text,) = blocks(made("a b.md", b"# A"))
    assert isinstance(text, EmbeddedResource)
    assert text.resource == ResourceContents(uri=(tmp_path / "a b.md").as_uri(), mime_type="text/markdown", text="# A")
    (json,) = blocks(made("a.json", b"{}"))
    assert isinstance(json, EmbeddedResource)
    assert (json.resource.text, json.resource.mime_type) == ("{}", "application/json")
    (plain,) = blocks(made("LICENSE", b"free"))
    assert isinstance(plain, EmbeddedResource)
    assert (plain.resource.text, plain.resource.mime_type) == ("free", "text/plain")
    (binary,) = blocks(made("thing", b"\xff"))
    assert isinstance(binary, EmbeddedResource)
    assert (binary.resource.blob, binary.resource.mime_type) == ("/w==", "application/octet-stream")
    (broken,) = blocks(made("b.txt", b"\xff"))
    assert isinstance(broken, EmbeddedResource)
    assert (broken.resource.blob, broken.resource.mime_type) == ("/w==", "text/plain")
    with pytest.raises(FileNotFoundError):
        blocks(File(tmp_path / "none.txt"))
    with pytest.raises(LocalError, match="is a folder: give a file"):
        blocks(File(tmp_path))


def test_media_types() -> None:
    assert type_by_name("a.jpg") == "image/jpeg"
    assert type_by_name("a.tar.gz") == "application/gzip"
    assert type_by_name("a") is None
    assert type_by_bytes(b"RIFF    WEBP") == "image/webp"
    assert type_by_bytes(b"") is None
    assert is_text("Application/JSON; charset=utf-8")
    assert is_text("image/svg+xml")
    assert not is_text("image/png")


@pytest.mark.parametrize("media", [Image(b"what"), Audio(b"what"), Image(WAV), Audio(PNG)])
def test_media_of_an_unknown_type(media: Image | Audio) -> None:
    with pytest.raises(LocalError, match="give it"):
        blocks(media)


@pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
async def test_on_the_wire(revision: Revision) -> None:
    """Each revision gets the blocks it has, and text for the others."""
    server = Server("tests")

    @server.tool
    def everything() -> Any:
        return ["a", Image(PNG), Audio(WAV), TEXT, ResourceLink(uri="x://y", name="y", title="Y")]

    async with calling(server, revision) as calls:
        kinds = [block["type"] for block in (await calls.call("everything"))["content"]]
    audio = "text" if revision is R2024_11 else "audio"
    link = "resource_link" if revision.structured else "text"
    assert kinds == ["text", "image", audio, "resource", link]


async def test_what_cannot_be_said(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("tests")
    endless: list[Any] = []
    endless.append(endless)
    values: dict[str, Any] = {"object": object(), "surrogate": "\ud800", "endless": endless}

    @server.tool
    def value(key: str) -> Any:
        return values[key]

    async with calling(server, R2026_07) as calls:
        for key in values:
            assert "reference" in await calls.refusal("value", {"key": key})


WRONG: list[Any] = [
    TextContent(5),  # type: ignore[arg-type]
    ["text", EmbeddedResource("text")],  # type: ignore[arg-type]
    ImageContent("eA==", None),  # type: ignore[arg-type]
    ResourceLink(uri=Path("/a"), name=None),  # type: ignore[arg-type]
    ResourceContents(uri="x://y"),
    EmbeddedResource(ResourceContents(uri="x://y")),
    CallToolResult(content="text"),  # type: ignore[arg-type]
    CallToolResult(content=["text"]),  # type: ignore[list-item]
    CallToolResult(content=[TextContent(None)]),  # type: ignore[arg-type]
    CallToolResult(content=[EmbeddedResource(ResourceContents(uri="x://y"))]),
]
WRONG_CONTENTS: list[Any] = [
    ResourceContents(uri="x://y"),
    ResourceContents(uri=5, text="a"),  # type: ignore[arg-type]
    EmbeddedResource("text"),  # type: ignore[arg-type]
    ReadResourceResult(contents="text"),  # type: ignore[arg-type]
    ReadResourceResult(contents=[TEXT], ttl_ms=-1),
    ReadResourceResult(contents=[TEXT, ResourceContents(uri="x://y")]),
]
WRONG_MESSAGES: list[Any] = [
    PromptMessage("user", "text"),  # type: ignore[arg-type]
    PromptMessage("system", TextContent("a")),  # type: ignore[arg-type]
    ["text", TextContent(5)],  # type: ignore[arg-type]
    PromptMessage("user", EmbeddedResource(ResourceContents(uri="x://y"))),
    GetPromptResult(messages=["text"]),  # type: ignore[list-item]
    GetPromptResult(messages=[PromptMessage("user", EmbeddedResource(ResourceContents(uri="x://y")))]),
]


@pytest.mark.parametrize("revision", [R2024_11, R2026_07], ids=lambda one: one.date)
@pytest.mark.parametrize("value", WRONG, ids=repr)
async def test_content_that_no_client_could_read_is_a_failure_of_the_tool(value: Any, revision: Revision) -> None:
    app = Server("wrong")
    app.add_tool(lambda: value, name="tool")
    async with calling(app, revision) as calls:
        assert "reference" in await calls.refusal("tool")


@pytest.mark.parametrize("revision", [R2024_11, R2026_07], ids=lambda one: one.date)
@pytest.mark.parametrize(
    ("kind", "value"),
    [("resources", one) for one in WRONG_CONTENTS]
    + [("prompts", one) for one in WRONG_MESSAGES]
    + [("completion", Completion([5]))],  # type: ignore[list-item]
    ids=repr,
)
async def test_content_that_no_client_could_read_is_an_internal_error(
    kind: str, value: Any, revision: Revision
) -> None:
    app = Server("wrong")
    app.add_resource(lambda: value, "x://y")
    app.add_prompt(lambda who="": value, name="poem")
    app.completion("poem", "who")(lambda typed: value)
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "resources": ("resources/read", {"uri": "x://y"}),
        "prompts": ("prompts/get", {"name": "poem"}),
        "completion": (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "poem"}, "argument": {"name": "who", "value": ""}},
        ),
    }
    method, params = asked[kind]
    async with calling(app, revision) as calls:
        assert (await calls.error(method, **params))["code"] == -32603
