"""Topics of extensions: members of the filter of `subscriptions/listen` (2026-07-28's basic/patterns/subscriptions)
that an extension grants, and their notifications, in both eras."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeAlias

import pytest
from msgspec import Struct

from dragoman.channel import Caller, Options
from dragoman.jsonrpc.errors import InvalidParams, LocalError, RpcError
from dragoman.jsonrpc.limits import CLIENT, Limits
from dragoman.mcp import Server
from dragoman.mcp.protocol.extension import Extension, Topic
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, Revision
from dragoman.mcp.server import subscriptions
from dragoman.mcp.server.extending import topics
from dragoman.mcp.server.extending.extension import ServerExtension, TopicGrant
from dragoman.mcp.server.extending.home import ServerHome
from dragoman.mcp.session import changes
from dragoman.mcp.session.changes import TopicEvent
from dragoman.schemes import dial
from dragoman.serving import serve
from dragoman.transports.memory import pair
from tests.behind import behind
from tests.transports.ends import until

from ..asking_server import Wire
from ..http_wire import ME, Place, body, meta, named_by, standard
from ..http_wire import served as http_served
from .test_subscriptions import ID, Post

NAME, METHOD = "com.example/jobs", "notifications/com.example/job"
DECLARED: dict[str, Any] = {"extensions": {NAME: {}}}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
WIRES = ["memory", "tcp", "http"]
every_wire = pytest.mark.parametrize("wire", WIRES)
Next: TypeAlias = Callable[[], Awaitable[Any]]


class Jobs(ServerExtension):
    """Grants a caller the jobs that it names; those whose name begins with a minus are of others. A session gets the
    key of its caller's account."""

    declares = Extension(
        name=NAME,
        topics=(
            Topic(name="jobs", method=METHOD, member="jobIds", sessions=True),
            Topic(name="news", method="notifications/com.example/news", member="news"),
        ),
    )

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.slow: asyncio.Event | None = None

    def grant(self, topic: str, caller: Caller, value: Any) -> TopicGrant | Awaitable[TopicGrant | None] | None:
        self.asked.append((topic, value))
        if topic == "news":
            return TopicGrant(value, frozenset({"all"})) if value is True else None
        if value is None:
            return TopicGrant(None, frozenset({"mine" if caller.identity is None else caller.identity.subject}))
        return self._wait(value)

    async def _wait(self, value: Any) -> TopicGrant | None:
        if self.slow is not None:
            await self.slow.wait()
        if not isinstance(value, list):
            raise InvalidParams("jobIds is a list")
        granted = [one for one in value if not one.startswith("-")]
        return TopicGrant(granted, frozenset(granted)) if granted else None


class Plain(ServerExtension):
    """Grants what a test says."""

    declares = Jobs.declares

    def __init__(self, granted: Callable[[Any], Any]) -> None:
        self._granted = granted

    def grant(self, topic: str, caller: Caller, value: Any) -> Any:
        return self._granted(value)


def jobs(extension: ServerExtension | Extension | None = None) -> Server:
    return Server("jobs", extensions=[Jobs() if extension is None else extension])


def home_of(app: Server) -> ServerHome:
    served = behind(app)
    registry = served.catalog
    return ServerHome(
        registry.surroundings, NAME, served.serving, served.subscriptions.notify, registry.refusal_of_tool
    )


def listen(id: Any = 1, declared: Any = None, **wanted: Any) -> dict[str, Any]:
    said = meta(capabilities=DECLARED if declared is None else declared)
    return {"id": id, "method": "subscriptions/listen", "params": {"notifications": wanted, "_meta": said}}


@asynccontextmanager
async def channel_to(app: Server, wire: str) -> AsyncIterator[Wire]:
    if wire == "memory":
        near, far = pair(CLIENT)
        behind(app).attach(near)
        yield Wire(far)
        await far.close()
        return
    async with serve(app, urls=["tcp://127.0.0.1:0"]) as running:
        channel = await dial(running.urls[0], Options())
        yield Wire(channel)
        await channel.close()


@asynccontextmanager
async def listening(app: Server, wire: str, **wanted: Any) -> AsyncIterator[Next]:
    """A call of `subscriptions/listen`; yields what gives its next message."""
    message = listen(7, **wanted)
    if wire == "http":
        async with http_served(app) as place:
            raw = body(message["method"], message["params"], 7)
            async with place.stream(raw, standard("subscriptions/listen")) as events:
                yield events.message
        return
    async with channel_to(app, wire) as end:
        end.send(message)
        yield end.next


@asynccontextmanager
async def refused(app: Server, wire: str, **wanted: Any) -> AsyncIterator[Any]:
    """The error of a call that is refused."""
    if wire == "http":
        async with http_served(app) as place:
            raw = body("subscriptions/listen", listen(7, **wanted)["params"], 7)
            yield json.loads((await place.ask(raw, standard("subscriptions/listen"))).body)["error"]
        return
    async with listening(app, wire, **wanted) as next_message:
        yield (await next_message())["error"]


@asynccontextmanager
async def session_in(app: Server, wire: str, revision: Revision, declared: Any = DECLARED) -> AsyncIterator[Next]:
    """A session, initialized; yields what gives its next message outside calls."""
    if wire == "http":
        async with http_served(app) as place:
            sitting = await place.begin(revision, declared)
            async with sitting.get() as events:
                yield events.message
        return
    async with channel_to(app, wire) as end:
        params = {"protocolVersion": revision.date, "capabilities": declared, "clientInfo": ME}
        end.send({"id": 0, "method": "initialize", "params": params})
        await end.next()
        end.send({"method": "notifications/initialized"})
        assert await end.quiet()
        yield end.next


# -- what is granted ------------------------------------------------------------------------------


@every_wire
async def test_what_is_granted_is_acknowledged_and_notified(wire: str) -> None:
    app = jobs()
    async with listening(app, wire, jobIds=["a", "-b", "A b"], toolsListChanged=True, other=[1]) as next_message:
        first = await next_message()
        assert (first["method"], first["params"]["_meta"]) == (ACKNOWLEDGED, {ID: 7})
        assert first["params"]["notifications"] == {"jobIds": ["a", "A b"]}
        home = home_of(app)
        for key in ("-b", "b", "A", "a"):  # keys that differ only in case are others
            home.notify("jobs", key, {"id": key, "_meta": {"x": 1, ID: "stolen"}})
        home.notify("news", "a", {})
        home.notify("jobs", "A b", Job("A b"))
        assert await next_message() == {
            "jsonrpc": "2.0",
            "method": METHOD,
            "params": {"id": "a", "_meta": {"x": 1, ID: 7}},
        }
        assert (await next_message())["params"] == {"id": "A b", "_meta": {ID: 7}}
        assert behind(app).subscriptions.measures()["subscribers"] == 1
    await until(lambda: not len(behind(app).subscriptions))
    assert not behind(app).subscriptions._by_key


class Job(Struct):
    id: str


@pytest.mark.parametrize(
    ("wanted", "acknowledged"),
    [
        ({"jobIds": ["-b"], "news": False}, {}),
        ({"jobIds": ["a"], "news": True}, {"jobIds": ["a"], "news": True}),
        ({"jobids": ["a"], "JOBIDS": ["a"]}, {}),
        ({}, {}),
    ],
)
async def test_a_member_that_nothing_grants_is_left_out(wanted: Any, acknowledged: Any) -> None:
    async with listening(jobs(), "memory", **wanted) as next_message:
        assert (await next_message())["params"]["notifications"] == acknowledged


async def test_an_extension_without_functions_grants_nothing() -> None:
    async with listening(jobs(Jobs.declares), "memory", jobIds=["a"]) as next_message:
        assert (await next_message())["params"]["notifications"] == {}


@every_wire
async def test_only_clients_that_declared_the_extension_subscribe(wire: str) -> None:
    extension = Jobs()
    async with refused(jobs(extension), wire, declared={}, jobIds=["a"]) as error:
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"extensions": {NAME: {}}}}
    assert extension.asked == []
    async with listening(jobs(extension), "memory", declared={}, toolsListChanged=True) as next_message:
        assert (await next_message())["method"] == ACKNOWLEDGED


HUGE = "x" * 300_000
REFUSED: list[tuple[Any, int, str]] = [
    ("a", -32602, "jobIds is a list"),
    ({"a": 1}, -32602, "jobIds is a list"),
    (None, -32602, "`notifications.jobIds` is null"),
    ([f"{number}" for number in range(10_000)], -32602, "1000 are allowed"),
    ([HUGE], -32600, "subscription_size allows 262144"),
]


@pytest.mark.parametrize(("value", "code", "words"), REFUSED, ids=[words for _, _, words in REFUSED])
async def test_a_value_that_cannot_be_granted(value: Any, code: int, words: str) -> None:
    app = jobs()
    async with listening(app, "memory", jobIds=value) as next_message:
        error = (await next_message())["error"]
        assert (error["code"], words in error["message"]) == (code, True), error
        assert not len(behind(app).subscriptions)


async def test_a_number_that_no_double_holds_is_refused() -> None:
    message = listen(1, news="BIG")
    async with channel_to(jobs(), "memory") as end:
        end.channel.send(json.dumps({"jsonrpc": "2.0"} | message).replace('"BIG"', "1e999").encode())
        error = (await end.next())["error"]
        assert (error["code"], "out of range" in error["message"]) == (-32602, True)


async def test_keys_count_with_the_uris() -> None:
    app = jobs()
    hub = behind(app).subscriptions
    app.add_resource(lambda: "", "x:a")
    hub.uris = 2
    async with channel_to(app, "memory") as end:
        end.send(listen(1, jobIds=["a", "b"], resourceSubscriptions=["x:a"]))
        error = (await end.next())["error"]
        assert (error["code"], error["data"]) == (-32602, {"limit": "uris", "allowed": 2})
        end.send(listen(2, jobIds=["a"], resourceSubscriptions=["x:a"]))
        assert (await end.next())["method"] == ACKNOWLEDGED
    app = jobs(Plain(lambda value: TopicGrant(value, frozenset({"k" * 300_000}))))  # more than its client asked for
    async with listening(app, "memory", jobIds="a") as next_message:
        assert (await next_message())["error"]["data"]["limit"] == "subscription_size"


def fails(error: Exception) -> Callable[[Any], Any]:
    def grant(value: Any) -> Any:
        raise error

    return grant


FAULTS: list[Callable[[Any], Any]] = [
    fails(RuntimeError("broken")),
    fails(LocalError("broken")),
    lambda value: value,
    lambda value: TopicGrant(value, "abc"),  # type: ignore[arg-type]
    lambda value: TopicGrant(value, frozenset({1})),  # type: ignore[arg-type]
    lambda value: TopicGrant(object(), frozenset({"a"})),
]


@pytest.mark.parametrize("granted", FAULTS, ids=range(len(FAULTS)))
async def test_a_grant_that_fails_is_logged_and_grants_nothing(
    granted: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    app = jobs(Plain(granted))
    async with listening(app, "memory", jobIds=["a"]) as next_message:
        with caplog.at_level(logging.ERROR):
            assert (await next_message())["params"]["notifications"] == {}
        assert not behind(app).subscriptions._by_key


async def test_a_grant_that_raises_an_rpc_error_refuses() -> None:
    async with listening(jobs(Plain(fails(RpcError.of(-32000, "not yours")))), "memory", news=1) as next_message:
        assert (await next_message())["error"] == {"code": -32000, "message": "not yours"}


async def test_a_grant_that_takes_too_long_grants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "GRANT_TIME", 0.01)
    extension = Jobs()
    extension.slow = asyncio.Event()
    async with listening(jobs(extension), "memory", jobIds=["a"], news=True) as next_message:
        assert (await next_message())["params"]["notifications"] == {"news": True}


async def test_calls_whose_grant_takes_time_have_their_places_and_end_with_the_server() -> None:
    extension = Jobs()
    extension.slow = asyncio.Event()
    app = jobs(extension)
    hub = behind(app).subscriptions
    hub.per_peer = 2
    async with channel_to(app, "memory") as end:
        for id in range(3):
            end.send(listen(id, jobIds=["a"]))
        assert (await end.next())["error"]["data"] == {"limit": "subscriptions", "allowed": 2, "retry_after": 60}
        end.send({"method": "notifications/cancelled", "params": {"requestId": 0}})
        await until(lambda: len(hub) == 1)
        closing = asyncio.create_task(hub.close())
        await asyncio.sleep(0)
        extension.slow.set()
        last = await end.next()  # nothing comes before the acknowledgment, which never came
        assert (last["id"], last["result"]["resultType"]) == (1, "complete")
        await closing
        assert not hub._by_key


async def test_a_grant_that_cannot_be_cancelled_does_not_hold_up_the_end_of_the_server() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def deaf() -> None:
        begun.set()
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await go.wait()

    app = jobs(Plain(lambda value: deaf()))
    async with serve(app, urls=["tcp://127.0.0.1:0"], limits=Limits(drain_timeout=0.1)) as running:
        channel = await dial(running.urls[0], Options())
        Wire(channel).send(listen(1, jobIds=["a"]))
        await asyncio.wait_for(begun.wait(), 20)
        await asyncio.wait_for(running.close(), 20)
        await channel.close()
    go.set()
    await until(lambda: not len(behind(app).subscriptions))


async def test_the_bounds_of_subscriptions_hold_for_topics() -> None:
    app = jobs()
    hub = behind(app).subscriptions
    hub.limit, hub.per_peer = 2, 1
    async with AsyncExitStack() as stack:
        ends = [await stack.enter_async_context(channel_to(app, "memory")) for _ in range(3)]
        for end in ends[:2]:
            end.send(listen(1, jobIds=["a"]))
            assert (await end.next())["method"] == ACKNOWLEDGED
        for end in (ends[0], ends[2]):
            end.send(listen(2, jobIds=["a"]))
            assert (await end.next())["error"]["data"]["limit"] == "subscriptions"
        assert hub.measures()["subscribers"] == 2


async def test_a_granted_value_is_bounded() -> None:
    """No channel could carry its acknowledgment."""
    app = jobs(Plain(lambda value: TopicGrant("x" * 300_000, frozenset({"a"}))))
    async with refused(app, "memory", jobIds=["a"]) as error:
        assert error["data"] == {"limit": "subscription_size", "allowed": 262_144, "received": 300_002}
    assert not behind(app).subscriptions._by_key


# -- what is sent ---------------------------------------------------------------------------------


async def test_notifications_are_not_merged_and_keep_their_order() -> None:
    app = jobs()
    home = home_of(app)
    async with listening(app, "memory", jobIds=["a", "b"]) as next_message:
        await next_message()
        for number in range(50):
            home.notify("jobs", "ab"[number % 2], {"step": number // 4})  # some equal others
        assert [(await next_message())["params"]["step"] for _ in range(50)] == [number // 4 for number in range(50)]


async def test_from_any_thread() -> None:
    app = jobs()
    home = home_of(app)

    def work(who: int) -> None:
        for number in range(20):
            home.notify("jobs", "a", {"who": who, "number": number})

    async with listening(app, "memory", jobIds=["a"]) as next_message:
        await next_message()
        threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        got = [(await next_message())["params"] for _ in range(80)]
        for who in range(4):
            assert [one["number"] for one in got if one["who"] == who] == list(range(20))
        for thread in threads:
            thread.join()


WRONG: list[tuple[str, Callable[[ServerHome], object]]] = [
    ("declares the topic 'job'; there is 'jobs', 'news'", lambda home: home.notify("job", "a", {})),
    ("the key is a str", lambda home: home.notify("jobs", 1, {})),  # type: ignore[arg-type]
    ("sent as JSON", lambda home: home.notify("jobs", "\ud800", {})),
    ("the params an object", lambda home: home.notify("jobs", "a", [1])),  # type: ignore[arg-type]
    ("its `_meta` too", lambda home: home.notify("jobs", "a", {"_meta": 1})),
    ("sent as JSON", lambda home: home.notify("jobs", "a", {"a": object()})),
    ("65536 may be sent", lambda home: home.notify("jobs", "a", {"a": "x" * 65_536})),
    ("65536 may be sent", lambda home: home.notify("jobs", "k" * 65_536, {})),
]


@pytest.mark.parametrize(("words", "notify"), WRONG, ids=range(len(WRONG)))
async def test_what_cannot_be_notified_is_said_at_once(words: str, notify: Callable[[ServerHome], object]) -> None:
    with pytest.raises(LocalError, match=words):
        notify(home_of(jobs()))


def test_without_subscribers_and_without_a_loop() -> None:
    behind(jobs()).subscriptions.notify("jobs", "a", {})


@asynccontextmanager
async def slow_reader(app: Server) -> AsyncIterator[Post]:
    post = Post(listen(1, jobIds=["a"]))
    post.caller = Caller(scheme="test")  # over HTTP there are headers, too
    behind(app).exchange(post)
    await until(lambda: post.sent)
    post.takes = False
    yield post
    assert post.gone is not None
    post.gone()
    await until(lambda: not len(behind(app).subscriptions))


@pytest.mark.parametrize("size", [1, 60_000])
async def test_what_waits_for_a_slow_reader_is_bounded(size: int) -> None:
    app = jobs()
    home, hub, budget = home_of(app), behind(app).subscriptions, behind(app).call_limit.budget
    most = subscriptions.WAITING if size == 1 else 1024 * 1024 // 60_000
    async with slow_reader(app) as post:
        for number in range(most + 10):
            home.notify("jobs", "a", {"number": number, "text": "x" * size})
        await until(lambda: hub.dropped == 10)
        assert hub.measures()["subscriber_lag"] == most
        assert hub.measures()["subscriber_drops_total"] == 10
        assert 0 < budget.used <= subscriptions.WAITING_SIZE
        post.takes = True
        await until(lambda: len(post.sent) == 1 + most)
        assert [one["params"]["number"] for one in post.sent[1:]] == list(range(10, most + 10))
        assert budget.used == 0
        post.takes = False
        home.notify("jobs", "a", {"number": 0})
        await until(lambda: budget.used)
    assert budget.used == 0


async def test_what_waits_is_not_counted_anew_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many slow readers would hold up the loop."""
    size, counted = TopicEvent.size, []

    def count(event: TopicEvent) -> int:
        counted.append(event)
        return size.fget(event)  # type: ignore[attr-defined,no-any-return]

    monkeypatch.setattr(TopicEvent, "size", property(count))
    app = jobs()
    home, hub = home_of(app), behind(app).subscriptions
    async with slow_reader(app):
        for number in range(2 * subscriptions.WAITING):
            home.notify("jobs", "a", {"number": number})
        await until(lambda: hub.dropped == subscriptions.WAITING)
    assert len(counted) < 20 * subscriptions.WAITING


async def test_what_waits_counts_in_the_budget_and_goes_when_that_is_used_up() -> None:
    app = jobs()
    home, hub, budget = home_of(app), behind(app).subscriptions, behind(app).call_limit.budget
    budget.most, budget.share = 10_000, 1_000
    async with slow_reader(app) as post:
        for _ in range(4):
            home.notify("jobs", "a", {"text": "x" * 3_000})
        await until(lambda: hub.dropped)
        assert budget.used <= budget.most
        post.takes = True
        await until(lambda: not hub.measures()["subscriber_lag"])


async def test_what_waits_for_the_loop_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "QUEUED", 10_000)
    app = jobs()
    home, hub = home_of(app), behind(app).subscriptions
    async with listening(app, "memory", jobIds=["a"]) as next_message:
        await next_message()
        for number in range(5):
            home.notify("jobs", "a", {"number": number, "text": "x" * 3_000})
        assert hub.dropped == 2
        assert [(await next_message())["params"]["number"] for _ in range(3)] == [0, 1, 2]
        home.notify("jobs", "a", {"number": 9})
        assert (await next_message())["params"]["number"] == 9


# -- sessions -------------------------------------------------------------------------------------


@every_wire
@pytest.mark.parametrize("revision", [R2025_06, R2025_11], ids=lambda one: one.date)
async def test_a_session_is_notified_of_the_keys_that_it_is_granted(wire: str, revision: Revision) -> None:
    extension = Jobs()
    app = jobs(extension)
    home = home_of(app)
    async with session_in(app, wire, revision) as next_message:
        home.notify("news", "mine", {"id": 0})
        home.notify("jobs", "Mine", {"id": 1})
        for number in (2, 2, 3):
            home.notify("jobs", "mine", {"id": number, "_meta": {"x": 1}})
        got = [await next_message() for _ in range(3)]
        assert got[0] == {"jsonrpc": "2.0", "method": METHOD, "params": {"id": 2, "_meta": {"x": 1}}}
        assert [one["params"]["id"] for one in got] == [2, 2, 3]
        assert extension.asked == [("jobs", None)]
        assert behind(app).subscriptions.measures()["subscribers"] == 1


@pytest.mark.parametrize("revision", [R2025_06, R2025_11], ids=lambda one: one.date)
async def test_a_session_that_did_not_declare_the_extension_is_not_notified(revision: Revision) -> None:
    extension = Jobs()
    app = jobs(extension)
    async with session_in(app, "memory", revision, {}) as next_message:
        home_of(app).notify("jobs", "mine", {})
        app.add_tool(lambda: "", name="new")
        assert (await next_message())["method"] == "notifications/tools/list_changed"
    assert extension.asked == []


async def test_a_session_is_asked_for_once_and_only_when_it_is_initialized() -> None:
    extension = Jobs()
    app = jobs(extension)
    async with channel_to(app, "memory") as end:
        params = {"protocolVersion": R2025_11.date, "capabilities": DECLARED, "clientInfo": ME}
        for expected in (1, 2):  # a session that begins anew on the channel is another one
            end.send({"id": 0, "method": "initialize", "params": params})
            await end.next()
            for _ in range(3):
                assert len(extension.asked) == expected - 1
                assert not behind(app).subscriptions._by_key
            for _ in range(5):
                end.send({"method": "notifications/initialized"})
            assert await end.quiet()
            assert extension.asked == [("jobs", None)] * expected
            home_of(app).notify("jobs", "mine", {"id": expected})
            assert (await end.next())["params"]["id"] == expected
    await until(lambda: not behind(app).host.peers)
    home_of(app).notify("jobs", "mine", {})
    await until(lambda: not behind(app).subscriptions._by_key)


@pytest.mark.parametrize(
    "granted",
    [
        lambda value: TopicGrant(None, frozenset(str(number) for number in range(10_000))),
        lambda value: TopicGrant(None, frozenset({HUGE})),
        fails(RpcError.of(-32000, "no")),
        fails(RuntimeError("broken")),
    ],
    ids=range(4),
)
async def test_a_session_whose_grant_fails_is_notified_of_lists_alone(granted: Callable[[Any], Any]) -> None:
    app = jobs(Plain(granted))
    async with session_in(app, "memory", R2025_11) as next_message:
        home_of(app).notify("jobs", "1", {})
        app.add_tool(lambda: "", name="new")
        assert (await next_message())["method"] == "notifications/tools/list_changed"
        assert not behind(app).subscriptions._by_key


async def test_a_session_s_keys_count_with_its_uris_and_in_the_budget() -> None:
    app = jobs(Plain(lambda value: TopicGrant(None, frozenset({"k" * 5_000}))))
    app.add_resource(lambda path: path, "x:///{+path}", name="any")
    budget, hub = behind(app).call_limit.budget, behind(app).subscriptions
    async with channel_to(app, "memory") as end:
        params = {"protocolVersion": R2025_11.date, "capabilities": DECLARED, "clientInfo": ME}
        end.send({"id": 0, "method": "initialize", "params": params})
        await end.next()
        before = budget.used
        end.send({"method": "notifications/initialized"})
        await until(lambda: budget.used >= before + 5_000)
        hub.uris = 2
        for uri, answered in (("x:///a", "result"), ("x:///b", "error")):
            end.send({"id": 1, "method": "resources/subscribe", "params": {"uri": uri}})
            assert answered in await end.next()
        end.send({"id": 1, "method": "resources/unsubscribe", "params": {"uri": "x:///a"}})
        await end.next()
        assert budget.used >= before + 5_000
        (peer,) = behind(app).host.peers
        hub.leave(peer)
        assert budget.used == before


async def test_each_is_notified_of_what_is_its_own() -> None:
    app = jobs()
    home = home_of(app)
    async with AsyncExitStack() as stack:
        place: Place = await stack.enter_async_context(http_served(app, options=Options(guard=named_by(b"x-user"))))
        homes: dict[str, Any] = {}
        for who in ("ann", "bob", "ANN"):
            params = {"protocolVersion": R2025_11.date, "capabilities": DECLARED, "clientInfo": ME}
            begun = await place.ask(body("initialize", params, 0), {"X-User": who})
            headers = {"Mcp-Session-Id": begun.headers["mcp-session-id"], "X-User": who}
            ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
            assert (await place.ask(ready, headers)).status == 202
            homes[who] = await stack.enter_async_context(place.stream(headers=headers, method="GET"))
        for who in homes:
            home.notify("jobs", who, {"who": who})
        for who, events in homes.items():
            assert (await events.message())["params"] == {"who": who}
