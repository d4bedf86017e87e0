"""What a debugger, a log and a notebook show of public objects, and what a pickle of them would hold."""

from __future__ import annotations

import copy
import importlib
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from dragoman import Caller, Identity, Options, RpcError, Service, connect, http_app, serve
from dragoman.auth import (
    Bearer,
    ClientCredentials,
    Enterprise,
    Exchange,
    Introspection,
    Login,
    MutualTls,
    Proxy,
    Static,
    Token,
)
from dragoman.auth.jose import new_key
from dragoman.jsonrpc.errors import InvalidParams, LocalError
from dragoman.mcp import Client, Server
from dragoman.telemetry import Metrics

SECRET = "swordfish-swordfish"
URL = f"amqp://ada:{SECRET}@127.0.0.1/calculator?token={SECRET}"
AS, MCP = "https://as.example", "https://a.example/mcp"

DOORS = (
    *("dragoman", "dragoman.auth", "dragoman.auth.server", "dragoman.bus", "dragoman.mcp", "dragoman.middleware"),
    *("dragoman.observer", "dragoman.routes", "dragoman.store", "dragoman.sync", "dragoman.telemetry"),
    *("dragoman.auth.testing", "dragoman.jsonrpc", "dragoman.mcp.client.blocking", "dragoman.testing"),
)
SHOWN_BY_THEIR_KIND = {
    *("Answers", "Clock", "IssuerClock"),  # of tests
    *("AuthorizationServer", "MetricsPage", "TracedBus"),  # of servers
    *("SyncBatch", "SyncNotifications"),  # of one block
    "AskParked",  # of one call
}
"""Classes whose objects have nothing to say but their class."""


def public(module: ModuleType) -> list[type]:
    return [one for name in dir(module) if not name.startswith("_") and isinstance(one := getattr(module, name), type)]


@pytest.mark.parametrize("door", DOORS)
def test_what_is_public_shows_what_it_is(door: str) -> None:
    bare = {
        kind.__name__
        for kind in public(importlib.import_module(door))
        if kind.__module__.startswith("dragoman")
        and not any("__repr__" in vars(base) for base in kind.__mro__[:-1])
        and not getattr(kind, "_is_protocol", False)
    }
    assert bare <= SHOWN_BY_THEIR_KIND


class OutOfStock(RpcError):
    code = 1001
    message = "Out of stock"


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: RpcError("No"), "RpcError('No', code=-32603)"),
        (lambda: RpcError("No", {"a": "b"}, code=7), "RpcError('No', {'a': 'b'}, code=7)"),
        (lambda: OutOfStock(), "OutOfStock('Out of stock', code=1001)"),
        (lambda: RpcError.of(-32602, "Invalid params", [1]), "InvalidParams('Invalid params', [1], code=-32602)"),
        (lambda: Client(Server("shop")), "<mcp.Client <mcp.Server shop 0.0.0>>"),
        (
            lambda: Client(f"https://ada:{SECRET}@a.example/mcp?key={SECRET}"),
            "<mcp.Client https://ada:***@a.example:443/mcp>",
        ),
        (lambda: Client(["server", "--token", SECRET]), "<mcp.Client command 'server'>"),
        (lambda: Client(f"server --token {SECRET}"), "<mcp.Client command 'server'>"),
        (lambda: connect(URL), "<connect amqp://ada:***@127.0.0.1:5672/calculator: await it, or write async with>"),
        (lambda: connect(f"stdio:server {SECRET}"), "<connect command 'server': await it, or write async with>"),
        (lambda: serve(Service("a"), urls=[URL]), "<serve amqp://ada:***@127.0.0.1:5672/calculator>"),
        (lambda: http_app({"/rpc": Service("a")}), "<http_app a at /rpc>"),
        (lambda: Bearer(AS, resource=MCP), f"Bearer(['{AS}'], resource='{MCP}')"),
        (lambda: introspection(), f"Introspection('{AS}/i', issuer='{AS}', resource='{MCP}')"),
        (
            lambda: Caller(scheme="http", headers={"authorization": SECRET}),
            "Caller(scheme='http', headers=<authorization>)",
        ),
        (lambda: Options(auth=("ada", SECRET), headers={"x-key": SECRET}), "Options(headers=<x-key>, auth=***)"),
        (lambda: MutualTls({"a": []}), "MutualTls(1 callers)"),
    ],
)
def test_it_says_what_and_where_and_no_secret(make: Callable[[], Any], shown: str) -> None:
    made = make()
    assert repr(made) == shown
    assert SECRET not in f"{made} {[made]}"


def test_metrics_say_since_when() -> None:
    assert repr(Metrics()).startswith("<Metrics since ")


def test_the_data_of_an_error_is_cut_off_in_its_repr() -> None:
    assert len(repr(InvalidParams("No", "x" * 10_000))) < 400


def introspection() -> Introspection:
    return Introspection(f"{AS}/i", issuer=AS, resource=MCP, client_id="c", secret=SECRET)


@pytest.mark.parametrize(
    "make",
    [
        introspection,
        lambda: Exchange(client_id="c", secret=SECRET),
        lambda: Bearer(AS, resource=MCP, exchange=Exchange(client_id="c", secret=SECRET)),
        lambda: ClientCredentials("c", secret=SECRET),
        lambda: Login(client_id="c", client_secret=SECRET),
        lambda: Token(lambda: SECRET),
        lambda: Enterprise(idp=AS, idp_client_id="a", client_id="b", id_token=SECRET),
        lambda: Proxy(AS, client_id="c", client_secret=SECRET),
        lambda: Static({SECRET: "ada"}),
        lambda: new_key("ES256"),
    ],
)
def test_what_holds_a_secret_is_not_pickled(make: Callable[[], Any]) -> None:
    made = make()
    with pytest.raises(LocalError, match="it holds a secret"):
        pickle.dumps(made)
    assert SECRET not in repr(made)
    assert type(copy.deepcopy([made])[0]) is type(made)


def test_identities_and_callers_are_keys_of_dicts() -> None:
    ada = Identity(subject="ada", issuer=AS, claims={"groups": ["a"]}, scopes=frozenset({"b"}))
    bob = Identity(subject="bob", issuer=AS, claims={"groups": ["a"]})
    assert {ada: 1, bob: 2}[copy.deepcopy(ada)] == 1
    here, there = (Caller(scheme="http", remote=f"{n}:1", headers={"a": "b"}, identity=ada) for n in (1, 2))
    assert {here, there, copy.deepcopy(here)} == {here, there}
