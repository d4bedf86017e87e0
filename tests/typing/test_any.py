"""Where a public signature says `Any`: nowhere without a reason that stands here.

A bare `Any` turns the type checker off for whoever writes the argument, or uses the result. A JSON value of the user's
may be one, an option may not. Looked at: the parameters, results and attributes of what the documentation's modules
export, of the `TypedDict`s of options and the classes of results that these name; of overloads in place of what stands
behind them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any

from ..test_docstrings import _class, ours
from ..test_public_names import DOCUMENTED

JSON = "a JSON value, the caller's or the far end's"
ID = "the id of a message as it came: a number, text, null, or their JSON text"
RESULT = "decoded to the type that the caller names; without one a JSON value"
FORM = (
    "what annotations may be, such as `int | None` and Literal, for which Python has no type; overloads have the rest"
)
BOTH = "the value in a plain function and awaited in `async def`, which is no type"
OWN = "the library gives it to itself: no program does"
STRANGE = "another library's, whose signature it repeats"

REASONS = {
    JSON: """
        BlockingClient.call() Call.params CallStore.get(default) CallStore.set(value) Client.call() Context.call(params)
        Context.notify(params) Context.progress(value) ErrorObject.data Events.grant(value) Fetched.json Fetcher.post_json(content)
        LoggingMessageNotificationParams.data Notification.params Observation.params OutgoingBatch.call(params)
        OutgoingBatch.notify(params) Peer.call(params) Peer.notify(params) Peer.start(params)
        ReceivedEvent.data SyncPeer.start(params) TaskStatus.progress Proxy.__call__(args) Proxy.__call__(kwargs)
        Request.params Result.result RouteResponse.body RpcError.__init__(data) RpcError.data RpcError.of(data)
        ServerExtension.grant(value) SyncBatch.call(params) SyncBatch.notify(params) SyncPeer.call(params)
        SyncPeer.notify(params) Tasks.grant(value) TopicGrant.value
    """,
    ID: """
        Call.id Context.id Failure.id Malformed.id Malformed.spoils Observation.id Request.id Result.id failure(id)
    """,
    RESULT: """
        BlockingClient.request() Call.decoded(result) Call.decoded() Client.request() ExtensionClient.request()
        ExtensionClient.stream()
        ExtensionClient.tool_result() ExtensionClient.tool_result(result) Peer.call() Proxy.__call__()
        RouteRequest.json() SyncPeer.call()
    """,
    FORM: """
        Binding.result_type Context.call(result) Context.call_all(result) Context.elicit(schema)
        OutgoingBatch.call(result) Peer.call(result) RouteRequest.json(type) SyncBatch.call(result) SyncPeer.call(result)
        Peer.start(result) Peer.task(result) SyncPeer.start(result) SyncPeer.task(result) TaskHandle.__init__(result)
        EventSubscription.__init__(result) Peer.subscribe(result) SyncPeer.subscribe(result)
    """,
    BOTH: "CallStore.delete() CallStore.get() Context.call() Context.call_all()",
    OWN: """
        EventSubscription.__init__(peer) Options.load_board Options.store Outgoing.extra Peer.__init__(runner)
        TaskHandle.__init__(peer)
    """,
    STRANGE: """
        HistogramExporter.export(kwargs) HistogramExporter.shutdown(kwargs)
        Serving.send() Serving.send(value) Serving.throw() Serving.throw(error)
    """,
    "the result of the call around which it is, or that goes on": """
        DetachedCall.result ServerExtension.around() Tasks.around()
    """,
    "the default of a parameter of any type": "Depends()",
    "the result of the edit, which is the engine's user's": "Engine.change()",
    "a mapping where the call is by name, a tuple where it is by position": "Call.arguments",
    "a Context of a call that comes in, the Peer of one that goes out": "Call.context Call.options",
}
"""For each reason its places: "Class.attribute", "Class.method(parameter)", "Class.method()" for the result."""


def public(name: str) -> bool:
    return not name.startswith("_") or name in ("__init__", "__call__", "__aenter__", "__await__")


def bare(annotation: str) -> bool:
    """Whether an annotation is `Any`, a union with it, or what is awaited for it."""

    def parts(node: ast.expr) -> Iterator[ast.expr]:
        if isinstance(node, ast.BinOp):
            yield from parts(node.left)
            yield from parts(node.right)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("Awaitable", "Coroutine", "Annotated"):
            inner = node.slice
            yield from parts(inner.elts[-1] if isinstance(inner, ast.Tuple) else inner)
        else:
            yield node

    return any(isinstance(one, ast.Name) and one.id == "Any" for one in parts(ast.parse(annotation, mode="eval").body))


def signatures(function: Any) -> list[Callable[..., Any]]:
    """A function as type checkers see it: its overloads, if it has some."""
    inner = inspect.unwrap(function)
    return list(typing.get_overloads(inner)) or [inner]


def named(annotation: str, module: str) -> Iterator[type]:
    """The classes of ours that an annotation names."""
    known = vars(sys.modules[module])
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        value = known.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(value, type) and value.__module__.startswith("dragoman."):
            yield value


def attributes(kind: type) -> Iterator[tuple[str, str]]:
    """The public attributes that a class or its methods annotate, with the annotations."""
    body = _class(kind)
    for node in ast.walk(body):
        if isinstance(node, ast.AnnAssign):
            whose = node.target.value if isinstance(node.target, ast.Attribute) else None
            mine = node in body.body if whose is None else isinstance(whose, ast.Name) and whose.id == "self"
            name = ast.unparse(node.target).removeprefix("self.")
            if mine and public(name):
                yield name, ast.unparse(node.annotation)


class Found:
    """`Any` by its place: "Class.method(parameter)", "Class.method()" for a result, "Class.attribute"."""

    def __init__(self) -> None:
        self.places: set[str] = set()
        self._seen: set[object] = set()

    def of(self, value: Any, name: str) -> None:
        """What one exported name shows."""
        if isinstance(value, type):
            self._of_class(value)
        elif inspect.isfunction(value):
            self._of_function(value, name)

    def _of_class(self, kind: type) -> None:
        for one in ours(kind) if kind.__module__.startswith("dragoman.") else ():
            if one in self._seen:
                continue
            self._seen.add(one)
            for name, annotation in attributes(one):
                self._look(f"{one.__name__}.{name}", annotation, one.__module__)
            for name, value in vars(one).items():
                inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if inspect.isfunction(inner) and public(name):
                    self._of_function(inner, f"{one.__name__}.{name}", "" if isinstance(value, property) else "()")

    def _of_function(self, function: Any, name: str, result: str = "()") -> None:
        for one in signatures(function):
            for parameter, annotation in one.__annotations__.items():
                if isinstance(annotation, str) and parameter != "self":
                    where = f"{name}{result}" if parameter == "return" else f"{name}({parameter})"
                    self._look(where, annotation, one.__module__, follow=parameter == "return")

    def _look(self, where: str, annotation: str, module: str, *, follow: bool = False) -> None:
        if bare(annotation):
            self.places.add(where)
        for kind in named(annotation, module):
            if follow or typing.is_typeddict(kind):
                self._of_class(kind)


def found() -> set[str]:
    """All places of a bare `Any`."""
    places = Found()
    for module in DOCUMENTED:
        door = importlib.import_module(module)
        for name in door.__all__:
            places.of(getattr(door, name), name)
    return places.places


def test_every_any_has_its_reason_and_every_reason_its_any() -> None:
    told = [place for places in REASONS.values() for place in places.split()]
    assert len(told) == len(set(told))
    assert found() == set(told)


if __name__ == "__main__":
    print(*sorted(found()), sep="\n")
