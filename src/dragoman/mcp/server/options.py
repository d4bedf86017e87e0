"""The options of a `Server`, of its decorators and its `add_` methods: types, rules and defaults. Pure.

An option is a parameter of `Server`, or a key of the TypedDict that a decorator unpacks. Its rule is in the table
beside it. The code that registers a function gets all its options as one dict, from `entry_options`; the code that
serves gets those of the server as one `ServerOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ...channel import LIMITS, Caller
from ...jsonrpc.errors import LocalError
from ...jsonrpc.leniency import CHOSEN
from ...jsonrpc.options import (
    ANYTHING,
    CALLABLE,
    FLAG,
    NAME,
    NONE,
    SECONDS,
    TEXT,
    TIME,
    Rule,
    among,
    instance,
    many,
    mapping,
    one_of,
    options_of,
    whole,
)
from ...rpc.method import AUTH, DEMANDS, RUNNING, CallOptions, ProcessOption
from ...rpc.method import DEFAULTS as METHOD_DEFAULTS
from ..protocol.admission import EVERYTHING, Offer, offer
from ..protocol.encoding import decode, encode
from ..protocol.entry_versions import VERSION
from ..protocol.http_options import ArgumentErrors, HttpOptions
from ..protocol.params import CacheScope
from ..protocol.revisions import NEWEST, Revision
from ..protocol.types import Annotations, Icon, Implementation, ToolAnnotations

if TYPE_CHECKING:
    from ...tasks.policy import TaskPolicy
else:
    TaskPolicy = Any  # start-up: annotations resolve at run time, to no more than this

EntryKind: TypeAlias = Literal["tool", "resource", "prompt"]
"""The kinds of entries that are enabled and disabled: a template counts as a resource."""
FINITE: Final = Rule(lambda value: SECONDS.fits(value) and value < float("inf"), SECONDS.words)
"""server/utilities/caching: "Servers MUST provide a `ttlMs` value that is `>= 0`"."""
SCOPE: Final = one_of("private", "public")
ICONS: Final = many(instance(Icon, "an Icon")) | NONE
_META: Final = mapping(ANYTHING) | NONE
_WORDS: Final = {
    "name": TEXT | NONE,
    "title": TEXT | NONE,
    "description": TEXT | NONE,
    "icons": ICONS,
    "meta": _META,
    "visible": CALLABLE | NONE,
    "tags": many(TEXT),
    "version": VERSION,
}

METHOD: Final = RUNNING | DEMANDS
PROMPT: Final = _WORDS | METHOD | {"process": FLAG}
TOOL: Final = PROMPT | {
    "annotations": instance(ToolAnnotations, "ToolAnnotations(read_only_hint=True)") | NONE,
    "input_schema": _META,
    "output_schema": _META,
}
RESOURCE: Final = PROMPT | {
    "uri": NAME,
    "mime_type": TEXT | NONE,
    "annotations": instance(Annotations, "Annotations") | NONE,
    "size": whole(0) | NONE,
    "ttl": FINITE | NONE,
    "cache_scope": SCOPE | NONE,
    "any_path": FLAG,
}
"""The rules of the options, by kind of entry."""
DEFAULTS: Final[Mapping[str, Any]] = {**METHOD_DEFAULTS, "icons": (), "any_path": False}
"""The options whose default is not None, with it."""


NO_OPTIONS: Final[Mapping[str, Rule]] = {}
OF_EXTENSIONS: Final = {"task": "Tasks"}
"""Options that type checkers know, though an extension adds them, with its name."""


def entry_options(
    decorator: str,
    what: str,
    rules: Mapping[str, Rule],
    given: Mapping[str, Any],
    added: Mapping[str, Rule] = NO_OPTIONS,
) -> Any:
    """Return all options that have rules, and all of `CallOptions`, as they were given or by default. `added`: the
    rules of options that extensions add. Raises LocalError for others, and for one that breaks its rule."""
    rules = {**added, **rules}
    for name, extension in OF_EXTENSIONS.items():
        if name in given and name not in rules:
            raise LocalError(
                f"{decorator}: {name} is an option of the extension {extension}: Server(extensions=[{extension}()])"
            )
    given = {name: value for name, value in given.items() if value is not UNSET}  # as `list_tools` returns it
    return {name: DEFAULTS.get(name) for name in METHOD} | options_of(decorator, what, rules, given, DEFAULTS)


SERVER_OPTIONS: Final = {
    "name": NAME,
    "version": TEXT,
    "title": TEXT | NONE,
    "description": TEXT | NONE,
    "icons": ICONS,
    "instructions": TEXT | NONE,
    "website_url": TEXT | NONE,
    "lifespan": CALLABLE | NONE,
    "page_size": whole(1) | NONE,
    "ttl": FINITE,
    "cache_scope": SCOPE,
    "tools": FLAG,
    "resources": FLAG,
    "prompts": FLAG,
    "completions": FLAG,
    "logging": FLAG,
    "keys": TEXT | many(instance((str, bytes), "text or bytes")) | NONE,
    "state_life": TIME,
    "once": FLAG,
    "extensions": many(ANYTHING),
    "revisions": many(instance(Revision, f"a record such as NEWEST, or REVISIONS['{NEWEST.date}']")) | NONE,
    "http": instance(HttpOptions, "HttpOptions") | NONE,
    "limits": LIMITS,
    "middleware": many(CALLABLE),
    "lenient": CHOSEN,
    "argument_errors": one_of("result", "revision"),
    "debug": FLAG,
    "auth": AUTH,
}
"""The rules of the options of a `Server`."""


DECLARABLE: Final = ("tools", "resources", "prompts", "completions", "logging")
"""The options that declare a capability although there may be no entry of it yet."""


class ServerOptions(Struct, frozen=True, kw_only=True):
    """The options of a `Server` that are read while it is served, by the names that they have there; `Server` describes
    them."""

    instructions: str | None
    page_size: int | None
    ttl: float
    cache_scope: CacheScope
    once: bool
    argument_errors: ArgumentErrors
    http: HttpOptions
    offered: Offer
    """The option `revisions`."""
    declared: frozenset[str]
    """The options of `DECLARABLE` that are set."""


def server_options(given: Mapping[str, Any]) -> ServerOptions:
    """Return these options from the arguments of a `Server`. Raises LocalError for unknown revisions."""
    revisions, http = given["revisions"], given["http"]
    return among(
        ServerOptions,
        given,
        http=HttpOptions() if http is None else http,
        offered=EVERYTHING if revisions is None else offer(revisions_of(revisions)),
        declared=frozenset(kind for kind in DECLARABLE if given[kind]),
    )


class PromptOptions(CallOptions, ProcessOption, total=False):
    """The options of a prompt; `Server.tool` describes them."""

    title: str | UnsetType | None
    description: str | UnsetType | None
    icons: Sequence[Icon] | UnsetType | None
    meta: Mapping[str, Any] | UnsetType | None
    visible: Callable[[Caller], bool] | None
    tags: Collection[str]
    version: str | None


class ToolOptions(PromptOptions, total=False):
    """The options of a tool; `Server.tool` describes them."""

    annotations: ToolAnnotations | UnsetType | None
    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None
    task: TaskPolicy | bool | None
    """Of the extension `Tasks`; a server without it refuses this option."""


class ResourceOptions(PromptOptions, total=False):
    """The options of a resource or a template; `Server.resource` describes them."""

    name: str | None
    mime_type: str | None
    annotations: Annotations | None
    size: int | None
    ttl: float | None
    cache_scope: CacheScope | None
    any_path: bool


def info_of(given: Mapping[str, Any]) -> Implementation:
    """Return the description of a server for its clients, from the arguments of a `Server`. Raises LocalError for one
    that no client could decode."""
    fields = {name: UNSET if value is None else value for name, value in given.items()}
    info = among(Implementation, fields, icons=list(given["icons"] or ()) or UNSET)
    try:
        decode(encode(info, NEWEST), Implementation)
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise LocalError(f"a server cannot be called so: {error}") from None
    return info


def revisions_of(given: Iterable[Revision]) -> tuple[Revision, ...]:
    """Return the revisions that a user gave. Raises LocalError for other values, and for none at all."""
    found = tuple(given)
    if not found or not all(
        isinstance(one, Revision) for one in found
    ):  # the rule of the option does not check an iterator
        raise LocalError(f"revisions are records such as NEWEST, or REVISIONS['{NEWEST.date}'], and not {found!r}")
    return found
