"""What a function is registered with: one list of options for the decorators of a `Server` and its `add_` methods. Pure.

Their defaults stand in `features.Catalog`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from msgspec import UnsetType

from .params import CacheScope
from .types import Annotations, Icon, ToolAnnotations


class PromptOptions(TypedDict, total=False):
    """Of a prompt. `title`, `description`, `icons` and `meta` (its `_meta`) are shown in lists; `inline`, `timeout`,
    `concurrency` and `queue` are those of `Service.method`."""

    title: str | None
    description: str | None
    icons: Sequence[Icon]
    meta: Mapping[str, Any] | None
    inline: bool
    timeout: float | UnsetType | None
    concurrency: int | None
    queue: int | None


class ToolOptions(PromptOptions, total=False):
    """Of a tool. `input_schema`: the function takes one dict, which this schema checks; `output_schema` checks what it
    returns."""

    annotations: ToolAnnotations | None
    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None


class ResourceOptions(PromptOptions, total=False):
    """Of a resource or a template. `size`: bytes, when known. `ttl` (seconds), `cache_scope`: the server's by default."""

    name: str | None
    mime_type: str | None
    annotations: Annotations | None
    size: int | None
    ttl: float | None
    cache_scope: CacheScope | None
