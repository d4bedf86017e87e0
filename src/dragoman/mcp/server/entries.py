"""Makes a function an entry of a server: its description in lists, and the method that runs it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from ...jsonrpc.errors import LocalError
from ...rpc.method import RUNNING, Method
from ..protocol.types import (
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    Tool,
    ToolAnnotations,
)
from ..protocol.uri import normal
from ..protocol.uri_template import Template, is_template, parse
from .listing import Entry
from .options import DEFAULTS, PROMPT, RESOURCE, TOOL, entry_options
from .schema import description as described
from .surroundings import Surroundings
from .text_methods import completion_method, prompt_method, resource_method
from .tools import ToolParts, included_method, tool_method

logger: logging.Logger = logging.getLogger("dragoman.mcp")

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ARGUMENT: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HOSTS: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# these patterns are texts, compiled when a resource is first added
_BEFORE: Final = r"[A-Za-z][A-Za-z0-9+.-]*[:{]"
_EXPLODED: Final = r"\{([A-Za-z0-9_.]+)\*\}"
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f]*"


def tool_entry(server: Surroundings, name: str, function: Callable[..., Any], **given: Any) -> Entry:
    """Return the entry of a tool, with `ToolOptions`. Raises LocalError for a function that cannot be a tool."""
    added = server.added_options["tool"]
    options = entry_options("@server.tool", f"tool {name}", TOOL, given | {"name": name}, added)
    return _tool(server, name, tool_method(name, function, server, options), options)


def method_entry(server: Surroundings, name: str, method: Method, tags: frozenset[str]) -> Entry:
    """Return the entry of a tool that is a JSON-RPC method of a service; `tags`: added to the method's. Raises
    LocalError for arguments without names."""
    hints = ToolAnnotations(idempotent_hint=True) if method.idempotent else None
    options = {"annotations": hints, "tags": method.tags | tags}
    defaults = dict.fromkeys((*TOOL, *server.added_options["tool"])) | {**DEFAULTS}
    entry = _tool(server, name, included_method(name, method), defaults | options)
    entry.enabled = method.enabled
    return entry


def _tool(server: Surroundings, name: str, made: ToolParts, options: Mapping[str, Any]) -> Entry:
    warn_of_name(name)
    _warn_of_arguments(name, made.input)
    result = made.output
    listed = Tool(
        input_schema=made.input,
        output_schema=UNSET if result.schema is None else result.schema,
        annotations=_unset(options["annotations"]),
        **_presentation(name, options, made.documentation),
    )
    older = None
    if result.older is not result.schema:
        older = msgspec.structs.replace(listed, output_schema=UNSET if result.older is None else result.older)
    common = _common(server, name, options, "tool")
    return Entry("tool", name, listed, made.method, older=older, marked=made.marked, **common)


def warn_of_name(name: str) -> None:
    """Log a warning for a tool's name that some hosts refuse."""
    if _NAME.fullmatch(name) is None:
        # server/tools, Tool Names: each rule is a SHOULD, so clients may still take it
        logger.warning("tool %r: names should have 1 to 128 of A-Z a-z 0-9 _ - and . alone", name)
    elif _HOSTS.fullmatch(name) is None:
        logger.warning("tool %r: many hosts take 1 to 64 of A-Z a-z 0-9 _ and - alone", name)


def _warn_of_arguments(name: str, schema: Mapping[str, Any]) -> None:
    """Log a warning for arguments whose names some hosts refuse, together with all tools of the request."""
    named = schema.get("properties")
    odd = [one for one in named if _ARGUMENT.fullmatch(str(one)) is None] if isinstance(named, dict) else []
    if odd:
        shown = ", ".join(repr(str(one)[:80]) for one in odd[:5])
        logger.warning(
            "tool %r, arguments %s: hosts of Claude take 1 to 64 of A-Z a-z 0-9 _ . and - alone, and refuse all tools "
            "otherwise",
            name,
            shown,
        )


def resource_entry(server: Surroundings, uri: str, function: Callable[..., Any], **given: Any) -> Entry:
    """Return the entry of a resource, or of a template if the URI has `{...}`, with `ResourceOptions`. Its key is the
    normal form of the URI.

    Raises LocalError for a URI that is invalid, and for variables that the function does not take.
    """
    added = server.added_options["resource"]
    options = entry_options("@server.resource", f"resource {uri!r}", RESOURCE, given | {"uri": uri}, added)
    template, size = _template(uri, options["any_path"]), options["size"]
    uri = normal(uri) if template is None else template.text
    method, text = resource_method(uri, function, server.dependencies, options, template)
    shown = _presentation(name_for(options["name"], function, uri), options, text) | {
        "mime_type": options["mime_type"] or UNSET,
        "annotations": _unset(options["annotations"]),
    }
    if template is None:
        plain = Resource(uri=uri, size=_unset(size), **shown)
        return Entry("resource", uri, plain, method, **_common(server, uri, options, "resource"))
    if size is not None:
        raise LocalError(f"{uri}: the resources of a template have no size in common")
    listed = ResourceTemplate(uri_template=uri, **shown)
    common = _common(server, uri, options, "resource", template)
    return Entry("template", uri, listed, method, template=template, **common)


def prompt_entry(server: Surroundings, name: str, function: Callable[..., Any], **given: Any) -> Entry:
    """Return the entry of a prompt, with `PromptOptions`. Raises LocalError for arguments without names."""
    added = server.added_options["prompt"]
    options = entry_options("@server.prompt", f"prompt {name}", PROMPT, given | {"name": name}, added)
    made = prompt_method(name, function, server.dependencies, options)
    listed = Prompt(arguments=made.arguments or UNSET, **_presentation(name, options, made.documentation))
    return Entry("prompt", name, listed, made.method, **_common(server, name, options, "prompt"))


def completion_for(server: Surroundings, where: str, function: Callable[..., Any], **given: Any) -> Method:
    """Return the method that completes an argument, with `RunOptions`. `where`: the argument, for error texts. Raises
    LocalError for a function that cannot complete one."""
    options = entry_options("@server.completion", f"completion of {where}", RUNNING, given)
    return completion_method(where, function, server.dependencies, options)


def _unset(value: Any) -> Any:
    return UNSET if value is None else value


def _common(
    server: Surroundings, name: str, options: Mapping[str, Any], kind: str, template: Template | None = None
) -> dict[str, Any]:
    """Return the fields that every entry has beside its description. `kind`: as extensions name it for options."""
    extended = {option: options[option] for option in server.added_options[kind]}
    return {
        "surroundings": msgspec.structs.replace(server, name=name, template=template, extended=extended),
        "visible": options["visible"],
        "tags": frozenset(options["tags"]),
        "version": options["version"] or "",
    }


def _presentation(name: str, options: Mapping[str, Any], documentation: str) -> dict[str, Any]:
    """Return the members of the description that every kind of entry has. Without the option `description` it is that
    in the function's docstring."""
    description, meta = options["description"], options["meta"]
    return {
        "name": name,
        "title": options["title"] or UNSET,
        "description": (described(documentation) if description is None else description) or UNSET,
        "icons": list(options["icons"] or ()) or UNSET,
        "meta": UNSET if meta is None else dict(meta),
    }


# -- names ----------------------------------------------------------------------------------------


def _template(uri: str, any_path: bool) -> Template | None:
    """Return the template in a text; None if it is a URI. Raises LocalError for what is neither."""
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
    return parse(uri, any_path=any_path)


def name_for(name: str | None, function: Callable[..., Any], otherwise: str = "") -> str:
    name = name or getattr(function, "__name__", "")
    if name == "<lambda>":
        name = ""
    if not (name or otherwise):
        raise LocalError(f"{function!r} has no name of its own: give one, name='...'")
    return name or otherwise


def arguments_of(entry: Entry) -> Iterable[str]:
    if entry.template is not None:
        return entry.template.names
    listed = entry.known
    arguments: Any = listed.arguments if isinstance(listed, Prompt) else ()
    return [one.name for one in arguments if isinstance(one, PromptArgument)] if arguments is not UNSET else []
