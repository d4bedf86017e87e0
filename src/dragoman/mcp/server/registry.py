"""The tools, resources, templates and prompts of a server, found by name and listed in pages.

Entries can be added, removed, enabled and disabled at any time, from any thread; `changed` is called for each.
`listing` describes lists and cursors.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...channel import Caller
from ...jsonrpc.errors import InvalidParams, LocalError
from ...jsonrpc.options import TEXT, check, instance
from ...rpc.method import Method
from ...rpc.service import Service
from ..protocol.encoding import decode
from ..protocol.headers import HeaderParam
from ..protocol.params import CacheScope, PromptReference, ResourceTemplateReference
from ..protocol.revisions import NEWEST, Revision
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
from ..protocol.uri_template import is_template, parse
from .completions import completion_method
from .errors import missing
from .handlers import Making, Options
from .listing import Entries, Listing
from .listing import Entry as Entry
from .prompts import prompt_method
from .registering import COMPLETION, PROMPT, RESOURCE, TOOL
from .resources import resource_method
from .schema import description as described
from .table import Lookup
from .tools import MadeTool, included_method, tool_method

logger = logging.getLogger("dragoman.mcp")

_TELLS: Final = {"tools": "tools", "resources": "resources", "templates": "resources", "prompts": "prompts"}
"""The kind of change that clients are told of."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f]*")


class Registry:
    """All that a server offers.

    `changed("tools" | "resources" | "prompts")` is called after each change of a list, `link(method)` for every
    new method.
    """

    def __init__(
        self,
        server: Making,
        *,
        page_size: int = 100,
        changed: Callable[[str], None] = lambda kind: None,
        link: Callable[[Method], None] = lambda method: None,
    ) -> None:
        self._server = server
        self._changed = changed
        self._link = link
        self._tools, self._resources = Entries("tools", page_size), Entries("resources", page_size)
        self._templates, self._prompts = Entries("templates", page_size), Entries("prompts", page_size)
        self._lists = {one.name: one for one in (self._tools, self._resources, self._templates, self._prompts)}
        self._ranked: list[Entry] = []
        """Templates, the most specific first."""
        hints = f'"resultType":"complete","ttlMs":{int(server.ttl * 1000)},"cacheScope":'
        begins = server.stamp.prefix + hints.encode()
        self._begins, self._begins_personal = begins + f'"{server.cache_scope}",'.encode(), begins + b'"private",'

    # -- registering

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        annotations: ToolAnnotations | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        visible: Callable[[Caller], bool] | None = None,
        inline: bool = False,
        timeout: float | Any | None = UNSET,
        concurrency: int | None = None,
        queue: int | None = None,
    ) -> Entry:
        """Register a tool. Raises LocalError for a name that is taken, and for a function that cannot be a tool."""
        check(f"tool {_shown(name, function)}", TOOL, locals())
        name = _named(name, function)
        options = Options(inline=inline, timeout=timeout, concurrency=concurrency, queue=queue)
        made = tool_method(name, function, self._server, options, input=input_schema, output=output_schema)
        return self._add_tool(name, made, title, description, icons, annotations, meta, visible)

    def include(self, service: Service, *, prefix: str = "") -> None:
        """Register each JSON-RPC method that a service has now as a tool called `prefix` + its name.

        Raises LocalError, without registering any, for a name that is taken and for arguments without names.
        """
        check("Server.include", {"service": instance(Service, "a Service"), "prefix": TEXT}, locals())
        made = [
            (prefix + name, included_method(prefix + name, method, self._server), method)
            for name, method in service.methods.items()
        ]
        for name, _, _ in made:
            self._tools.free(name)
        for name, tool, method in made:
            hints = ToolAnnotations(idempotent_hint=True) if method.idempotent else None
            self._add_tool(name, tool, None, None, (), hints, None, None)

    def _add_tool(
        self,
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
        return self._put(
            self._tools, Entry("tool", name, listed, made.method, older=older, marked=made.marked, visible=visible)
        )

    def add_resource(
        self,
        function: Callable[..., Any],
        uri: str,
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
        ttl: float | None = None,
        cache_scope: CacheScope | None = None,
        inline: bool = False,
        timeout: float | Any | None = UNSET,
        concurrency: int | None = None,
        queue: int | None = None,
    ) -> Entry:
        """Register a resource, or a template where the URI has `{...}`.

        Raises LocalError for a URI that is invalid or taken, and for variables that the function does not take.
        """
        check(f"resource {uri!r}", RESOURCE, locals())
        template = parse(uri) if is_template(uri) else None
        if template is None and _SCHEME.fullmatch(uri) is None:
            raise LocalError(f"{uri!r} is no URI: a resource is called like file:///path or weather://beijing")
        options = Options(inline=inline, timeout=timeout, concurrency=concurrency, queue=queue)
        method, text = resource_method(
            uri,
            function,
            self._server,
            options,
            template=template,
            mime_type=mime_type,
            ttl=ttl,
            cache_scope=cache_scope,
        )
        shown = _presented(_named(name, function, uri), title, description, text, icons, meta) | {
            "mime_type": mime_type or UNSET,
            "annotations": UNSET if annotations is None else annotations,
        }
        if template is None:
            plain = Resource(uri=uri, size=UNSET if size is None else size, **shown)
            return self._put(self._resources, Entry("resource", uri, plain, method, visible=visible))
        if size is not None:
            raise LocalError(f"{uri}: the resources of a template have no size in common")
        listed = ResourceTemplate(uri_template=uri, **shown)
        return self._put(self._templates, Entry("template", uri, listed, method, template=template, visible=visible))

    def add_prompt(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        visible: Callable[[Caller], bool] | None = None,
        inline: bool = False,
        timeout: float | Any | None = UNSET,
        concurrency: int | None = None,
        queue: int | None = None,
    ) -> Entry:
        """Register a prompt. Raises LocalError for a name that is taken, and for arguments without names."""
        check(f"prompt {_shown(name, function)}", PROMPT, locals())
        name = _named(name, function)
        options = Options(inline=inline, timeout=timeout, concurrency=concurrency, queue=queue)
        made = prompt_method(name, function, self._server, options)
        shown = _presented(name, title, description, made.documentation, icons, meta)
        listed = Prompt(arguments=made.arguments or UNSET, **shown)
        return self._put(self._prompts, Entry("prompt", name, listed, made.method, visible=visible))

    def add_completion(
        self,
        function: Callable[..., Any],
        ref: str,
        argument: str,
        *,
        inline: bool = False,
        timeout: float | Any | None = UNSET,
        concurrency: int | None = None,
        queue: int | None = None,
    ) -> None:
        """Register the completion of an argument of a prompt (`ref`: its name) or of a template (its text).

        Raises LocalError if there is no such prompt, template or argument, or it already has a completion.
        """
        check(f"completion of {argument!r}", COMPLETION, locals())
        entry = self._prompts.by_key.get(ref) or self._templates.by_key.get(ref)
        if entry is None:
            raise LocalError(f"there is no prompt and no template {ref!r}: register it before its completions")
        if argument not in _arguments(entry):
            raise LocalError(f"{ref} has no argument {argument!r}; it has {', '.join(_arguments(entry)) or 'none'}")
        if argument in entry.completions:
            raise LocalError(f"{ref}: {argument!r} is completed by a function already")
        options = Options(inline=inline, timeout=timeout, concurrency=concurrency, queue=queue)
        method = completion_method(f"{ref}, {argument}", function, self._server, options)
        self._link(method)
        entry.completions = entry.completions | {argument: method}

    # -- changing

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry: "tool", "resource" (also a template) or "prompt". Raises LocalError if there is none."""
        where, entry = self._known(kind, key)
        where.remove(key)
        if entry.template is not None:
            self._rank()
        self._changed(_TELLS[where.name])

    def enable(self, kind: str, key: str) -> None:
        """Enable an entry."""
        self._switch(kind, key, True)

    def disable(self, kind: str, key: str) -> None:
        """Disable an entry: it is not listed, and unknown when called."""
        self._switch(kind, key, False)

    def _switch(self, kind: str, key: str, on: bool) -> None:
        where, entry = self._known(kind, key)
        if where.switch(entry, on):
            self._changed(_TELLS[where.name])

    def _put(self, where: Entries, entry: Entry) -> Entry:
        try:
            decode(entry.text(NEWEST), type(entry.listed))
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
            raise LocalError(f"{entry.key}: it cannot be listed so: {error}") from None
        self._link(entry.method)
        where.add(entry)
        if entry.template is not None:
            self._rank()
        self._changed(_TELLS[where.name])
        return entry

    def _rank(self) -> None:
        self._ranked = sorted(self._templates.by_key.values(), key=_rank)

    def _known(self, kind: str, key: str) -> tuple[Entries, Entry]:
        places = {"tool": (self._tools,), "prompt": (self._prompts,), "resource": (self._resources, self._templates)}
        places["template"] = (self._templates,)
        for where in places.get(kind, ()):
            if key in where.by_key:
                return where, where.by_key[key]
        raise LocalError(f"there is no {kind} {key!r}")

    # -- finding

    def tool(self, name: str, caller: Caller) -> Entry:
        """The tool of this name, for this caller. InvalidParams where there is none: unknown tools are protocol errors
        (server/tools)."""
        entry = self._tools.by_key.get(name)
        if entry is None or not entry.enabled or (entry.visible is not None and not entry.visible(caller)):
            raise InvalidParams(f"Unknown tool: {_short(name)}")
        return entry

    def marks(self, name: str, caller: Caller) -> tuple[HeaderParam, ...]:
        """The parameters of a tool that HTTP headers repeat; empty for a tool that this caller does not know."""
        entry = self._tools.by_key.get(name)
        return entry.marked if entry is not None and entry.marked and entry.there(caller) else ()

    def prompt(self, name: str, caller: Caller) -> Entry:
        """The prompt of this name, for this caller. InvalidParams where there is none ("Invalid prompt name",
        server/prompts)."""
        entry = self._prompts.by_key.get(name)
        if entry is None or not entry.there(caller):
            raise InvalidParams(f"Unknown prompt: {_short(name)}")
        return entry

    def resource(self, uri: str, revision: Revision, caller: Caller) -> Entry:
        """The resource with this URI for this caller, or otherwise the most specific template that matches.

        If there is none, raises the revision's error for it (server/resources, Error Handling).
        """
        entry = self._reads(uri, caller)
        if entry is None:
            raise missing(uri, revision)
        return entry

    def _reads(self, uri: str, caller: Caller) -> Entry | None:
        entry = self._resources.by_key.get(uri)
        if entry is not None and entry.there(caller):
            return entry
        for entry in self._ranked:
            if entry.there(caller) and entry.template is not None and entry.template.match(uri) is not None:
                return entry
        return None

    def completion(
        self, ref: PromptReference | ResourceTemplateReference, argument: str, caller: Caller
    ) -> Method | None:
        """What completes an argument for this caller; None where nothing does. InvalidParams for what has no such
        argument."""
        if isinstance(ref, PromptReference):
            entry = self.prompt(ref.name, caller)
        else:
            # "`uri` is a URI or URI template"
            found = self._templates.by_key.get(ref.uri) or self._reads(ref.uri, caller)
            if found is None or not found.there(caller):
                raise InvalidParams(f"Unknown resource template: {_short(ref.uri)}")
            entry = found
        if entry.kind != "resource" and argument not in _arguments(entry):
            raise InvalidParams(f"Unknown argument of {_short(entry.key)}: {_short(argument)}")
        return entry.completions.get(argument)

    def lookups(self) -> dict[str, Lookup]:
        """For each method that names an entry, the function that finds its entry."""
        return {
            "tools/call": lambda admitted, caller: self.tool(admitted.params.name, caller).method,
            "resources/read": lambda admitted, caller: (
                self.resource(admitted.params.uri, admitted.revision, caller).method
            ),
            "prompts/get": lambda admitted, caller: self.prompt(admitted.params.name, caller).method,
            "completion/complete": lambda admitted, caller: self.completion(
                admitted.params.ref, admitted.params.argument.name, caller
            ),
        }

    def has(self, kind: str) -> bool:
        """Whether there are "tools", "resources" (also templates), "prompts" or "completions", enabled or not."""
        if kind == "completions":
            return any(e.completions for one in (self._prompts, self._templates) for e in one.by_key.values())
        if kind == "resources":
            return bool(self._resources.by_key or self._templates.by_key)
        return bool((self._tools if kind == "tools" else self._prompts).by_key)

    def entries(self, listing: Listing) -> list[Entry]:
        """The enabled entries, in order."""
        return self._lists[listing].visible()

    def methods(self) -> Iterator[Method]:
        """Every method."""
        for one in self._lists.values():
            for entry in list(one.by_key.values()):
                yield entry.method
                yield from entry.completions.values()

    # -- listing

    def page(self, listing: Listing, revision: Revision, caller: Caller, cursor: str | UnsetType = UNSET) -> Raw:
        """The result of a list method for this caller. Raises InvalidParams for an unknown cursor."""
        those = self._lists[listing]
        return those.page(revision, cursor, self._begins_personal if those.personal else self._begins, caller)


# -- names ----------------------------------------------------------------------------------------


def _shown(name: Any, function: Any) -> str:
    return str(name or getattr(function, "__name__", function))


def _named(name: str | None, function: Callable[..., Any], otherwise: str = "") -> str:
    name = name or getattr(function, "__name__", "")
    if name == "<lambda>":
        name = ""
    if not (name or otherwise):
        raise LocalError(f"{function!r} has no name of its own: give one, name='...'")
    return name or otherwise


def _rank(entry: Entry) -> tuple[int, ...]:
    """The sort key of a template: more specific first, of equals the older."""
    return (entry.number,) if entry.template is None else (*entry.template.rank, entry.number)


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


def _arguments(entry: Entry) -> Iterable[str]:
    if entry.template is not None:
        return entry.template.names
    listed = entry.listed
    arguments: Any = listed.arguments if isinstance(listed, Prompt) else ()
    return [one.name for one in arguments if isinstance(one, PromptArgument)] if arguments is not UNSET else []


def _short(text: str) -> str:
    return text if len(text) <= 128 else text[:125] + "..."
