"""Exceptions that a server's function raises for its caller, and that a client's call raises in turn. Pure."""

from __future__ import annotations


class ToolError(Exception):
    """A tool has failed, and this text tells the model why, so that it can do better.

    Raise it in a tool: the call's result has `isError`. In a resource, a prompt or a completion it is the JSON-RPC
    error -32603 with this text. A client's `call_tool(result=...)` raises it.
    """


class ResourceNotFound(LookupError):
    """There is no such resource. Raise it if a URI matches a template but the resource does not exist; its text tells
    the caller why.

    The caller gets -32602 (-32002 up to 2025-11-25), with the URI in `data` (server/resources, Error Handling). Raised
    in a prompt or a completion, which may read resources too, it is -32602; in a tool, a result with `isError`.
    """
