"""Functions in child processes: what they take, return and raise, that they are killed, and that no child is left."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from dragoman import Context, LocalError, Peer, Service
from dragoman.auth.credential import TokenCredential
from dragoman.channel import Caller, Identity
from dragoman.jsonrpc.errors import CallRefused, InternalError, RpcError
from dragoman.mcp import Context as McpContext
from dragoman.rpc import context_members as members
from dragoman.rpc.binding.binding import bind
from dragoman.rpc.process.declaring import in_process
from dragoman.rpc.process.frames import ChildError
from dragoman.rpc.process.pool import ChildProcess, ProcessLimits, pool_of
from dragoman.rpc.process.remote_context import KeptCredential
from dragoman.system.limits import cores

from . import process_functions as functions
from .test_peer import joined, until

ROOT = Path(__file__).parents[2]


def gone(pid: int) -> bool:
    """Whether a process has ended; it may wait for its new parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def running(limits: ProcessLimits) -> ChildProcess:
    """The only child, once it has begun a call."""
    pool = pool_of(limits)
    await until(lambda: any(child.calls for child in pool.children))
    (child,) = pool.children
    return child


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- arguments and results


def test_the_function_looks_as_it_did() -> None:
    found, plain = functions.mirrored, functions.mirrored.__wrapped__  # type: ignore[attr-defined]
    assert (found.__name__, found.__doc__) == ("mirrored", "Swap the coordinates.")
    assert inspect.signature(found) == inspect.signature(plain)
    inner, outer = bind(plain, context_type=Context), bind(found, context_type=Context)
    assert [(p.name, p.kind, p.required, p.default) for p in outer.parameters] == [
        (p.name, p.kind, p.required, p.default) for p in inner.parameters
    ]
    assert (outer.params_schema(), outer.result_type) == (inner.params_schema(), inner.result_type)
    assert (inner.kind, outer.kind) == ("plain", "async")
    assert bind(functions.plain_context, context_type=Context).wants_context


async def test_it_runs_in_another_process() -> None:
    assert await functions.mirrored(functions.Point(1, 2)) == functions.Point(2, 1)
    assert await functions.mirrored(functions.Point(1, 2), 10, 20, factor=2, more=5) == functions.Point(34, 7)
    assert await functions.waits(0) == "WAITED"
    assert await functions.one_pid() not in (os.getpid(), psutil.Process().ppid())


async def test_it_is_found_within_decorators_and_classes() -> None:
    assert await functions.wrapped(1) == 4
    assert await functions.triple(2) == 6


async def test_one_that_another_has_replaced_is_not_found() -> None:
    with pytest.raises(LocalError, match=r"replaced\(\) in .* is now another object"):
        await functions.first(1)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: None, "a lambda, or within another function"),
        (functools.partial(functions.pid), "not a partial"),
        (functions.Holder, "not a type"),
        (functions.Holder().method, "not a method"),
        (len, "not a builtin_function_or_method"),
        (functions.generates, "a generator cannot run"),
    ],
)
def test_what_no_child_could_find_is_refused(function: Callable[..., Any], text: str) -> None:
    with pytest.raises(LocalError, match=text):
        in_process(function)


def test_a_nested_function_is_refused() -> None:
    def nested() -> None: ...

    with pytest.raises(LocalError, match="write it at the top of the module"):
        in_process(nested)


async def test_what_has_no_pickle_is_named() -> None:
    with pytest.raises(LocalError, match=r"takes\(\): the argument 'value' is a generator, which cannot be sent"):
        await functions.takes(functions.generates())
    with pytest.raises(LocalError, match=r"takes\(\): the argument 'value' is a generator"):
        await functions.takes(value=functions.generates())
    with pytest.raises(LocalError, match=r"lock\(\): its result is a lock, which cannot be sent"):
        await functions.lock()
    with pytest.raises(LocalError, match=r"takes\(\): an argument cannot be unpickled: ValueError"):
        await functions.takes(functions.Sly())
    with pytest.raises(LocalError, match=r"sly\(\): its result cannot be unpickled: ValueError"):
        await functions.sly()
    assert await functions.takes(1) == "int"


async def test_what_is_longer_than_the_limit_is_refused() -> None:
    with pytest.raises(CallRefused) as error:
        await functions.small_size(bytes(2000), 1)
    assert error.value.refusal.kind == "too_large"
    with pytest.raises(LocalError, match=r"its result has 100\d+ bytes; limit ProcessLimits.message_size allows 1000"):
        await functions.small_size(b"", 100_000)
    assert await functions.small_size(b"", 10) == bytes(10)


async def test_a_credential_stays_in_the_parent() -> None:
    """It is a secret, which has no pickle."""
    identity = Identity(subject="ada", claims={"a": 1}, credential=TokenCredential("a token"))
    found = await functions.returns(Caller(identity=identity))
    assert (found.identity.subject, found.identity.claims) == ("ada", {"a": 1})
    assert isinstance(found.identity.credential, KeptCredential)
    for use in (found.identity.credential.reveal, functools.partial(asyncio.run, found.identity.exchange())):
        with pytest.raises(LocalError, match="credential stays in the server's process"):
            await asyncio.to_thread(use)


# -- errors


@pytest.mark.parametrize("function", [functions.fails, functions.fails_async], ids=["plain", "async"])
@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("plain", ValueError, "wrong"),
        ("system", FileNotFoundError, "[Errno 2] No such file: 'data.csv'"),
        ("rpc", functions.OutOfStock, "Out of stock (1001): {'left': 2}"),
        ("arguments", functions.Unfinished, "2 of 3"),
        ("refused", CallRefused, "Busy: later (-32000): {'retry_after': 1}"),
        ("group", ExceptionGroup, "several (2 sub-exceptions)"),
        ("local rpc", RpcError, "Hidden (1002): [1]"),
        ("local", ChildError, "Nowhere: unknown"),
        ("lock", ChildError, "ValueError: a lock"),
        ("exit", RuntimeError, "fails{} raised SystemExit: 3"),
        ("interrupt", RuntimeError, "fails{} raised KeyboardInterrupt: "),
        ("cancelled", asyncio.CancelledError, ""),
    ],
)
async def test_an_error_comes_back(function: Any, how: str, kind: type[BaseException], text: str) -> None:
    with pytest.raises(kind) as raised:
        await function(how)
    assert type(raised.value) is kind
    assert str(raised.value) == text.replace("{}", f"{function.__name__[5:]}()")
    if how != "cancelled":
        assert "raise _errors()[how]" in raised.value.__notes__[0]


async def test_an_error_keeps_its_members() -> None:
    with pytest.raises(functions.Unfinished) as unfinished:
        await functions.fails("arguments")
    assert (unfinished.value.done, unfinished.value.of) == (2, 3)
    with pytest.raises(CallRefused) as refused:
        await functions.fails("refused")
    assert refused.value.refusal.data == {"retry_after": 1}


@pytest.mark.parametrize("how", ["exit", "crash"])
async def test_a_process_that_ends_by_itself_is_an_internal_error(how: str, caplog: pytest.LogCaptureFixture) -> None:
    await functions.takes(1)
    with pytest.raises(InternalError) as error:
        await functions.dies(how)
    assert str(error.value) == "Internal error: the process that ran this call ended before its answer (-32603)"
    crash = "an access violation" if sys.platform == "win32" else "SIGSEGV"
    assert ("ended with exit status 3" if how == "exit" else f"was ended by {crash}") in caplog.text
    assert await functions.takes(1) == "int"


# -- it is killed


async def test_a_cancelled_call_is_killed() -> None:
    call = asyncio.create_task(functions.one_spin())
    child = await running(functions.ONE)
    waits = asyncio.create_task(functions.one_pid())
    await until(lambda: len(pool_of(functions.ONE)._queue) == 1)
    await cancelled(call)
    await asyncio.wait_for(child.gone, 10)
    assert gone(child.pid)
    assert await waits not in (child.pid, os.getpid())


async def test_what_it_has_started_is_killed_with_it(tmp_path: Path) -> None:
    call = asyncio.create_task(functions.spins_with_child(str(tmp_path / "pids")))
    await until((tmp_path / "pids").exists)
    pids = [int(one) for one in (tmp_path / "pids").read_text().split()]
    assert not any(map(gone, pids))
    await cancelled(call)
    await until(lambda: all(map(gone, pids)))


async def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """What the child has started ends too, although it has no pipe to the parent."""
    path = tmp_path / "pids"
    program = f"""
        import asyncio, os
        from tests.rpc.process_functions import spins_with_child

        async def main():
            call = asyncio.create_task(spins_with_child({str(path)!r}))
            while not os.path.exists({str(path)!r}):
                await asyncio.sleep(0.01)
            print("begun", flush=True)
            await call

        asyncio.run(main())
    """
    parent = subprocess.Popen(  # noqa: ASYNC220  (it takes a millisecond)
        [sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        assert await asyncio.to_thread(parent.stdout.readline) == "begun\n"
        pids = [int(one) for one in path.read_text().split()]
        assert not any(map(gone, pids))
        parent.kill()
    await until(lambda: all(map(gone, pids)))


async def test_an_idle_child_ends_with_a_parent_that_is_killed() -> None:
    program = """
        import asyncio, sys
        from tests.rpc.process_functions import one_pid

        async def main():
            print(await one_pid(), flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
    """
    parent = subprocess.Popen(  # noqa: ASYNC220  (it takes a millisecond)
        [sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        pid = int(await asyncio.to_thread(parent.stdout.readline))
        assert not gone(pid)
        parent.kill()
    await until(lambda: gone(pid))


LOOPS = {"asyncio": asyncio.new_event_loop}
if sys.platform != "win32":
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_end_of_the_loop_kills_all_children(loop: str) -> None:
    children: list[ChildProcess] = []

    async def main() -> None:
        call = asyncio.create_task(functions.two_spin())
        first = await running(functions.TWO)
        await cancelled(call)
        await first.gone
        with pytest.raises(InternalError):
            await functions.dies("exit")
        idle = await functions.two_pid()
        asyncio.create_task(functions.one_spin())  # noqa: RUF006  (the loop cancels it)
        children.append(await running(functions.ONE))
        children.extend(pool_of(functions.TWO).children)
        assert children[1].pid == idle

    def run() -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(main())

    await asyncio.to_thread(run)
    assert len(children) == 2
    assert all(child.gone.done() and gone(child.pid) for child in children)


# -- how many


async def test_no_more_than_allowed_exist_at_once() -> None:
    pool = pool_of(functions.TWO)
    most = 0

    async def one() -> int:
        nonlocal most
        pid: int = await functions.two_pid()
        most = max(most, len(pool.children))
        return pid

    pids = await asyncio.gather(*(one() for _ in range(20)))
    assert len(set(pids)) == most == len(pool.children) == 2
    assert pool._free == 2


async def test_calls_above_the_queue_are_refused_as_busy() -> None:
    call = asyncio.create_task(functions.one_spin())
    await running(functions.ONE)
    waiting = asyncio.create_task(functions.one_pid())
    await until(lambda: len(pool_of(functions.ONE)._queue) == 1)
    with pytest.raises(CallRefused) as error:
        await functions.one_pid()
    assert (error.value.refusal.kind, error.value.refusal.data["allowed"]) == ("busy", 1)
    await cancelled(waiting)
    waiting = asyncio.create_task(functions.one_pid())
    await cancelled(call)
    await waiting


async def test_no_slot_is_lost_whenever_calls_are_cancelled() -> None:
    pool = pool_of(functions.TWO)
    calls = [asyncio.create_task((functions.two_pid, functions.two_spin)[n % 2]()) for n in range(16)]
    while not all(call.done() for call in calls):
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
        spinning = next((call for call in calls[1::2] if not call.done()), None)
        if spinning is not None:
            spinning.cancel()
    assert all(isinstance(call.result(), int) for call in calls[::2])
    assert all(call.cancelled() for call in calls[1::2])
    await until(lambda: pool._free == 2)
    assert len(pool.children) == len(pool._idle) <= 2


async def test_a_call_may_be_cancelled_while_its_child_starts() -> None:
    pool = pool_of(functions.TWO)
    for steps in range(12):
        call = asyncio.create_task(functions.two_pid())
        for _ in range(steps):
            await asyncio.sleep(0)
        await cancelled(call)
        assert pool._free <= 2
    await until(lambda: pool._free == 2 and not pool.children)
    assert await functions.two_pid() != os.getpid()


async def test_a_child_that_cannot_be_started_costs_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(LocalError, match=r"a child process cannot be started: .*nowhere"):
            await functions.one_pid()
    assert await functions.one_pid() != os.getpid()


async def test_long_results_come_whole() -> None:
    text = bytes(range(256)) * 20_000
    assert await functions.returns(text) == text


async def test_a_child_is_used_again_unless_something_is_left_in_it() -> None:
    assert await functions.one_pid() == await functions.one_pid()
    assert await functions.pid_once() != await functions.pid_once()
    for leaves in (functions.leaves_a_thread, functions.leaves_a_task):
        left = {await leaves() for _ in range(2)}
        assert len(left) == (2 if leaves is functions.leaves_a_thread else 1)


async def test_a_child_that_is_idle_for_long_ends() -> None:
    pid = await functions.pid_for_long()
    (child,) = pool_of(functions.SHORT_LIVED).children
    await asyncio.wait_for(child.gone, 10)
    assert (child.pid, child.status) == (pid, 0)
    assert await functions.pid_for_long() != pid
    assert pool_of(functions.SHORT_LIVED)._free == 1


async def test_a_call_that_an_idle_child_has_not_begun_is_given_to_another() -> None:
    pid = await functions.one_pid()
    psutil.Process(pid).suspend()
    call = asyncio.create_task(functions.one_pid())
    await until(lambda: pool_of(functions.ONE)._free == 0)
    psutil.Process(pid).kill()
    assert await call != pid


def test_the_limits_are_checked() -> None:
    for wrong in ({"processes": 0}, {"waiting": -1}, {"idle_time": 0}, {"message_size": 0}, {"calls_per_process": 0}):
        with pytest.raises(LocalError, match=next(iter(wrong))):
            ProcessLimits(**wrong)
    assert 1 <= cores() <= (os.cpu_count() or 1)


# -- programs


MAIN = """
import asyncio, dataclasses
from dragoman.rpc.process.declaring import in_process

print("imported as", __name__)

@dataclasses.dataclass
class Pair:
    a: int
    b: int

@in_process
def swap(pair: Pair) -> Pair:
    print("in the child")
    return Pair(pair.b, pair.a)

if __name__ == "__main__":
    print(asyncio.run(swap(Pair(1, 2))))
"""


@pytest.mark.parametrize("command", [["pairs.py"], ["-m", "pairs"]], ids=["file", "module"])
def test_a_function_of_the_program_itself_is_found(tmp_path: Path, command: list[str]) -> None:
    """And what its module prints in the child is not on the parent's standard output."""
    (tmp_path / "pairs.py").write_text(MAIN)
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["imported as __main__", "Pair(a=2, b=1)"]
    assert done.stderr.splitlines() == ["imported as __mp_main__", "in the child"]


def test_a_function_of_a_console_is_refused() -> None:
    program = "from dragoman.rpc.process.declaring import in_process\ndef f(): ...\nin_process(f)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "LocalError: f(): a child process cannot import this program" in done.stderr


def test_a_module_off_the_path_is_found_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "apart.py").write_text(
        "from dragoman.rpc.process.declaring import in_process\n@in_process\ndef f(): return 5\n"
    )
    program = f"""
        import asyncio, sys
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location("apart", {str(tmp_path / "apart.py")!r})
        apart = sys.modules["apart"] = module_from_spec(spec)
        spec.loader.exec_module(apart)
        print(asyncio.run(apart.f()))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout == "5\n"


def test_what_it_prints_is_not_on_standard_output() -> None:
    program = "import asyncio; from tests.rpc.process_functions import prints; print(asyncio.run(prints()))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
    assert set(done.stderr.splitlines()) == {"printed", "by number", "by a process", "without an end"}


async def test_its_log_is_the_parents(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await functions.logs()
    found = [(one.name, one.levelname, one.getMessage().partition("\n")[0]) for one in caplog.records]
    assert [one for one in found if one[0] == "functions.log"] == [
        ("functions.log", "INFO", "3 things"),
        ("functions.log", "ERROR", "failed"),
    ]
    info, failed = [one for one in caplog.records if one.name == "functions.log"]
    assert (vars(info)["color"], info.process != os.getpid()) == ("red", True)
    assert 'raise ValueError("inner")' in failed.getMessage()


async def test_a_flood_of_its_log_arrives_in_order(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await functions.floods(3000)
    found = [one.getMessage() for one in caplog.records if one.name == "functions.flood"]
    assert found == [str(number) for number in range(3000)]


async def test_a_process_that_it_forks_does_not_use_its_pipe(caplog: pytest.LogCaptureFixture) -> None:
    assert await functions.forks() == b"done"
    assert await functions.takes(1) == "int"
    assert "of a forked process" not in caplog.text


def test_what_the_interpreter_prints_at_its_start_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('at the start')")
    program = "import asyncio; from tests.rpc.process_functions import takes; print(asyncio.run(takes(1)))"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "int"
    assert done.stdout.count("at the start") <= 1  # the parent's own


# -- the context


@pytest.mark.parametrize("kind", [Context, McpContext])
def test_every_member_of_a_context_is_in_the_table(kind: Any) -> None:
    public = {name for name in dir(kind) if not name.startswith("_")}
    table: members.ContextMembers = kind._in_child
    assert table.names() == public
    for name in public:
        is_method = inspect.isfunction(inspect.getattr_static(kind, name))
        if name not in table.refused:
            assert is_method == (name in table.at_once | table.awaited), name
    several = [*table.constants, *table.values, *table.live, *table.at_once, *table.awaited, *table.inside]
    assert len(several) + len(table.refused) == len(public)  # each once


def test_the_store_has_all_its_methods() -> None:
    from dragoman.store.calls import CallStore

    assert members.STORE.names() == {name for name in dir(CallStore) if not name.startswith("_")}


@pytest.mark.parametrize(
    "path", ["_site", "rpc._site", "store._engine", "state", "peer", "store", "store.x.y", "cancelled", "__class__", ""]
)
def test_nothing_else_is_reached(path: str) -> None:
    class Bare:
        _in_child = members.CONTEXT

        def __getattr__(self, name: str) -> Any:
            pytest.fail(f"{name} was read")

    with pytest.raises(LocalError, match="may not use"):
        members.reach(Bare() if "." not in path else Outer(), path)


class Outer:
    """A context whose members below may be read, and nothing in them."""

    _in_child = members.CONTEXT
    store = object()


class Callee:
    """What a client answers and hears."""

    def __init__(self) -> None:
        self.service = Service("callee")
        self.news: list[Any] = []
        self.silence = asyncio.Event()
        self.ended = asyncio.Event()

        @self.service.method
        async def question(text: str) -> str:
            return f"{text}!"

        @self.service.method
        async def news(**told: Any) -> None:
            self.news.append(told)

        @self.service.method
        async def silence() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()


@asynccontextmanager
async def calling() -> AsyncIterator[tuple[Peer, Callee]]:
    """A service with the functions that have a context, and a client of it in this process."""
    api = Service("api")
    for function in (
        functions.plain_context, functions.async_context, functions.refused_context, functions.failing_context,
        functions.depends, functions.unsendable, functions.context_back, functions.spins_with_context, functions.fails, functions.dies,
    ):  # fmt: skip
        api.method(function)
    callee = Callee()
    async with joined(api, service=callee.service) as peer:
        yield peer, callee


async def test_a_plain_function_uses_its_context() -> None:
    async with calling() as (peer, callee):
        steps: list[Any] = []
        found = await peer.call("plain_context", ["ada"], on_progress=steps.append)
        assert found.pop("pid") != os.getpid()
        assert found == {
            "progress": True,
            "answer": "ada!",
            "both": ["a!", "b!"],
            "notified": None,
            "stored": [None, {"v": 1}, ["k"], True],
            "method": "plain_context",
            "scheme": "memory",
            "identity": None,
            "cancelled": False,
            "left": True,
        }
        assert steps == [{"at": 1}]
        await until(lambda: callee.news == [{"is": "ada"}])


async def test_an_async_function_awaits_its_context() -> None:
    async with calling() as (peer, callee):
        found = await peer.call("async_context", {"name": "ada"}, on_progress=lambda step: None)
        assert found == {
            "progress": [True, True],
            "answers": ["a!", "b!", "c!"],
            "late": "timeout",
            "stored": "ada",
            "method": "async_context",
            "left": True,
        }
        await asyncio.wait_for(callee.ended.wait(), 10)  # the question was withdrawn


@pytest.mark.parametrize(
    ("member", "text"),
    [
        ("state", "LocalError: ctx.state is not there in a child process: what the lifespan yielded stays"),
        ("peer", "LocalError: ctx.peer is not there in a child process: its channel"),
        ("log", "LocalError: ctx.log is not there in a child process: use a logger"),
        ("stor", "AttributeError: 'Context' object has no attribute 'stor' in a child process; did you mean store?"),
        ("_site", "AttributeError"),
        ("store._engine", "AttributeError"),
    ],
)
async def test_what_is_not_there_says_why(member: str, text: str) -> None:
    async with calling() as (peer, _):
        assert (await peer.call("refused_context", [member])).startswith(text)


async def test_a_dependency_is_made_in_the_parent() -> None:
    async with calling() as (peer, _):
        secret, pid, number, method = await peer.call("depends", {"number": 2})
        assert secret == f"Context of depends in {os.getpid()}"
        assert pid != os.getpid()
        assert (number, method) == (2, "depends")


async def test_errors_of_the_context_are_raised_in_the_child() -> None:
    async with calling() as (peer, _):
        with pytest.raises(RpcError, match="Method not found"):
            await peer.call("failing_context")
        for name in ("unsendable", "context_back"):
            with pytest.raises(InternalError):
                await peer.call(name)


async def test_progress_arrives_while_it_runs_and_a_cancel_kills_it() -> None:
    async with calling() as (peer, _):
        steps: asyncio.Queue[int] = asyncio.Queue()
        call = asyncio.create_task(peer.call("spins_with_context", on_progress=steps.put_nowait))
        pid = await asyncio.wait_for(steps.get(), 30)
        assert not gone(pid)
        await cancelled(call)
        await until(lambda: gone(pid))


async def test_a_call_whose_time_is_up_is_killed() -> None:
    api = Service("api")
    api.method("spin", timeout=2)(functions.one_spin)
    await functions.one_pid()  # a child that has started by now
    async with joined(api) as peer:
        call = asyncio.create_task(peer.call("spin"))
        child = await running(functions.ONE)
        with pytest.raises(RpcError, match="Timed out"):
            await call
        await asyncio.wait_for(child.gone, 10)


async def test_errors_cross_the_wire(caplog: pytest.LogCaptureFixture) -> None:
    async with calling() as (peer, _):
        with pytest.raises(RpcError) as error:
            await peer.call("fails", ["rpc"])
        assert (error.value.code, error.value.message, error.value.data) == (1001, "Out of stock", {"left": 2})
        with pytest.raises(InternalError) as masked:
            await peer.call("fails", ["plain"])
        assert list(masked.value.data) == ["reference"]
        assert masked.value.data["reference"] in caplog.text
        assert "In the child process:" in caplog.text


def test_the_answer_to_bytes_needs_no_loop() -> None:
    api = Service("api")
    api.method(functions.takes)
    answer = api.answer(b'{"jsonrpc":"2.0","method":"takes","params":[1],"id":1}')
    assert answer is not None
    assert json.loads(answer)["result"] == "int"
