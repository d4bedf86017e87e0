"""What `help()` says: each option by its name, and no line of ours is too long for a screen."""

from __future__ import annotations

import inspect
import pydoc
import re
import sys
import typing
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import Service, connect, http_app, serve
from dragoman.mcp import Client, Server
from dragoman.mcp.client.options import VersionedOptions
from dragoman.mcp.server.options import PromptOptions, ResourceOptions, ToolOptions
from dragoman.rpc.method import CallOptions, MethodOptions, RunOptions

api, app = Service("api"), Server("app")
SHOWN: dict[str, tuple[Any, Any]] = {
    "Service": (Service, None),
    "Server": (Server, None),
    "Client": (Client, None),
    "client.call_tool": (Client.call_tool, VersionedOptions),
    "connect": (connect, None),
    "serve": (serve, None),
    "http_app": (http_app, None),
    "api.method": (api.method, MethodOptions),
    "api.run": (api.run, None),
    "app.tool": (app.tool, ToolOptions),
    "app.prompt": (app.prompt, PromptOptions),
    "app.resource": (app.resource, ResourceOptions),
    "app.completion": (app.completion, RunOptions),
    "app.method": (app.method, CallOptions),
}
"""What is asked about, and the options that stand behind its `**options`."""
CASES = [pytest.param(*given, id=name) for name, given in SHOWN.items()]
WIDTH = 120


def options(shown: Callable[..., Any], more: Any) -> set[str]:
    """The names of the options."""
    parameters = inspect.signature(shown).parameters.values()
    named = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
    return named | (set(typing.get_type_hints(more)) if more else set())


@pytest.mark.parametrize(("shown", "more"), CASES)
def test_each_option_is_named(shown: Any, more: Any) -> None:
    text = inspect.getdoc(shown) or ""
    assert {one for one in options(shown, more) if not re.search(rf"`{one}[`=]", text)} == set()


@pytest.mark.parametrize(("shown", "more"), CASES)
def test_no_line_is_too_long(shown: Any, more: Any) -> None:
    """Before Python 3.13 a signature is one line, however long: `inspect` gives it, and nothing of ours."""
    lines = pydoc.plain(pydoc.render_doc(shown)).splitlines()
    ours = [line for line in lines if sys.version_info >= (3, 13) or not re.search(r"\w\(.*\) -> ", line)]
    assert [line for line in ours if len(line) > WIDTH] == []


@pytest.mark.parametrize(("shown", "more"), CASES)
def test_a_signature_names_no_module_and_no_default_at_length(shown: Any, more: Any) -> None:
    signature = str(inspect.signature(shown))
    assert "dragoman." not in signature
    assert not re.search(r"\w+\([^()]{40,}\)", signature[1:-1].rpartition(")")[0])
