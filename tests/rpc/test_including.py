"""Methods of instances: what is registered by their marks, and what is refused with the line to write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest

from dragoman import Context, Depends, LocalError, Service, method
from dragoman.channel import Caller, Identity
from dragoman.mcp import Client, Server, prompt, resource, tool


class Counter:
    """Counts."""

    def __init__(self, start: int = 0) -> None:
        self.at = start

    @method
    def add(self, by: int = 1) -> int:
        "Add `by`."
        self.at += by
        return self.at

    @method("is", inline=True)
    def now(self) -> int:
        return self.at

    @method
    async def waits(self, context: Context) -> list[Any]:
        return [self.at, context.method]

    @method
    @staticmethod
    def twice(a: int) -> int:
        return 2 * a

    @classmethod
    @method
    def name(cls) -> str:
        return cls.__name__

    def hidden(self) -> None:
        """Not marked."""


class Steps(Counter):
    def add(self, by: int = 1) -> int:  # marked in the base
        return super().add(by * 10)

    @method
    def back(self) -> int:
        self.at -= 1
        return self.at

    twice = None  # type: ignore[assignment]


def call(api: Service, method: str, params: Any = (), **options: Any) -> Any:
    message = {"jsonrpc": "2.0", "method": method, "params": params, "id": 1}
    return msgspec.json.decode(api.answer(msgspec.json.encode(message), **options) or b"")["result"]


def test_an_instance_gives_its_methods() -> None:
    api = Service("counting")
    api.include(Counter(5), prefix="a.")
    api.include(Counter(), prefix="b.")
    assert list(api.methods)[:5] == ["a.add", "a.is", "a.waits", "a.twice", "a.name"]
    assert [call(api, "a.add"), call(api, "a.add", {"by": 2}), call(api, "b.add"), call(api, "a.is")] == [6, 8, 1, 8]
    assert call(api, "a.waits") == [8, "a.waits"]
    assert [call(api, "a.twice", [4]), call(api, "b.name")] == [8, "Counter"]
    assert api.methods["a.add"].description == "Add `by`."


def test_marks_are_inherited() -> None:
    api = Service("steps")
    api.include(Steps(1))
    assert list(api.methods) == ["add", "is", "waits", "name", "back"]
    assert [call(api, "add"), call(api, "back"), call(api, "name")] == [11, 10, "Steps"]


def test_a_decorated_class_is_made_here() -> None:
    api = Service("counting")

    @api.service
    class Greeter:
        @method
        def greet(self, name: str, by: Annotated[str, Depends(lambda: "ada")]) -> str:
            return f"{by} greets {name}"

    assert call(api, "greet", ["bob"]) == "ada greets bob"
    assert Greeter().greet("x", "y") == "y greets x", "the class is not changed"


def test_what_cannot_be_registered_is_told_with_the_line_to_write() -> None:
    api = Service("refuses")
    with pytest.raises(
        LocalError, match=r"within the class Wrong.*mark it with @method \(from dragoman import method\)"
    ):

        class Wrong:
            @api.method
            def f(self, a: int) -> int:
                return a

    with pytest.raises(LocalError, match="within the class Static, where there is no instance yet"):

        class Static:
            @staticmethod
            @api.method
            def f(a: int) -> int:
                return a

    with pytest.raises(
        LocalError, match=r"stands above the class Counter.*service\.include\(Counter\(\.\.\.\)\) after"
    ):
        api.method(Counter)
    with pytest.raises(LocalError, match=r"service\.include\(Counter\(\.\.\.\)\) after the class"):
        api.method(Counter.now)
    with pytest.raises(LocalError, match=r"include takes an instance: include\(Counter\(\.\.\.\)\)"):
        api.include(Counter)
    with pytest.raises(LocalError, match="its class marks no function: from dragoman import method, and @method above"):
        api.include(object())
    with pytest.raises(LocalError, match="stands above a class"):
        api.service(Counter())  # type: ignore[arg-type]
    with pytest.raises(
        LocalError, match=r"Needs\(\.\.\.\) needs db: leave the decorator out and write service\.include"
    ):

        @api.service
        class Needs:
            def __init__(self, db: object) -> None:
                """Never made."""

    with pytest.raises(LocalError, match="@method marks a function within a class"):
        method(Counter)
    assert not api.methods
    server = Server("refuses")
    with pytest.raises(LocalError, match=r"from dragoman\.mcp import tool\) and write server\.include"):

        class Tools:
            @server.tool
            def f(self) -> None:
                """Never called."""


def test_a_name_that_is_taken_adds_nothing() -> None:
    api = Service("taken")
    api.include(Steps(), prefix="a.")
    before = list(api.methods)
    with pytest.raises(LocalError, match=r"taken has a method 'a\.add' already: give another name"):
        api.include(Counter(), prefix="a.")
    assert list(api.methods) == before


def test_a_static_function_and_a_bound_one_are_functions() -> None:
    api = Service("bound")
    api.method("add")(Counter(2).add)
    api.method("twice")(Counter.twice)
    assert [call(api, "add"), call(api, "twice", [3])] == [3, 6]


class Library:
    def __init__(self, shelf: str) -> None:
        self.shelf = shelf

    def opened(self) -> Iterator[str]:
        yield self.shelf

    @tool(title="Find a book")
    def find(self, title: str) -> str:
        return f"{title} on {self.shelf}"

    @resource("books://{name}")
    def book(self, name: str) -> str:
        return f"{name} of {self.shelf}"

    @prompt
    def ask(self, name: str) -> str:
        return f"Where is {name}?"


async def test_an_instance_gives_tools_resources_and_prompts() -> None:
    app = Server("library")
    app.include(Library("A"), prefix="lib_")
    async with Client(app) as client:
        assert await client.call_tool("lib_find", {"title": "Emma"}, result=str) == "Emma on A"
        assert (await client.read_resource("books://emma")).contents[0].text == "emma of A"
        assert "Where is Emma?" in str((await client.get_prompt("lib_ask", {"name": "Emma"})).messages)
        assert (await client.list_tools())[0].title == "Find a book"
    with pytest.raises(LocalError, match="there is a tool 'lib_find' already"):
        app.include(Library("B"), prefix="lib_")


def test_answer_takes_the_caller() -> None:
    api = Service("who")

    @api.method
    def thread(context: Context) -> str:
        return "" if context.caller.identity is None else str(context.caller.identity.subject)

    @api.method
    async def waits(context: Context) -> str:
        return "" if context.caller.identity is None else str(context.caller.identity.subject)

    @api.method(inline=True)
    def quick(context: Context) -> str:
        return "" if context.caller.identity is None else str(context.caller.identity.subject)

    ada = Caller(scheme="http", identity=Identity(subject="ada"))
    for name in ("thread", "waits", "quick"):
        assert call(api, name, caller=ada) == "ada"
        assert call(api, name) == ""
    batch = b'[{"jsonrpc":"2.0","method":"quick","id":1},{"jsonrpc":"2.0","method":"waits","id":2}]'
    assert [one["result"] for one in msgspec.json.decode(api.answer(batch, caller=ada) or b"")] == ["ada", "ada"]


async def test_answer_async_takes_the_caller() -> None:
    api = Service("who")
    api.method("me")(who)
    ada = Caller(identity=Identity(subject="ada"))
    assert await api.answer_async(b'{"jsonrpc":"2.0","method":"me","id":1}', caller=ada) == (
        b'{"jsonrpc":"2.0","result":"ada","id":1}'
    )


async def who(context: Context) -> str:
    return "" if context.caller.identity is None else str(context.caller.identity.subject)


# -- services within services ----------------------------------------------------------------------


def add(a: int, b: int) -> int:
    return a + b


def asked(service: Service, method: str) -> Any:
    return msgspec.json.decode(
        service.answer(b'{"jsonrpc":"2.0","method":"%s","params":[1,2],"id":1}' % method.encode()) or b""
    ).get("result")


def test_a_service_that_is_included_stays_in_step() -> None:
    inner, middle, outer = Service("inner"), Service("middle"), Service("outer")
    middle.include(inner, namespace="b")
    outer.include(middle, namespace="a")
    inner.method(
        add,
    )
    inner.method("quick", inline=True)(add)
    assert list(outer.methods) == ["a.b.add", "a.b.quick"]
    assert asked(outer, "a.b.add") == asked(outer, "a.b.quick") == 3
    assert asked(outer, "add") is None
    seen: list[str] = []

    @inner.use
    async def told(call: Any, next: Any) -> Any:
        seen.append(call.method)
        return await next(call)

    assert asked(outer, "a.b.quick") == 3
    assert seen == ["a.b.quick"]
    document = outer.openrpc()
    assert [one["name"] for one in document["methods"]] == ["a.b.add", "a.b.quick"]


def test_a_method_that_is_removed_is_unknown_wherever_its_service_is_included() -> None:
    inner, middle, outer = Service("inner"), Service("middle"), Service("outer")
    middle.include(inner, namespace="b")
    outer.include(middle, namespace="a")
    inner.method("quick", inline=True)(add)
    inner.method(add)
    middle.remove("b.add")
    assert list(outer.methods) == ["a.b.quick"]
    assert asked(inner, "add") == 3
    inner.remove("add")
    inner.remove("quick")
    assert [list(one.methods) for one in (inner, middle, outer)] == [[], [], []]
    for service, name in ((inner, "quick"), (outer, "a.b.quick")):
        unknown = {"code": -32601, "message": "Method not found"}
        answer = service.answer(b'{"jsonrpc":"2.0","method":"%s","params":[1,2],"id":1}' % name.encode())
        assert msgspec.json.decode(answer or b"")["error"] == unknown
    with pytest.raises(LocalError, match="inner has no method 'quick'"):
        inner.remove("quick")
    inner.method("quick")(lambda a, b: a - b)
    assert asked(outer, "a.b.quick") == -1
    with pytest.raises(LocalError, match=r"outer has no method 'a\.b\.quik'; did you mean a\.b\.quick\?"):
        outer.remove("a.b.quik")


async def test_a_method_that_is_removed_is_no_tool_any_more() -> None:
    inner, server = Service("inner"), Server("server")
    server.include(inner, namespace="x")
    inner.method(add)
    inner.method("other")(add)
    assert [tool.name for tool in await server.list_tools()] == ["x_add", "x_other"]
    inner.remove("add")
    assert [tool.name for tool in await server.list_tools()] == ["x_other"]
    server.remove_tool("x_other")
    inner.remove("other")
    assert await server.list_tools() == []


def test_the_description_follows_what_is_removed() -> None:
    """Also where another method has come in its place."""
    service = Service("inner")

    def names() -> list[str]:
        answer = service.answer(b'{"jsonrpc":"2.0","method":"rpc.discover","id":1}')
        return [one["name"] for one in msgspec.json.decode(answer or b"")["result"]["methods"]]

    service.method(add)
    assert names() == ["add"]
    service.remove("add")
    service.method("other")(add)
    assert names() == ["other"]


def test_a_clash_in_a_service_around_refuses_the_registration() -> None:
    inner, outer = Service("inner"), Service("outer")
    outer.method("x.add")(add)
    outer.include(inner, namespace="x")
    with pytest.raises(LocalError, match=r"outer has a method 'x\.add' already"):
        inner.method(add)
    assert not inner.methods
    long = Service("long", limits=msgspec.structs.replace(outer.limits, method_length=8))
    long.include(inner, namespace="name")
    with pytest.raises(LocalError, match="a method's name has at most 8 characters"):
        inner.method("other")(add)
    assert not inner.methods


def test_services_that_include_one_another_are_refused() -> None:
    a, b, c = Service("a"), Service("b"), Service("c")
    a.include(b, namespace="b")
    b.include(c, namespace="c")
    for one, other in ((a, a), (c, a), (b, a), (c, b)):
        with pytest.raises(LocalError, match=f"{one.name} cannot include {other.name}"):
            one.include(other, namespace="z")
    with pytest.raises(LocalError, match="give namespace='x' or prefix='y', not both"):
        a.include(c, namespace="x", prefix="y")
    a.include(c, namespace="twice")
    a.include(c, namespace="again")
    c.method(add)
    assert sorted(a.methods) == ["again.add", "b.c.add", "twice.add"]
