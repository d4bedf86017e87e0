"""Every option of every public constructor and decorator is checked when it is given, with an error that names it.

The signatures are enumerated: an option that is new and has no check fails here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import dragoman
import dragoman.sync
from dragoman import Limits, LocalError, Options, Service
from dragoman.auth import AuthLimits, Bearer, Introspection, MutualTls, Static
from dragoman.jsonrpc.leniency import Leniency
from dragoman.jsonrpc.options import ALIKE, Rule, nearest, rules_of
from dragoman.mcp import Client, HttpOptions, Server, Tasks
from dragoman.mcp.client import blocking
from dragoman.mcp.server.options import PromptOptions, ResourceOptions, ToolOptions
from dragoman.rpc.channel_peer import ChannelPeer
from dragoman.rpc.method import RunOptions
from dragoman.rpc.runner import Runner
from tests.behind import behind


def function(a: str) -> str:
    return a


def registered(decorator: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **options: decorator(**options)(function)


def completed(**options: Any) -> None:
    server = Server("x")
    server.add_prompt(function)
    server.completion("function", "a", **options)(function)


def names(of: Any) -> list[str]:
    """The options of a constructor, a function or a TypedDict."""
    if hasattr(of, "__required_keys__"):
        return sorted(get_type_hints(of))
    parameters = inspect.signature(of).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]


async def peer(**options: Any) -> None:
    ChannelPeer(Runner(behind(Service("x"))), **options)


HERE = "https://mcp.example/mcp"
ASKED: dict[str, Any] = {"issuer": "https://as.example", "resource": HERE, "client_id": "a", "secret": "b"}
OURS = {"store", "load_board"}
"""Options that only this package gives."""

TAKERS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "Limits": (Limits, Limits),
    "Limits.but": (Limits, Limits().but),
    "Options": (Options, Options),
    "HttpOptions": (HttpOptions, HttpOptions),
    "Leniency": (Leniency, Leniency),
    "AuthLimits": (AuthLimits, AuthLimits),
    "Bearer": (Bearer, lambda **o: Bearer("https://as.example", **{"resource": HERE} | o)),
    "Introspection": (Introspection, lambda **o: Introspection("https://as.example/i", **ASKED | o)),
    "MutualTls": (MutualTls, lambda **o: MutualTls({"a": []}, **o)),
    "Static": (Static, lambda **o: Static({"kN3xV0q2f9Wb": "ada"}, **o)),
    "Service": (Service, lambda **o: Service("x", **o)),
    "Service.method": (Service.method, lambda **o: Service("x").method(**o)(function)),
    "Service.include": (Service.include, lambda **o: Service("x").include(Service("y"), **o)),
    "Server": (Server, lambda **o: Server("x", **o)),
    "Server.tool": (ToolOptions, lambda **o: Server("x", extensions=[Tasks()]).tool(**o)(function)),
    "Server.add_tool": (ToolOptions, lambda **o: Server("x", extensions=[Tasks()]).add_tool(function, **o)),
    "Server.prompt": (PromptOptions, lambda **o: Server("x").prompt(**o)(function)),
    "Server.resource": (ResourceOptions, lambda **o: Server("x").resource("x://{a}", **o)(function)),
    "Server.completion": (RunOptions, completed),
    "Server.include": (Server.include, lambda **o: Server("x").include(Service("y"), **o)),
    "Peer": (ChannelPeer, peer),
    "connect": (dragoman.connect, lambda **o: dragoman.connect("memory:x", **o)),
    "sync.connect": (dragoman.connect, lambda **o: dragoman.sync.connect("memory:x", **o)),
    "serve": (dragoman.serve, lambda **o: dragoman.serve(Service("x"), **({"urls": "memory:x"} | o))),
    "http_app": (dragoman.http_app, lambda **o: dragoman.http_app(Service("x"), **o)),
    "Client": (Client, lambda **o: Client("memory:x", **o)),
    "sync.connect of MCP": (Client, lambda **o: blocking.connect("memory:x", **o)),
}

CASES = [(taker, name) for taker, (of, _) in TAKERS.items() for name in names(of) if name not in OURS]


class Wrong:
    """No value of any option."""

    def __repr__(self) -> str:
        return "Wrong()"


@pytest.mark.parametrize(("taker", "option"), CASES)
async def test_a_wrong_option_is_named(taker: str, option: str) -> None:
    async def give() -> None:
        made = TAKERS[taker][1](**{option: Wrong()})
        if inspect.iscoroutine(made):
            await made

    with pytest.raises(LocalError, match=rf"\b{option} is .*, not Wrong\(\)"):
        await give()


@pytest.mark.parametrize(
    "taker", ["Service.method", "Server.tool", "Server.prompt", "Server.resource", "Server.completion"]
)
@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("timeout", "5"),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", float("nan")),
        ("timeout", True),
        ("concurrency", 0),
        ("concurrency", 1.0),
        ("concurrency", True),
        ("queue", -1),
        ("queue", "3"),
        ("inline", 1),
    ],
)
def test_how_a_function_runs(taker: str, option: str, wrong: Any) -> None:
    with pytest.raises(LocalError, match=rf"\b{option} is"):
        TAKERS[taker][1](**{option: wrong})


@pytest.mark.parametrize(
    ("taker", "options", "words"),
    [
        ("Limits", {"message_size": "4MiB"}, "Limits: message_size is a whole number of at least 1, not '4MiB'"),
        ("Limits", {"calls": 0}, "at least 1, not 0"),
        ("Limits", {"call_timeout": -0.1}, "number of seconds, 0 or more, or None, not -0.1"),
        ("Limits", {"drain_timeout": None}, "drain_timeout is a number of seconds, 0 or more, not None"),
        ("Limits.but", {"threads": True}, "threads is a whole number"),
        ("HttpOptions", {"session_idle": "1800"}, "session_idle is a number of seconds"),
        ("HttpOptions", {"json": 0}, "json is True or False, not 0"),
        (
            "Options",
            {"hosts": [5]},
            "hosts is text, or a list, of which each is text, or None, not [5]".replace("[", r"\["),
        ),
        ("Options", {"framing": "lines"}, "framing is 'newline' or"),
        ("Options", {"auth": ("user",)}, "or a pair of user and password, or a value of dragoman.auth"),
        ("Options", {"auth": "oauth"}, "for OAuth write auth=Login"),
        ("Options", {"headers": {"a": 1}}, "headers is a dict from text to text"),
        ("Service", {"middleware": [3]}, "middleware is a list, of which each is a function"),
        ("Service", {"null_id": "none"}, "null_id is 'request' or 'notification'"),
        ("Service.method", {"errors": [ValueError]}, "errors is a list, of which each is a subclass of RpcError"),
        ("Service.method", {"errors": iter([ValueError])}, "errors is a list, of which each is a subclass of RpcError"),
        ("Server", {"ttl": float("inf")}, "ttl is a number of seconds, 0 or more"),
        ("Server", {"page_size": 0}, "page_size is a whole number of at least 1, or None"),
        ("Server.resource", {"cache_scope": "all"}, "cache_scope is 'private' or 'public'"),
        ("Server.tool", {"icons": ["a.png"]}, "icons is a list, of which each is an Icon"),
        ("Client", {"rounds": 0}, "rounds is a whole number of at least 1"),
        ("connect", {"idempotent": "method"}, "idempotent is a list"),
        ("serve", {"urls": 5}, "urls is text, or a list"),
    ],
)
def test_words(taker: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words.replace("(", r"\(")):
        TAKERS[taker][1](**options)


def test_an_option_of_an_extension_names_it() -> None:
    with pytest.raises(LocalError, match=r"task is an option of the extension Tasks: Server\(extensions="):
        Server("x").tool(task=True)(function)


def test_what_is_given_by_place() -> None:
    for make in (Service, Server):
        for name in (5, "", None):
            with pytest.raises(LocalError, match="name is text that is not empty"):
                make(name)  # type: ignore[arg-type]
    for app in (Service("x"), Server("x")):
        with pytest.raises(LocalError, match="5 is not a Service, and its class marks no function"):
            app.include(5)
    for served in (Service("x"), Server("x")):
        with pytest.raises(LocalError, match="middleware is a function"):
            served.use(5)  # type: ignore[arg-type]


def test_an_option_of_a_kind_that_has_no_rule_is_seen_at_import() -> None:
    class More(Limits, frozen=True):
        size: complex = 1j

    with pytest.raises(KeyError):
        rules_of(More)
    assert rules_of(Limits)["calls"].words == "a whole number of at least 1"


def test_what_is_long_is_shortened() -> None:
    with pytest.raises(LocalError, match=r"not 'x{96}\.\.\.$"):
        Limits(calls="x" * 200)  # type: ignore[arg-type]


def test_rules_are_joined_in_words() -> None:
    either = Rule(lambda value: value == 1, "one") | Rule(lambda value: value == 2, "two")
    assert (either.words, either.fits(1), either.fits(2), either.fits(3)) == ("one, or two", True, True, False)


def test_few_of_many_names_are_suggested() -> None:
    """A peer may have any number of names."""
    found = nearest("get", [f"get_{number}" for number in range(10_000)])
    assert found.startswith("did you mean get_0, get_1, ")
    assert found.count("get_") == ALIKE
