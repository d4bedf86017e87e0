"""Results of every kind: the conformance suite's tools, resources and prompts that only answer."""

from __future__ import annotations

import base64
import json

from dragoman.mcp import Audio, EmbeddedResource, Image, PromptMessage, ResourceContents, Server, TextContent

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\2\0\0\0\0\0"


def contents(app: Server) -> None:
    """Register them."""
    tools(app)
    resources(app)
    prompts(app)


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    """A text as an embedded resource."""
    return EmbeddedResource(ResourceContents(uri=uri, text=text, mime_type=mime_type))


def tools(app: Server) -> None:
    """One a kind of content."""

    @app.tool(inline=True)
    def test_simple_text() -> str:
        """Tests simple text content response."""
        return "This is a simple text response for testing."

    @app.tool(inline=True)
    def test_image_content() -> Image:
        """Tests image content response."""
        return Image(PNG, "image/png")

    @app.tool(inline=True)
    def test_audio_content() -> Audio:
        """Tests audio content response."""
        return Audio(WAV, "audio/wav")

    @app.tool(inline=True)
    def test_embedded_resource() -> EmbeddedResource:
        """Tests embedded resource content response."""
        return embedded("test://embedded-resource", "This is an embedded resource content.")

    @app.tool(inline=True)
    def test_multiple_content_types() -> list[str | Image | EmbeddedResource]:
        """Tests a response with text, an image and a resource."""
        resource = json.dumps({"test": "data", "value": 123})
        return [
            "Multiple content types test:",
            Image(PNG, "image/png"),
            embedded("test://mixed-content-resource", resource, "application/json"),
        ]


def resources(app: Server) -> None:
    """Text, binary, a template, and one to watch."""

    @app.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        """A static text resource for testing."""
        return "This is the content of the static text resource."

    @app.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """A static binary resource for testing."""
        return PNG

    @app.resource("test://template/{id}/data", mime_type="application/json")
    def template_data(id: str) -> str:
        """A resource template for testing."""
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    @app.resource("test://watched-resource", mime_type="text/plain")
    def watched_resource() -> str:
        """A resource that clients subscribe to."""
        return "Watched resource content"


def prompts(app: Server) -> None:
    """Text, arguments, a resource, an image."""

    @app.prompt
    def test_simple_prompt() -> str:
        """A simple prompt without arguments."""
        return "This is a simple prompt for testing."

    @app.prompt
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """A prompt with required arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @app.completion("test_prompt_with_arguments", "arg1")
    def complete_arg1(value: str) -> list[str]:
        return [word for word in ("paris", "park", "party") if word.startswith(value)]

    @app.prompt
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:
        """A prompt that embeds a resource."""
        return [
            PromptMessage("user", embedded(resourceUri, "Embedded resource content for testing.")),
            PromptMessage("user", TextContent("Please process the embedded resource above.")),
        ]

    @app.prompt
    def test_prompt_with_image() -> list[PromptMessage | Image | str]:
        """A prompt with an image."""
        return [Image(PNG, "image/png"), "Please analyze the image above."]
