"""The options of a `Server`, of its decorators and its `add_` methods: types, rules and defaults. Pure.

An option is a parameter of `Server`, or a key of the TypedDict that a decorator unpacks. Its rule is in the table
beside it. The code that registers a function gets all its options as one dict, from `options_of`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

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
    check,
    instance,
    many,
    mapping,
    one_of,
    unknown_option,
    whole,
)
from ...rpc.method import AUTH, DEMANDS, RUNNING, Allow
from ..protocol.encoding import decode, encode
from ..protocol.entry_versions import VERSION
from ..protocol.options import HttpOptions
from ..protocol.params import CacheScope
from ..protocol.revisions import NEWEST, Revision
from ..protocol.types import Annotations, Icon, Implementation, ToolAnnotations

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
PROMPT: Final = _WORDS | METHOD
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
DEFAULTS: Final[Mapping[str, Any]] = {
    "icons": (),
    "tags": (),
    "any_path": False,
    "inline": False,
    "timeout": UNSET,
    "scopes": (),
    "roles": (),
}
"""The options whose default is not None, with it."""


def options_of(decorator: str, what: str, rules: Mapping[str, Rule], given: Mapping[str, Any]) -> Any:
    """Return all options that have rules, and all of `CallOptions`, as they were given or by default. Raises LocalError
    for others, and for one that breaks its rule."""
    for name in given:
        if name not in rules:
            raise LocalError(f"{decorator}: {unknown_option(name, rules)}")
    given = {name: value for name, value in given.items() if value is not UNSET}  # as `list_tools` returns it
    options = {name: given.get(name, DEFAULTS.get(name)) for name in (*METHOD, *rules)}
    check(what, rules, options)
    return options


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


class RunOptions(TypedDict, total=False):
    """The options of how a function runs; `Server.tool` describes them."""

    inline: bool
    timeout: float | UnsetType | None
    concurrency: int | None
    queue: int | None


class CallOptions(RunOptions, total=False):
    """The options of how a function runs and who may call it; `Server.tool` describes them."""

    scopes: str | Collection[str]
    roles: str | Collection[str]
    allow: Allow | None


class PromptOptions(CallOptions, total=False):
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


class ResourceOptions(PromptOptions, total=False):
    """The options of a resource or a template; `Server.resource` describes them."""

    name: str | None
    mime_type: str | None
    annotations: Annotations | None
    size: int | None
    ttl: float | None
    cache_scope: CacheScope | None
    any_path: bool


def info_of(
    name: str,
    version: str,
    title: str | None,
    description: str | None,
    icons: Sequence[Icon],
    website_url: str | None,
) -> Implementation:
    """Return the description of a server for its clients. Raises LocalError for one that no client could decode."""
    info = Implementation(
        name,
        version,
        title=UNSET if title is None else title,
        description=UNSET if description is None else description,
        icons=list(icons or ()) or UNSET,
        website_url=UNSET if website_url is None else website_url,
    )
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
