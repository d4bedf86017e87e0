"""The options of calls, and the rules of the options of a `Client`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final, TypeAlias, TypedDict

from msgspec import UnsetType

from ...channel import LIMITS, TLS, Serves
from ...jsonrpc.leniency import CHOSEN
from ...jsonrpc.options import (
    ANYTHING,
    CALL_TIME,
    CALLABLE,
    FLAG,
    NAME,
    NONE,
    PAIRS,
    TEXT,
    TEXTS,
    TIME,
    Rule,
    instance,
    many,
    whole,
)
from ...observer import OBSERVERS
from ..protocol.params import ProgressNotificationParams
from ..protocol.revisions import Revision
from ..protocol.types import Root
from .handlers import OnElicit, OnSample, RootsSource

OnProgress: TypeAlias = Callable[[ProgressNotificationParams], object]
"""Called with each progress of a call: `progress`, `total` and `message`; the last two UNSET if the server did not set
them."""


class RequestOptions(TypedDict, total=False):
    """The options of a request; `Client.call_tool` describes them."""

    timeout: float | UnsetType | None
    total: float | None
    on_progress: OnProgress | None
    meta: Mapping[str, Any] | None
    on_elicit: OnElicit | None
    on_elicit_url: OnElicit | None
    on_sample: OnSample | None
    on_roots: RootsSource | None


class VersionedOptions(RequestOptions, total=False):
    """The options of calling a tool, getting a prompt or reading a resource."""

    version: str | None


ROOTS: Final = CALLABLE | many(instance((Root, str, PathLike), "a Root, a folder or a file: URI"))

HANDLER_OPTIONS: Final = {
    "on_elicit": CALLABLE | NONE,
    "on_elicit_url": CALLABLE | NONE,
    "on_sample": CALLABLE | NONE,
    "on_roots": ROOTS | NONE,
}
"""The rules of the options of a call that answer the server's questions in it."""

CLIENT_OPTIONS: Final = {
    "target": Rule(
        lambda target: (
            isinstance(target, str)
            or (TEXTS.fits(target) and not isinstance(target, Mapping))
            or hasattr(target, "attach")
            or isinstance(target, Serves)
        ),
        "a URL, a command as text or a list of texts, or an mcp.Server (dragoman.connect calls a Service)",
    ),
    "name": NAME,
    "version": TEXT,
    "title": TEXT | NONE,
    "revision": instance((str, Revision), "a revision or its date") | NONE,
    "timeout": CALL_TIME,
    "on_elicit": CALLABLE | NONE,
    "on_elicit_url": CALLABLE | NONE,
    "on_sample": CALLABLE | NONE,
    "sample_tools": FLAG,
    "roots": ROOTS | NONE,
    "extensions": many(ANYTHING),
    "on_log": CALLABLE | NONE,
    "on_progress": CALLABLE | NONE,
    "on_notification": CALLABLE | NONE,
    "cache": FLAG,
    "restart": FLAG,
    "rounds": whole(1),
    "probe": TIME,
    "lenient": CHOSEN,
    "limits": LIMITS | NONE,
    "trace": CALLABLE | NONE,
    "observers": OBSERVERS,
    "headers": PAIRS | NONE,
    "tls": TLS | NONE,
}
"""The rules of the options of a `Client`; those of `channel.Options` are checked there."""
