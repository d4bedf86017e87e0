"""MCP, the Model Context Protocol: servers and clients of every revision.

    from dragoman.mcp import Client, Context, Server

Names are imported when they are used: a client pays for no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .asking.ask import AskParked, QuestionFailed
    from .asking.forms import CannotAsk
    from .asking.questions import Elicit, Elicited, ElicitUrl, Roots, Sample
    from .client.client import Client
    from .client.extending import ClientExtension, OutgoingCall, PendingResult
    from .client.handlers import Declined
    from .client.subscriptions import Changed, Subscription
    from .extensions.tasks.client import TaskHandle, TasksClient
    from .extensions.tasks.following import TaskStatus
    from .extensions.tasks.policy import TaskPolicy
    from .extensions.tasks.server import Tasks
    from .protocol.errors import ResourceNotFound, ToolError
    from .protocol.extension import Extension, ResultType, StatefulForm, Topic
    from .protocol.foreign import ForeignContent
    from .protocol.http_options import HttpOptions
    from .protocol.methods import Row
    from .protocol.params import (
        CallToolResult,
        CompleteResult,
        Completion,
        CreateMessageRequestParams,
        CreateMessageResult,
        DiscoverResult,
        ElicitRequestParams,
        ElicitResult,
        GetPromptResult,
        InputRequiredResult,
        LoggingMessageNotificationParams,
        ProgressNotificationParams,
        ReadResourceResult,
    )
    from .protocol.revisions import NEWEST, REVISIONS, Revision
    from .protocol.types import (
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
    from .server.content import Audio, File, Image
    from .server.context import Context
    from .server.extending.extension import Companion, ServerExtension, TopicGrant
    from .server.extending.home import ServerHome
    from .server.marks import prompt, resource, tool
    from .server.schema import Header
    from .server.server import Server
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "asking.ask": "AskParked QuestionFailed",
            "asking.forms": "CannotAsk",
            "asking.questions": "Elicit ElicitUrl Elicited Roots Sample",
            "client.client": "Client",
            "client.extending": "ClientExtension OutgoingCall PendingResult",
            "client.handlers": "Declined",
            "client.subscriptions": "Changed Subscription",
            "extensions.tasks.client": "TaskHandle TasksClient",
            "extensions.tasks.following": "TaskStatus",
            "extensions.tasks.policy": "TaskPolicy",
            "extensions.tasks.server": "Tasks",
            "protocol.errors": "ResourceNotFound ToolError",
            "protocol.extension": "Extension ResultType StatefulForm Topic",
            "protocol.foreign": "ForeignContent",
            "protocol.methods": "Row",
            "protocol.http_options": "HttpOptions",
            "protocol.params": """
                CallToolResult CompleteResult Completion CreateMessageRequestParams CreateMessageResult
                DiscoverResult ElicitRequestParams ElicitResult GetPromptResult InputRequiredResult
                LoggingMessageNotificationParams ProgressNotificationParams ReadResourceResult
            """,
            "protocol.revisions": "NEWEST REVISIONS Revision",
            "protocol.types": """
                Annotations AudioContent ClientCapabilities EmbeddedResource Icon ImageContent Implementation Prompt
                PromptMessage Resource ResourceContents ResourceLink ResourceTemplate Root SamplingMessage
                ServerCapabilities TextContent Tool ToolAnnotations
            """,
            "server.content": "Audio File Image",
            "server.context": "Context",
            "server.extending.extension": "Companion ServerExtension TopicGrant",
            "server.extending.home": "ServerHome",
            "server.marks": "prompt resource tool",
            "server.schema": "Header",
            "server.server": "Server",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = [
    "NEWEST",
    "REVISIONS",
    "Annotations",
    "AskParked",
    "Audio",
    "AudioContent",
    "CallToolResult",
    "CannotAsk",
    "Changed",
    "Client",
    "ClientCapabilities",
    "ClientExtension",
    "Companion",
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
    "Extension",
    "File",
    "ForeignContent",
    "GetPromptResult",
    "Header",
    "HttpOptions",
    "Icon",
    "Image",
    "ImageContent",
    "Implementation",
    "InputRequiredResult",
    "LoggingMessageNotificationParams",
    "OutgoingCall",
    "PendingResult",
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
    "ResultType",
    "Revision",
    "Root",
    "Roots",
    "Row",
    "Sample",
    "SamplingMessage",
    "Server",
    "ServerCapabilities",
    "ServerExtension",
    "ServerHome",
    "StatefulForm",
    "Subscription",
    "TaskHandle",
    "TaskPolicy",
    "TaskStatus",
    "Tasks",
    "TasksClient",
    "TextContent",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "Topic",
    "TopicGrant",
    "prompt",
    "resource",
    "tool",
]
