"""The exceptions that a server's function raises for its caller, and that a client's call raises for them. Pure."""

from __future__ import annotations


class ToolError(Exception):
    """A tool has failed, and this text says why to the model, so that it can do better.

    Raise it in a tool: the call's result has `isError`. In a resource, a prompt or a completion it is the JSON-RPC
    error -32603 with this text. A client's `call_tool(result=...)` raises it.
    """


class ResourceNotFound(LookupError):
    """There is no such resource. Raise it if a URI fits a template but the resource does not exist; its text says to
    the caller why.

    The error is -32602 (-32002 up to 2025-11-25), with the URI in `data` (server/resources, Error Handling). From a
    prompt or a completion, which may read the same things, it is -32602; from a tool a result with `isError`.
    """
