"""A function as an entry of a server: what is listed of it, and the method that runs it.

An entry can be made again for another server and under another key, since a server that includes another one gives the
other's functions its own stamp, seal and extensions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from ...channel import Caller
from ...jsonrpc.errors import LocalError
from ...jsonrpc.options import check, strict
from ...rpc.method import Allow, Method
from ..protocol.params import CacheScope
from ..protocol.types import (
    Annotations,
    Icon,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    Tool,
    ToolAnnotations,
)
from ..protocol.uri_template import Template, is_template, parse
from .completions import completion_method
from .handlers import Making, Options
from .listing import Entry
from .prompts import prompt_method
from .registering import COMPLETION, PROMPT, RESOURCE, TOOL
from .resources import resource_method
from .schema import description as described
from .tools import MadeTool, included_method, tool_method

logger: logging.Logger = logging.getLogger("dragoman.mcp")

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HOSTS: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# as texts: they are compiled when a resource is first added
_BEFORE: Final = r"[A-Za-z][A-Za-z0-9+.-]*[:{]"
_EXPLODED: Final = r"\{([A-Za-z0-9_.]+)\*\}"
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f]*"


@strict("@server.tool")
def tool_entry(
    server: Making,
    name: str,
    function: Callable[..., Any],
    *,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Icon] = (),
    annotations: ToolAnnotations | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    visible: Callable[[Caller], bool] | None = None,
    tags: Collection[str] = (),
    version: str | None = None,
    inline: bool = False,
    timeout: float | Any | None = UNSET,
    concurrency: int | None = None,
    queue: int | None = None,
    scopes: str | Collection[str] = (),
    roles: str | Collection[str] = (),
    allow: Allow | None = None,
) -> Entry:
    """The entry of a tool. Raises LocalError for a function that cannot be one."""
    check(f"tool {name}", TOOL, locals())
    options = Options(inline, timeout, concurrency, queue, scopes, roles, allow)
    made = tool_method(name, function, server, options, input=input_schema, output=output_schema)
    entry = _tool(name, made, title, description, icons, annotations, meta, visible)
    entry.tags, entry.version = frozenset(tags), version or ""
    return entry


def method_entry(server: Making, name: str, method: Method, tags: frozenset[str]) -> Entry:
    """The entry of a tool that is a JSON-RPC method of a service; `tags`: besides the method's. Raises LocalError for
    arguments without names."""
    hints = ToolAnnotations(idempotent_hint=True) if method.idempotent else None
    entry = _tool(name, included_method(name, method, server), None, None, (), hints, None, None)
    entry.tags, entry.enabled = method.tags | tags, method.enabled
    return entry


def _tool(
    name: str,
    made: MadeTool,
    title: str | None,
    description: str | None,
    icons: Sequence[Icon],
    annotations: ToolAnnotations | None,
    meta: Mapping[str, Any] | None,
    visible: Callable[[Caller], bool] | None,
) -> Entry:
    if _NAME.fullmatch(name) is None:
        # server/tools, Tool Names: each rule is a SHOULD, so clients may still take it
        logger.warning("tool %r: names should have 1 to 128 of A-Z a-z 0-9 _ - and . alone", name)
    elif _HOSTS.fullmatch(name) is None:
        logger.warning("tool %r: many hosts take 1 to 64 of A-Z a-z 0-9 _ and - alone", name)
    result = made.output
    listed = Tool(
        input_schema=made.input,
        output_schema=UNSET if result.schema is None else result.schema,
        annotations=UNSET if annotations is None else annotations,
        **_presented(name, title, description, made.documentation, icons, meta),
    )
    older = None
    if result.older is not result.schema:
        older = msgspec.structs.replace(listed, output_schema=UNSET if result.older is None else result.older)
    return Entry("tool", name, listed, made.method, older=older, marked=made.marked, visible=visible)


@strict("@server.resource")
def resource_entry(
    server: Making,
    uri: str,
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    icons: Sequence[Icon] = (),
    annotations: Annotations | None = None,
    size: int | None = None,
    meta: Mapping[str, Any] | None = None,
    visible: Callable[[Caller], bool] | None = None,
    tags: Collection[str] = (),
    version: str | None = None,
    ttl: float | None = None,
    cache_scope: CacheScope | None = None,
    inline: bool = False,
    timeout: float | Any | None = UNSET,
    concurrency: int | None = None,
    queue: int | None = None,
    scopes: str | Collection[str] = (),
    roles: str | Collection[str] = (),
    allow: Allow | None = None,
) -> Entry:
    """The entry of a resource, or of a template where the URI has `{...}`.

    Raises LocalError for a URI that is invalid, and for variables that the function does not take.
    """
    check(f"resource {uri!r}", RESOURCE, locals())
    template = _template(uri)
    options = Options(inline, timeout, concurrency, queue, scopes, roles, allow)
    method, text = resource_method(
        uri, function, server, options, template=template, mime_type=mime_type, ttl=ttl, cache_scope=cache_scope
    )
    shown = _presented(named(name, function, uri), title, description, text, icons, meta) | {
        "mime_type": mime_type or UNSET,
        "annotations": UNSET if annotations is None else annotations,
    }
    common: dict[str, Any] = {"visible": visible, "tags": frozenset(tags), "version": version or ""}
    if template is None:
        plain = Resource(uri=uri, size=UNSET if size is None else size, **shown)
        return Entry("resource", uri, plain, method, **common)
    if size is not None:
        raise LocalError(f"{uri}: the resources of a template have no size in common")
    listed = ResourceTemplate(uri_template=uri, **shown)
    return Entry("template", uri, listed, method, template=template, **common)


@strict("@server.prompt")
def prompt_entry(
    server: Making,
    name: str,
    function: Callable[..., Any],
    *,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Icon] = (),
    meta: Mapping[str, Any] | None = None,
    visible: Callable[[Caller], bool] | None = None,
    tags: Collection[str] = (),
    version: str | None = None,
    inline: bool = False,
    timeout: float | Any | None = UNSET,
    concurrency: int | None = None,
    queue: int | None = None,
    scopes: str | Collection[str] = (),
    roles: str | Collection[str] = (),
    allow: Allow | None = None,
) -> Entry:
    """The entry of a prompt. Raises LocalError for arguments without names."""
    check(f"prompt {name}", PROMPT, locals())
    options = Options(inline, timeout, concurrency, queue, scopes, roles, allow)
    made = prompt_method(name, function, server, options)
    shown = _presented(name, title, description, made.documentation, icons, meta)
    listed = Prompt(arguments=made.arguments or UNSET, **shown)
    return Entry("prompt", name, listed, made.method, visible=visible, tags=frozenset(tags), version=version or "")


def completion_of(
    server: Making,
    where: str,
    function: Callable[..., Any],
    *,
    inline: bool = False,
    timeout: float | Any | None = UNSET,
    concurrency: int | None = None,
    queue: int | None = None,
) -> Method:
    """The method that completes an argument; `where`: of what. Raises LocalError for a function that cannot."""
    check(f"completion of {where}", COMPLETION, locals())
    options = Options(inline=inline, timeout=timeout, concurrency=concurrency, queue=queue)
    return completion_method(where, function, server, options)


# -- names ----------------------------------------------------------------------------------------


def _template(uri: str) -> Template | None:
    """The template that this is; None for a URI. Raises LocalError for what is neither."""
    if not is_template(uri):
        if re.fullmatch(_SCHEME, uri) is None:
            raise LocalError(f"{uri!r} is not a URI: a resource is called like file:///path or weather://beijing")
        return None
    if not uri.startswith("{") and re.match(_BEFORE, uri) is None:
        raise LocalError(f"{uri!r}: a template of URIs begins with a scheme, as in notes://{uri.lstrip('/')}")
    if (exploded := re.search(_EXPLODED, uri)) is not None:
        name = exploded[1]
        raise LocalError(
            f"{uri!r}: {{{name}*}} is one segment of a path, as {{{name}}} is (RFC 6570): write {{+{name}}} for several"
        )
    return parse(uri)


def named(name: str | None, function: Callable[..., Any], otherwise: str = "") -> str:
    name = name or getattr(function, "__name__", "")
    if name == "<lambda>":
        name = ""
    if not (name or otherwise):
        raise LocalError(f"{function!r} has no name of its own: give one, name='...'")
    return name or otherwise


def _presented(
    name: str,
    title: str | None,
    description: str | None,
    documentation: str,
    icons: Sequence[Icon],
    meta: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What is shown of every entry; without a description what its function's documentation says."""
    return {
        "name": name,
        "title": title or UNSET,
        "description": (described(documentation) if description is None else description) or UNSET,
        "icons": list(icons) or UNSET,
        "meta": UNSET if meta is None else dict(meta),
    }


def arguments_of(entry: Entry) -> Iterable[str]:
    if entry.template is not None:
        return entry.template.names
    listed = entry.listed
    arguments: Any = listed.arguments if isinstance(listed, Prompt) else ()
    return [one.name for one in arguments if isinstance(one, PromptArgument)] if arguments is not UNSET else []
