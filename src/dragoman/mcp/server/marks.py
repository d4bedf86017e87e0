"""Decorators that mark functions of a class, so that a server can include its instances; see `rpc.including`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack, overload

from ...jsonrpc.errors import LocalError
from ...rpc.including import mark
from .options import PromptOptions, ResourceOptions, ToolOptions

F = TypeVar("F", bound=Callable[..., Any])


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(name: str | None = None, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
def tool(name: Any = None, **options: Unpack[ToolOptions]) -> Any:
    """Mark a function of a class as a tool, with the options of `Server.tool`. It is registered by
    `server.include(instance)`."""
    if name is None or isinstance(name, str):
        return lambda function: mark(function, "tool", name, {**options})
    return mark(name, "tool", None, {**options})


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(name: str | None = None, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
def prompt(name: Any = None, **options: Unpack[PromptOptions]) -> Any:
    """Mark a function of a class as a prompt, with the options of `Server.prompt`."""
    if name is None or isinstance(name, str):
        return lambda function: mark(function, "prompt", name, {**options})
    return mark(name, "prompt", None, {**options})


def resource(uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
    """Mark a function of a class as a resource or template, with the options of `Server.resource`."""
    if not isinstance(uri, str):
        raise LocalError('a resource has a URI: @resource("file:///notes.txt")')
    return lambda function: mark(function, "resource", uri, {**options})
