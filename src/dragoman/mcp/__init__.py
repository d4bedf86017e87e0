"""MCP, the Model Context Protocol: servers and clients of every revision.

    from dragoman.mcp import Client, Context, Server

Names are imported when they are used: a client pays for no server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .answering import Declined
    from .ask import QuestionFailed
    from .client import Client
    from .content import Audio, Image, ResourceNotFound, ToolError
    from .context import Context
    from .forms import CannotAsk
    from .http_options import HttpOptions
    from .listening import Changed, Subscription
    from .params import (
        CallToolResult,
        CompleteResult,
        Completion,
        CreateMessageRequestParams,
        CreateMessageResult,
        DiscoverResult,
        ElicitRequestParams,
        ElicitResult,
        GetPromptResult,
        LoggingMessageNotificationParams,
        ProgressNotificationParams,
        ReadResourceResult,
    )
    from .questions import Elicit, Elicited, ElicitUrl, Roots, Sample
    from .revisions import NEWEST, REVISIONS, Revision
    from .schema import Header
    from .server import Server
    from .types import (
        Annotations,
        AudioContent,
        ClientCapabilities,
        EmbeddedResource,
        Icon,
        ImageContent,
        Implementation,
        Prompt,
        PromptMessage,
        Resource,
        ResourceContents,
        ResourceLink,
        ResourceTemplate,
        Root,
        SamplingMessage,
        ServerCapabilities,
        TextContent,
        Tool,
        ToolAnnotations,
    )

_WHERE = {
    "Annotations": "types",
    "Audio": "content",
    "AudioContent": "types",
    "CallToolResult": "params",
    "CannotAsk": "forms",
    "Changed": "listening",
    "Client": "client",
    "ClientCapabilities": "types",
    "CompleteResult": "params",
    "Completion": "params",
    "Context": "context",
    "CreateMessageRequestParams": "params",
    "CreateMessageResult": "params",
    "Declined": "answering",
    "DiscoverResult": "params",
    "Elicit": "questions",
    "ElicitRequestParams": "params",
    "ElicitResult": "params",
    "ElicitUrl": "questions",
    "Elicited": "questions",
    "EmbeddedResource": "types",
    "GetPromptResult": "params",
    "Header": "schema",
    "HttpOptions": "http_options",
    "Icon": "types",
    "Image": "content",
    "ImageContent": "types",
    "Implementation": "types",
    "LoggingMessageNotificationParams": "params",
    "NEWEST": "revisions",
    "ProgressNotificationParams": "params",
    "Prompt": "types",
    "PromptMessage": "types",
    "QuestionFailed": "ask",
    "REVISIONS": "revisions",
    "ReadResourceResult": "params",
    "Resource": "types",
    "ResourceContents": "types",
    "ResourceLink": "types",
    "ResourceNotFound": "content",
    "ResourceTemplate": "types",
    "Revision": "revisions",
    "Root": "types",
    "Roots": "questions",
    "Sample": "questions",
    "SamplingMessage": "types",
    "Server": "server",
    "ServerCapabilities": "types",
    "Subscription": "listening",
    "TextContent": "types",
    "Tool": "types",
    "ToolAnnotations": "types",
    "ToolError": "content",
}

__all__ = [
    "NEWEST",
    "REVISIONS",
    "Annotations",
    "Audio",
    "AudioContent",
    "CallToolResult",
    "CannotAsk",
    "Changed",
    "Client",
    "ClientCapabilities",
    "CompleteResult",
    "Completion",
    "Context",
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "Declined",
    "DiscoverResult",
    "Elicit",
    "ElicitRequestParams",
    "ElicitResult",
    "ElicitUrl",
    "Elicited",
    "EmbeddedResource",
    "GetPromptResult",
    "Header",
    "HttpOptions",
    "Icon",
    "Image",
    "ImageContent",
    "Implementation",
    "LoggingMessageNotificationParams",
    "ProgressNotificationParams",
    "Prompt",
    "PromptMessage",
    "QuestionFailed",
    "ReadResourceResult",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceNotFound",
    "ResourceTemplate",
    "Revision",
    "Root",
    "Roots",
    "Sample",
    "SamplingMessage",
    "Server",
    "ServerCapabilities",
    "Subscription",
    "TextContent",
    "Tool",
    "ToolAnnotations",
    "ToolError",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_WHERE[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
