"""Services without a wire: registering, kinds of functions, middleware, limits, and what a failure tells."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from typing import Any

import pytest
from msgspec import Struct

from dragoman import Context, Limits, LocalError, RpcError, Service
from dragoman.rpc.middleware import Call, Next
from dragoman.rpc.servable import ServableService
from tests.behind import behind


def ask(service: Service, method: str, params: Any = None, id: Any = 1) -> Any:
    """One call through `answer`, as a Python value."""
    answer = service.answer(request(method, params, id))
    return None if answer is None else json.loads(answer)


def request(method: str, params: Any = None, id: Any = 1) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "id": id}
    if params is not None:
        message["params"] = params
    return json.dumps(message).encode()


# -- registering ----------------------------------------------------------------------------------


def test_a_registered_function_stays_the_function() -> None:
    api = Service("api")

    @api.method
    def one() -> int:
        return 1

    @api.method("two.name", inline=True)
    def two() -> int:
        return 2

    assert (one(), two()) == (1, 2)
    assert list(api.methods) == ["one", "two.name"]
    assert ask(api, "two.name")["result"] == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [("rpc.mine", "reserved"), ("x" * 257, "256 characters"), ("one", "already")],
)
def test_names_that_cannot_be_registered(name: str, words: str) -> None:
    api = Service("api")
    api.method("one")(lambda: 1)
    with pytest.raises(LocalError, match=words):
        api.method(name)(lambda: 1)


def test_a_lambda_needs_a_name_and_errors_must_be_errors() -> None:
    api = Service("api")
    with pytest.raises(LocalError, match="give one"):
        api.method(lambda: 1)
    with pytest.raises(LocalError, match="errors is a list, of which each is a subclass of RpcError"):
        api.method("x", errors=[ValueError])(lambda: 1)  # type: ignore[list-item]
    with pytest.raises(LocalError, match="at least 1"):
        api.method("x", concurrency=0)(lambda: 1)

    async def coroutine() -> None: ...

    with pytest.raises(LocalError, match="already runs on the loop"):
        api.method(inline=True)(coroutine)


def test_reserved_codes_cannot_be_declared() -> None:
    with pytest.raises(LocalError, match="reserved by the specification"):

        class Bad(RpcError):
            code = -32500

    with pytest.raises(LocalError, match="an error code is an integer"):
        RpcError("x", code="x")  # type: ignore[arg-type]

    class Fine(RpcError):
        code = -32050

    assert Fine().code == -32050
    assert str(RpcError("no", {"a": 1}, code=5)) == "no (5): {'a': 1}"


def test_rpc_names_are_internal() -> None:
    api = Service("api", version="1.2.3")
    assert ask(api, "rpc.discover")["result"]["info"] == {"title": "api", "version": "1.2.3"}
    assert ask(api, "rpc.nothing")["error"]["code"] == -32601
    assert ask(Service("quiet", discover=False), "rpc.discover")["error"]["code"] == -32601


def test_including_takes_methods_with_their_middleware_under_a_prefix() -> None:
    seen: list[str] = []

    def named(name: str) -> Any:
        async def middleware(call: Call, next: Next) -> Any:
            seen.append(f"{name} {call.method}")
            return await next(call)

        return middleware

    inner = Service("inner", middleware=[named("inner")])
    inner.method("add", inline=True)(lambda a, b: a + b)
    outer = Service("outer", middleware=[named("outer")])
    outer.include(inner, prefix="math.")
    assert ask(outer, "math.add", [1, 2])["result"] == 3
    assert seen == ["outer math.add", "inner math.add"]
    assert ask(outer, "add", [1, 2])["error"]["code"] == -32601
    with pytest.raises(LocalError, match="already"):
        outer.include(inner, prefix="math.")


# -- where functions run --------------------------------------------------------------------------


async def test_kinds_of_functions_run_where_they_should() -> None:
    api = Service("api")
    api.method("inline", inline=True)(lambda: threading.get_ident())
    api.method("plain")(lambda: threading.get_ident())

    @api.method
    async def loop() -> int:
        return threading.get_ident()

    here = threading.get_ident()
    got = {name: json.loads(await api.answer_async(request(name)) or b"")["result"] for name in api.methods}
    assert got["inline"] == got["loop"] == here
    assert got["plain"] != here


def test_without_a_loop_plain_functions_run_in_the_calling_thread_and_coroutines_in_the_background() -> None:
    api = Service("api")
    api.method("plain")(lambda: threading.get_ident())

    @api.method
    async def loop() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    assert ask(api, "plain")["result"] == threading.get_ident()
    assert ask(api, "loop")["result"] != threading.get_ident()
    answer = json.loads(api.answer(b"[%b,%b]" % (request("plain", id=1), request("loop", id=2))) or b"")
    assert [element["id"] for element in answer] == [1, 2]


async def test_inside_a_loop_answer_names_answer_async() -> None:
    api = Service("api")
    api.method("plain")(lambda: 1)
    with pytest.raises(LocalError, match="answer_async"):
        api.answer(request("plain"))
    assert await api.answer_async(request("plain")) == b'{"jsonrpc":"2.0","result":1,"id":1}'


def test_answering_imports_no_asyncio() -> None:
    script = (
        "import sys, dragoman\n"
        "api = dragoman.Service('s')\n"
        "api.method('plain')(lambda a: a)\n"
        "api.method('inline', inline=True)(lambda a: a)\n"
        'print(api.answer(b\'{"jsonrpc":"2.0","method":"plain","params":[1],"id":1}\'))\n'
        'print(api.answer(b\'[{"jsonrpc":"2.0","method":"inline","params":[1],"id":1}]\'))\n'
        "sys.exit('asyncio' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_a_methods_concurrency_and_queue() -> None:
    api = Service("api")
    running = 0
    most = 0
    gate = asyncio.Event()

    @api.method(concurrency=2, queue=1)
    async def narrow() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return most

    tasks = [asyncio.create_task(api.answer_async(request("narrow", id=n))) for n in range(4)]
    refused = json.loads(await tasks[3] or b"")
    assert refused["error"]["code"] == -32000
    assert refused["error"]["data"]["limit"] == "concurrency of narrow"
    gate.set()
    answers = [json.loads(await task or b"") for task in tasks[:3]]
    assert [answer["result"] for answer in answers] == [2, 2, 2]
    gate.set()
    assert json.loads(await api.answer_async(request("narrow")) or b"")["result"] == 2


async def test_a_call_cancelled_while_it_waits_for_its_method_gives_its_turn_away() -> None:
    api = Service("api")
    gate = asyncio.Event()
    started: list[int] = []
    begun = asyncio.Event()

    @api.method(concurrency=1)
    async def one(number: int) -> int:
        started.append(number)
        begun.set()
        await gate.wait()
        return number

    tasks = [asyncio.create_task(api.answer_async(request("one", [n], n))) for n in range(3)]
    await begun.wait()
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    gate.set()
    assert json.loads(await tasks[2] or b"")["result"] == 2
    assert started == [0, 2]
    (host,) = behind(api)._runners.values()
    assert not host.runs
    assert not host.call_limit.in_flight


# -- middleware -----------------------------------------------------------------------------------


def test_middleware_applies_to_single_calls_and_inside_batches_alike() -> None:
    seen: list[Any] = []

    async def audited(call: Call, next: Next) -> Any:
        seen.append((call.method, call.id, call.context._where))
        result = await next(call)
        return [result]

    api = Service("api", middleware=[audited])
    api.method("inline", inline=True)(lambda: "a")
    api.method("plain")(lambda: "b")
    assert ask(api, "inline")["result"] == ["a"]
    answers = json.loads(api.answer(b"[%b,%b]" % (request("inline", id="x"), request("plain", id="y"))) or b"")
    assert [answer["result"] for answer in answers] == [["a"], ["b"]]
    assert seen == [("inline", 1, "inline"), ("inline", "x", "inline"), ("plain", "y", "thread")]


def test_middleware_may_refuse_and_may_be_added_later() -> None:
    api = Service("api")
    api.method("secret", inline=True)(lambda: "gold")

    @api.use
    async def guarded(call: Call, next: Next) -> Any:
        if call.method == "secret":
            raise RpcError("Forbidden", code=403)
        return await next(call)

    assert ask(api, "secret")["error"] == {"code": 403, "message": "Forbidden"}


def test_middleware_that_waits_needs_a_loop_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Waiting:
        def __await__(self) -> Any:
            yield

    async def waits(call: Call, next: Next) -> Any:
        await Waiting()
        return await next(call)

    api = Service("api", middleware=[waits])
    api.method("plain")(lambda: 1)
    with pytest.raises(LocalError, match="answer_async"):
        api.answer(request("plain"))


async def test_middleware_gives_things_to_the_handler() -> None:
    async def principal(call: Call, next: Next) -> Any:
        call.context.values["user"] = "ada"
        return await next(call)

    api = Service("api", middleware=[principal])

    @api.method
    async def whoami(ctx: Context) -> str:
        return f"{ctx.values['user']} by {ctx.method} {ctx.id}"

    assert json.loads(await api.answer_async(request("whoami", id=9)) or b"")["result"] == "ada by whoami 9"


# -- failures -------------------------------------------------------------------------------------


def test_what_a_handler_does_not_declare_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    api = Service("api")

    @api.method(inline=True)
    def boom() -> None:
        raise ValueError("the password is 1234")

    with caplog.at_level(logging.ERROR):
        error = ask(api, "boom")["error"]
    assert error["code"] == -32603
    assert error["message"] == "Internal error"
    assert error["data"].keys() == {"reference"}
    assert error["data"]["reference"] in caplog.text
    assert "the password is 1234" in caplog.text
    assert "Traceback" in caplog.text


def test_debug_lets_texts_cross() -> None:
    api = Service("api", debug=True)

    @api.method
    def boom() -> None:
        raise ValueError("why")

    assert ask(api, "boom")["error"]["data"]["exception"] == "ValueError: why"
    assert "there is no method 'x'" in ask(api, "x")["error"]["data"]["reason"]
    assert json.loads(api.answer(b"{") or b"")["error"]["data"]["reason"].startswith("Parse error")


class Odd(BaseException):
    """What `except Exception` does not see."""


@pytest.mark.parametrize("error", [SystemExit, Odd])
@pytest.mark.parametrize("kind", ["inline", "plain", "async"])
def test_whatever_a_handler_raises_ends_its_call_alone(kind: str, error: type[BaseException]) -> None:
    api = Service("api")

    def leave() -> None:
        raise error

    async def leave_later() -> None:
        raise error

    if kind == "async":
        api.method("leave")(leave_later)
    else:
        api.method("leave", inline=kind == "inline")(leave)
    assert ask(api, "leave")["error"]["code"] == -32603


def test_error_data_that_is_not_json_is_masked() -> None:
    api = Service("api")

    @api.method
    def odd() -> None:
        raise RpcError("odd", object(), code=7)

    assert ask(api, "odd")["error"]["code"] == -32603


async def test_an_error_raised_in_a_thread_crosses_too() -> None:
    api = Service("api")

    @api.method
    def stop() -> None:
        raise StopIteration

    @api.method
    def no() -> None:
        raise RpcError("no", code=5)

    assert json.loads(await api.answer_async(request("stop")) or b"")["error"]["code"] == -32603
    assert json.loads(await api.answer_async(request("no")) or b"")["error"] == {"code": 5, "message": "no"}


# -- limits ---------------------------------------------------------------------------------------


def too_large(answer: Any) -> tuple[Any, ...]:
    error = answer["error"]
    return (error["code"], error["data"]["limit"], error["data"]["allowed"], error["data"].get("received"))


def test_limits_are_named_with_the_allowed_and_the_received_number() -> None:
    limits = Limits(message_size=300, response_size=100, batch_length=2, id_length=5, method_length=10)
    api = Service("api", limits=limits)
    api.method("echo", inline=True)(lambda *values: list(values))
    api.method("thread")(lambda size: "x" * size)
    assert too_large(json.loads(api.answer(b" " * 400) or b"")) == (-32003, "message_size", 300, 400)
    assert too_large(ask(api, "echo", ["x" * 120])) == (-32003, "response_size", 100, 158)
    assert too_large(ask(api, "thread", [200]))[1] == "response_size"
    batch = b"[%b]" % b",".join([request("echo")] * 3)
    assert too_large(json.loads(api.answer(batch) or b"")) == (-32003, "batch_length", 2, 3)
    assert too_large(ask(api, "echo", [], "123456")) == (-32003, "id_length", 5, 6)
    assert too_large(ask(api, "x" * 11)) == (-32003, "method_length", 10, 11)
    both = b"[%b,%b]" % (request("echo", ["x" * 50]), request("echo", ["x" * 50]))
    assert too_large(json.loads(api.answer(both) or b""))[1] == "response_size"
    assert api.limits.but(calls=3).calls == 3
    with pytest.raises(LocalError, match="no option 'nothing'"):
        api.limits.but(nothing=3)


async def test_a_service_served_within_other_limits_is_the_same_service() -> None:
    api = Service("api")
    host = ServableService(behind(api), limits=Limits(batch_length=1))
    api.method("later", inline=True)(lambda: "added later")
    assert await host.runner.answer(request("later")) == b'{"jsonrpc":"2.0","result":"added later","id":1}'
    batch = b"[%b,%b]" % (request("later"), request("later"))
    assert too_large(json.loads(await host.runner.answer(batch) or b""))[1] == "batch_length"
    assert len(json.loads(api.answer(batch) or b"")) == 2
    assert len(await host.runner.answer(b" " * (5 * 2**20)) or b"") < 500


async def test_draining_refuses_new_exchanges() -> None:
    api = Service("api")
    api.method("now", inline=True)(lambda: 1)
    host = ServableService(behind(api))
    await host.drain(0)
    refused = json.loads(await host.runner.answer(request("now", id="mine")) or b"")
    assert (refused["error"]["code"], refused["id"]) == (-32001, "mine")


# -- context --------------------------------------------------------------------------------------


def test_without_a_wire_a_context_has_no_far_end(caplog: pytest.LogCaptureFixture) -> None:
    api = Service("api")

    @api.method
    def lonely(ctx: Context) -> list[Any]:
        ctx.log.info("a word")
        with pytest.raises(LocalError, match="no wire to call back"):
            ctx.call("x")
        with pytest.raises(LocalError, match="no wire to notify"):
            ctx.notify("x")
        ctx.progress(1)
        return [ctx.peer, ctx.time_left, ctx.caller.scheme, dict(ctx.headers), ctx.cancelled]

    @api.method("hasty", inline=True)
    def hasty(ctx: Context) -> None:
        ctx.call("x")

    with caplog.at_level(logging.INFO):
        assert ask(api, "lonely")["result"] == [None, None, "", {}, False]
        assert ask(api, "hasty")["error"]["code"] == -32603
    assert "a word" in caplog.text
    assert "must not wait" in caplog.text


async def test_notifications_owe_nothing_whatever_happens() -> None:
    api = Service("api")
    api.method("boom")(lambda: 1 / 0)
    notification = b'{"jsonrpc":"2.0","method":"%b"}'
    for method in (b"boom", b"nothing", b"rpc.discover"):
        assert await api.answer_async(notification % method) is None
        assert behind(api)._within(api.limits).answer_async is not None
    assert await api.answer_async(b"[%b,%b]" % (notification % b"boom", notification % b"nothing")) is None


# -- discovery and faults -------------------------------------------------------------------------


def test_discovery_goes_through_the_middleware() -> None:
    async def denied(call: Call, next: Next) -> Any:
        raise RpcError("Forbidden", code=-32001)

    for api in (Service("before", middleware=[denied]), Service("after")):
        assert api.middleware or ask(api, "rpc.discover")["result"]["info"]["title"] == "after"
        if not api.middleware:
            api.use(denied)
        assert ask(api, "rpc.discover")["error"] == {"code": -32001, "message": "Forbidden"}


@pytest.mark.parametrize(
    ("params", "faults"),
    [([{"x": 1}], 0), ([{"x": 1}, "z"], 1), ([{"x": -1}], 1), ([{"x": -1}, "z"], 2), ({"p": {"x": 1}, "q": 1}, 1)],
)
@pytest.mark.parametrize("inline", [True, False])
def test_what_a_class_does_when_it_is_made_is_done_at_most_twice(params: Any, faults: int, inline: bool) -> None:
    """Once to decode the params and, where they do not fit, once to find every fault."""
    made = 0

    class Positive(Struct):
        x: int

        def __post_init__(self) -> None:
            nonlocal made
            made += 1
            if self.x < 0:
                raise ValueError("x is below 0")

    api = Service("api")

    @api.method(inline=inline)
    def method(p: Positive, y: int = 1) -> int:
        return p.x

    one = request("method", params)
    for text in (one, b"[" + one + b"]"):
        made = 0
        answer = json.loads(api.answer(text) or b"")
        (answer,) = answer if isinstance(answer, list) else [answer]
        assert made == (2 if faults else 1)
        assert len(answer["error"]["data"]["errors"]) == faults if faults else answer["result"] == 1
        assert answer["id"] == 1


@pytest.mark.parametrize("method", ["$/cancelRequest", "note"])
def test_a_notification_without_a_wire_goes_to_its_method_whatever_its_name_is(method: str) -> None:
    got: list[int] = []
    api = Service("api")
    api.method(method)(lambda id: got.append(id))
    assert api.answer(f'{{"jsonrpc":"2.0","method":"{method}","params":{{"id":1}}}}'.encode()) is None
    assert got == [1]
