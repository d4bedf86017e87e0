"""The options of a `Server`, of its decorators and its `add_` methods, and their rules. Pure.

Their defaults are in `registry.Registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

from msgspec import UnsetType

from ...channel import LIMITS, Caller
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
    instance,
    many,
    mapping,
    one_of,
    whole,
)
from ...rpc.method import RUNNING
from ..protocol.options import HttpOptions
from ..protocol.params import CacheScope
from ..protocol.revisions import NEWEST, Revision
from ..protocol.types import Annotations, Icon, ToolAnnotations

FINITE: Final = Rule(lambda value: SECONDS.fits(value) and value < float("inf"), SECONDS.words)
"""server/utilities/caching: "Servers MUST provide a `ttlMs` value that is `>= 0`"."""
SCOPE: Final = one_of("private", "public")
ICONS: Final = many(instance(Icon, "an Icon"))
_META: Final = mapping(ANYTHING) | NONE
_WORDS: Final = {
    "name": TEXT | NONE,
    "title": TEXT | NONE,
    "description": TEXT | NONE,
    "icons": ICONS,
    "meta": _META,
    "visible": CALLABLE | NONE,
}

COMPLETION: Final = RUNNING
PROMPT: Final = _WORDS | RUNNING
TOOL: Final = PROMPT | {
    "annotations": instance(ToolAnnotations, "ToolAnnotations") | NONE,
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
}
"""What the options may be."""


SERVER_OPTIONS: Final = {
    "name": NAME,
    "version": TEXT,
    "title": TEXT | NONE,
    "description": TEXT | NONE,
    "icons": ICONS,
    "instructions": TEXT | NONE,
    "website_url": TEXT | NONE,
    "lifespan": CALLABLE | NONE,
    "page_size": whole(1),
    "ttl": FINITE,
    "cache_scope": SCOPE,
    "tools": FLAG,
    "resources": FLAG,
    "prompts": FLAG,
    "completions": FLAG,
    "keys": TEXT | many(instance((str, bytes), "text or bytes")) | NONE,
    "state_life": TIME,
    "once": FLAG,
    "extensions": many(ANYTHING),
    "revisions": many(instance(Revision, f"a record such as NEWEST, or REVISIONS['{NEWEST.date}']")) | NONE,
    "http": instance(HttpOptions, "HttpOptions") | NONE,
    "limits": LIMITS,
    "middleware": many(CALLABLE),
    "debug": FLAG,
}
"""What the options of a Server may be."""


class RunOptions(TypedDict, total=False):
    """How a function runs: as those of `Service.method`."""

    inline: bool
    timeout: float | UnsetType | None
    concurrency: int | None
    queue: int | None


class PromptOptions(RunOptions, total=False):
    """Of a prompt. `title`, `description`, `icons` and `meta` (its `_meta`) are shown in lists; `visible(caller)`:
    whether it is there for a caller, in lists and calls alike, a plain function that is asked each time; `inline`,
    `timeout`, `concurrency` and `queue` are those of `Service.method`."""

    title: str | None
    description: str | None
    icons: Sequence[Icon]
    meta: Mapping[str, Any] | None
    visible: Callable[[Caller], bool] | None


class ToolOptions(PromptOptions, total=False):
    """Of a tool. `input_schema`: the function takes one dict, which this schema checks; `output_schema` checks what it
    returns."""

    annotations: ToolAnnotations | None
    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None


class ResourceOptions(PromptOptions, total=False):
    """Of a resource or a template. `size`: bytes, when known. `ttl` (seconds), `cache_scope`: the server's by
    default."""

    name: str | None
    mime_type: str | None
    annotations: Annotations | None
    size: int | None
    ttl: float | None
    cache_scope: CacheScope | None
