"""Imports within functions: these and no others, each with its reason; all else is imported where a module begins."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Final

import pytest

import dragoman

ROOT: Final = Path(dragoman.__file__).parents[1]

EXTRA: Final = "an optional extra that may not be installed: the words that name it stand beside the import"
USERS: Final = "a library that only the user's own annotations bring: it is there where this runs"
EVENTS: Final = "start-up: asyncio, of which a service that is only asked needs nothing"
WIRE: Final = "start-up: a wire that most programs never open"
TRACE: Final = "start-up: a trace that most programs never take"
WORKERS: Final = "start-up: what only several processes that serve together need"
STORE: Final = "start-up: what only functions that keep something for their callers need"
INSPECT: Final = "start-up: the standard library's inspect, which plain functions do not need"
VERSION: Final = "start-up: `dragoman --version`, which imports nothing"
COMMAND: Final = "start-up: what one command alone needs"
RARE: Final = "start-up: a part of the standard library for what most programs never do"
RARELY: Final = "start-up: what a command needs when something has failed, or a server asks for a token"
ROUTES: Final = "start-up: what only apps with HTTP routes need"
TERMINAL: Final = "start-up: what is shown on a terminal alone"
TASKS: Final = "start-up: what only services that have tasks, and callers that start some, need"
SUBSCRIPTIONS: Final = "start-up: what only services that have events, and peers that subscribe, need"
ASKED: Final = "start-up: what is only made when a document or metrics are asked for"

GUARDED: Final = "start-up: what only methods that are not for every caller, and servers behind a guard, need"

LAZY: Final = {
    ("dragoman", "dragoman.serving"): EVENTS,
    ("dragoman.auth.authentication", "dragoman.auth.jose"): EXTRA,
    ("dragoman.auth.client.authorizer", "dragoman.auth.dpop"): EXTRA,
    ("dragoman.auth.client.authorizer", "dragoman.auth.jose"): EXTRA,
    ("dragoman.auth.client.login", "dragoman.auth.jose"): EXTRA,
    ("dragoman.auth.client.person", "webbrowser"): RARE,
    ("dragoman.auth.client.requests", "dragoman.auth.dpop"): EXTRA,
    ("dragoman.auth.client.sources", "dragoman.auth.client.identity"): EXTRA,
    ("dragoman.auth.client.sources", "dragoman.auth.client.store.files"): EXTRA,
    ("dragoman.auth.client.sources", "dragoman.auth.jose"): EXTRA,
    ("dragoman.access", "getpass"): GUARDED,
    ("dragoman.cli.advice", "dragoman.cli.faults"): RARELY,
    ("dragoman.cli.auth.on_demand", "dragoman.auth.challenge"): RARELY,
    ("dragoman.cli.doctor.doctor", "dragoman.cli.doctor.http"): EXTRA,
    ("dragoman.cli.doctor.protocol", "dragoman.cli.doctor.http"): EXTRA,
    ("dragoman.cli.serving.authorizing", "dragoman.auth"): EXTRA,
    ("dragoman.cli.serving.exporting", "dragoman.telemetry.collector"): EXTRA,
    ("dragoman.console.opening", "dragoman.auth.guard"): EXTRA,
    ("dragoman.protecting", "dragoman.auth.guard"): EXTRA,
    ("dragoman.serving", "dragoman.transports.http.policy"): WIRE,
    ("dragoman.cli.serving.admin", "dragoman.cli.serving.admin_service"): ASKED,
    ("dragoman.serving", "dragoman.console"): ASKED,
    ("dragoman.serving", "dragoman.web"): ASKED,
    ("dragoman.rpc.binding.identity", "dragoman.access"): GUARDED,
    ("dragoman.rpc.method", "dragoman.access"): GUARDED,
    ("dragoman.rpc.dispatch", "dragoman.access"): GUARDED,
    ("dragoman.mcp.server.listing", "dragoman.access"): GUARDED,
    ("dragoman.auth.client.entries", "dragoman.auth.jose"): EXTRA,
    ("dragoman.cli.auth.on_demand", "dragoman.cli.auth.login"): COMMAND,
    ("dragoman.auth.fetch", "http.client"): RARE,
    ("dragoman.auth.fetch", "urllib"): RARE,
    ("dragoman.auth.fetching", "dragoman.auth.fetch"): EXTRA,
    ("dragoman.auth.fetch", "urllib.request"): RARE,
    ("dragoman.auth.client.store.sealing", "keyring"): EXTRA,
    ("dragoman.auth.client.store.sealing", "keyring.errors"): EXTRA,
    ("dragoman.mcp.extensions.events.sealing", "dragoman.store.sealing"): EXTRA,
    ("dragoman.channel", "json"): RARE,
    ("dragoman.jsonrpc.options", "difflib"): RARE,
    ("dragoman.net.reconnect", "random"): RARE,
    ("dragoman.schemes", "dragoman.system.words"): RARE,
    ("dragoman.cli", "dragoman.cli.app"): EXTRA,
    ("dragoman.cli", "dragoman.cli.commands"): VERSION,
    ("dragoman.cli.app", "dragoman.cli.help"): COMMAND,
    ("dragoman.cli.app", "dragoman.cli.misuse"): RARELY,
    ("dragoman.cli", "dragoman.jsonrpc.errors"): VERSION,
    ("dragoman.cli.progress", "rich.progress"): TERMINAL,
    ("dragoman.tasks.opening", "dragoman.store.sealing"): EXTRA,
    ("dragoman.tasks.opening", "dragoman.tasks.shared"): STORE,
    ("dragoman.tasks.opening", "dragoman.tasks.sqlite"): STORE,
    ("dragoman.rpc.including", "dragoman.access"): GUARDED,
    ("dragoman.cli.serving.reload", "watchfiles"): EXTRA,
    ("dragoman.connecting", "dragoman.transports.memory"): WIRE,
    ("dragoman.mcp.asking.request_state", "hashlib"): RARE,
    ("dragoman.mcp.protocol.headers", "hashlib"): RARE,
    ("dragoman.mcp.server.extending.home", "dragoman.mcp.session.lease"): WORKERS,
    ("dragoman.mcp.asking.request_state", "itsdangerous"): EXTRA,
    ("dragoman.mcp.asking.request_state", "itsdangerous.encoding"): EXTRA,
    ("dragoman.mcp.asking.request_state", "zlib"): RARE,
    ("dragoman.rpc.observing", "dragoman.rpc.tracing"): TRACE,
    ("dragoman.mcp.client.session", "dragoman.mcp.client.http.legacy_2024"): WIRE,
    ("dragoman.mcp.client.session", "dragoman.mcp.client.http.posts"): WIRE,
    ("dragoman.mcp.server.content", "mimetypes"): RARE,
    ("dragoman.mcp.server.context", "dragoman.mcp.session.session"): WIRE,
    ("dragoman.mcp.server.served", "dragoman.mcp.http.endpoint"): WIRE,
    ("dragoman.mcp.server.served", "dragoman.mcp.session.shared"): WORKERS,
    ("dragoman.mcp.server.served", "dragoman.bus.sealed"): WORKERS,
    ("dragoman.mcp.server.served", "dragoman.mcp.session.measuring"): ASKED,
    ("dragoman.mcp.asking.questions", "urllib.parse"): RARE,
    ("dragoman.mcp.protocol.uri_template", "urllib.parse"): RARE,
    ("dragoman.net.sockets", "urllib.parse"): RARE,
    ("dragoman.addresses", "ipaddress"): RARE,
    ("dragoman.net.urls", "ipaddress"): RARE,
    ("dragoman.net.urls", "urllib.parse"): RARE,
    ("dragoman.routes", "urllib.parse"): RARE,
    ("dragoman.rpc.binding.decoder", "copy"): RARE,
    ("dragoman.rpc.process.child", "asyncio"): EVENTS,
    ("dragoman.rpc.process.remote_context", "asyncio"): EVENTS,
    ("dragoman.rpc.service", "dragoman.rpc.openrpc"): ASKED,
    ("dragoman.rpc.routing.registering", "dragoman.rpc.routing.running"): ROUTES,
    ("dragoman.rpc.routing.registering", "inspect"): INSPECT,
    ("dragoman.sharing", "dragoman.store.opening"): STORE,
    ("dragoman.sharing", "dragoman.bus.contract"): WORKERS,
    ("dragoman.sharing", "dragoman.bus.sealed"): WORKERS,
    ("dragoman.rpc.routing.registering", "dragoman.routes"): ROUTES,
    ("dragoman.rpc.binding.by_pydantic", "pydantic"): USERS,
    ("dragoman.rpc.binding.compiled_schema", "jsonschema_rs"): EXTRA,
    ("dragoman.rpc.binding.json_schema", "jsonschema_rs"): EXTRA,
    ("dragoman.rpc.binding.signature", "inspect"): INSPECT,
    ("dragoman.rpc.context", "dragoman.rpc.binding.results"): STORE,
    ("dragoman.rpc.context", "dragoman.allowance"): STORE,
    ("dragoman.rpc.context", "dragoman.store.calls"): STORE,
    ("dragoman.rpc.context", "dragoman.store.opening"): STORE,
    ("dragoman.store.opening", "dragoman.store.shared"): STORE,
    ("dragoman.store.opening", "dragoman.store.sqlite"): STORE,
    ("dragoman.rpc.dispatch", "dragoman.rpc.background"): EVENTS,
    ("dragoman.rpc.binding.adapters", "pathlib"): RARE,
    ("dragoman.mcp.client.handlers", "pathlib"): RARE,
    ("dragoman.mcp.server.content", "pathlib"): RARE,
    ("dragoman.cli.app", "dragoman.cli.serving.settings"): COMMAND,
    ("dragoman.rpc.service", "dragoman.rpc.lifespan"): EVENTS,
    ("dragoman.rpc.method", "dragoman.rpc.process.declaring"): ASKED,
    ("dragoman.rpc.method", "dragoman.tasks.policy"): TASKS,
    ("dragoman.rpc.peer", "dragoman.rpc.event_subscription"): SUBSCRIPTIONS,
    ("dragoman.rpc.peer", "dragoman.rpc.task_handle"): TASKS,
    ("dragoman.rpc.service", "dragoman.rpc.service_events"): SUBSCRIPTIONS,
    ("dragoman.rpc.service", "dragoman.rpc.service_tasks"): TASKS,
    ("dragoman.rpc.service", "dragoman.rpc.runner"): EVENTS,
    ("dragoman.rpc.service", "dragoman.rpc.background"): EVENTS,
    ("dragoman.serving", "dragoman.net.accept"): WORKERS,
    ("dragoman.serving", "dragoman.workers.worker"): WORKERS,
    ("dragoman.serving", "dragoman.transports.http.app"): WIRE,
    ("dragoman.serving", "dragoman.transports.stream.stdio"): WIRE,
    ("dragoman.transports.http.connection", "dragoman.transports.http.websocket"): EXTRA,
    ("dragoman.transports.http.listener", "dragoman.transports.http.websocket"): EXTRA,
}
"""(The module, what is imported within one of its functions) -> why."""

BY_NAME: Final = {
    "dragoman.auth.testing": "serving, which stands above authorization",
    "dragoman.cli.serving.serve": "uvloop, an optional extra",
    "dragoman.cli.target": "the application that the command line names",
    "dragoman.doors": "a package's public names, each when it is first asked for",
    "dragoman.net.scheme": "a scheme's wire, when a URL has it",
    "dragoman.rpc.process.child": "the module of a function that runs in a child process",
}
"""Modules that import by a name made at run time -> what."""


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package, parsed."""
    found = {}
    for path in sorted((ROOT / "dragoman").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def package(module: str) -> str:
    """What the dots of a module's relative imports count from."""
    path = ROOT.joinpath(*module.split("."))
    return module if path.is_dir() else module.rpartition(".")[0]


def names(module: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The modules that a statement imports, each by its full name."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = resolve_name("." * node.level + (node.module or ""), package(module)) if node.level else str(node.module)
    below = {f"{base}.{alias.name}" for alias in node.names} & set(modules())
    yield from below
    if len(below) < len(node.names):
        yield base


def found(module: str) -> Iterator[tuple[str, bool]]:
    """What a module imports, and whether within a function. What is for types alone is left out."""

    def walk(node: ast.AST, within: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield from ((name, within) for name in names(module, child))
            yield from walk(child, within or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    yield from walk(modules()[module], False)


@cache
def loaded(module: str) -> frozenset[str]:
    """What is imported by the time that a module is: it, what it imports, and the packages that they are in."""
    known: set[str] = set()
    due = deque([module])
    while due:
        name = due.popleft()
        if name not in known:
            known.add(name)
            if name in modules():
                due.extend(other for other, within in found(name) if not within)
                due.extend(filter(None, [name.rpartition(".")[0]]))
    return frozenset(known)


def test_lazy_imports_are_these_and_no_others() -> None:
    lazy = {(module, name) for module in modules() for name, within in found(module) if within}
    assert lazy == set(LAZY)


@pytest.mark.parametrize(("module", "name"), LAZY)
def test_a_lazy_import_is_needed(module: str, name: str) -> None:
    """Nothing that its module imports where it begins has imported it by then."""
    assert name not in loaded(module)


def test_modules_that_import_by_name_are_these_and_no_others() -> None:
    by_name = {
        module
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
    }
    assert by_name == set(BY_NAME)
