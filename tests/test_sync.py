"""The blocking face against real servers, which run on a loop and thread of their own."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest

from dragoman import (
    BadAnswer,
    Broken,
    CallTimeout,
    Closed,
    Context,
    LocalError,
    MethodNotFound,
    RpcError,
    Service,
    connecting,
    serve,
)
from dragoman import Peer as AsyncPeer
from dragoman.jsonrpc.limits import SERVER
from dragoman.sync import SyncPeer, connect
from tests.behind import behind

LIMIT = 20.0
QUICK = SERVER.but(drain_timeout=0.1)


class OutOfStock(RpcError):
    code = 1001
    message = "Out of stock"


class Served:
    """A server on a loop of its own, with what its handlers saw."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self.noted: list[list[int]] = []
        self.api = self._service()
        self.urls: list[str] = []
        self._ready = threading.Event()
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(LIMIT)

    def _service(self) -> Service:
        api = Service("calculator", version="1")

        @api.method(inline=True)
        def subtract(minuend: int, subtrahend: int) -> int:
            return minuend - subtrahend

        @api.method(inline=True)
        def update(*values: int) -> None:
            self.noted.append(list(values))

        @api.method(errors=[OutOfStock], inline=True)
        def order(what: str) -> None:
            raise OutOfStock(data={"what": what})

        @api.method
        async def forever() -> None:
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()

        @api.method
        async def count(to: int, context: Context) -> int:
            for value in range(to):
                await context.notify("tick", [value])
            return to

        @api.method
        async def ask_back(question: str, context: Context) -> str:
            return str(await context.call("answer", [question]))

        @api.method
        async def progress(context: Context) -> str:
            await context.progress(50)
            return "done"

        return api

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with serve(self.api, urls=["tcp://127.0.0.1:0", "http://127.0.0.1:0"], limits=QUICK) as serving:
            self.urls = serving.urls
            self._ready.set()
            await self._stop.wait()

    @property
    def tcp(self) -> str:
        return self.urls[0]

    @property
    def http(self) -> str:
        return self.urls[1]

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(LIMIT)


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


# -- calls ----------------------------------------------------------------------------------------


def test_call_notify_and_close(served: Served) -> None:
    with connect(served.tcp) as peer:
        assert peer.call("subtract", [42, 23]) == 19
        assert peer.call("subtract", {"subtrahend": 23, "minuend": 42}, result=int, timeout=5) == 19
        peer.notify("update", [1, 2, 3])
        assert peer.call("subtract", [1, 1]) == 0
        assert served.noted == [[1, 2, 3]]
        assert peer.caller.scheme == "tcp"
        assert not peer.closed
        assert repr(peer).startswith("<SyncPeer tcp:127.0.0.1:")
    assert peer.closed
    peer.close()
    with pytest.raises(Closed):
        peer.call("subtract", [1, 1])


def test_http_too(served: Served) -> None:
    with connect(served.http, headers={"X-Why": "not"}) as peer:
        assert peer.call("subtract", [42, 23]) == 19
        peer.notify("update", [7])
        assert served.noted == [[7]]


def test_errors_are_those_of_the_asynchronous_face(served: Served) -> None:
    with connect(served.tcp, errors=[OutOfStock]) as peer:
        with pytest.raises(OutOfStock) as caught:
            peer.call("order", ["tea"])
        assert caught.value.data == {"what": "tea"}
        with pytest.raises(MethodNotFound):
            peer.call("nothing")
        with pytest.raises(BadAnswer):
            peer.call("subtract", [2, 1], result=list[str])
        with pytest.raises(CallTimeout):
            peer.call("forever", timeout=0.05)
        with pytest.raises(LocalError):
            peer.call("subtract", 42)
        assert peer.call("subtract", [2, 1]) == 1


def test_a_missing_far_end_and_senseless_urls() -> None:
    with pytest.raises(Broken):
        connect("tcp://127.0.0.1:1")
    with pytest.raises(LocalError):
        connect("tcp://127.0.0.1")


def test_progress_comes_while_the_call_blocks(served: Served) -> None:
    seen: list[object] = []
    with connect(served.tcp) as peer:
        assert peer.call("progress", on_progress=seen.append) == "done"
    assert seen == [50]


def test_many_threads_call_at_once(served: Served) -> None:
    with connect(served.tcp) as peer, ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda n: peer.call("subtract", [n, 1]), range(400)))
    assert results == [n - 1 for n in range(400)]


async def test_inside_a_running_loop_of_ones_own(served: Served) -> None:
    with connect(served.tcp) as peer:  # as in a notebook: it blocks that loop, and works
        assert peer.call("subtract", [42, 23]) == 19


def test_closing_fails_what_is_open(served: Served) -> None:
    with connect(served.tcp) as peer, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(peer.call, "forever", timeout=None)
        assert served.started.wait(LIMIT)
        peer.close()
        with pytest.raises(Closed):
            waiting.result(LIMIT)


# -- batches and proxies --------------------------------------------------------------------------


def test_a_batch(served: Served) -> None:
    with connect(served.tcp) as peer:
        with peer.batch() as batch:
            total = batch.call("subtract", [42, 23], result=int)
            wrong = batch.call("nothing")
            batch.notify("update", [1])
            assert not total.done()
            with pytest.raises(LocalError, match="subtract: the batch is sent, and answered, at the end of its block"):
                total.result()
        assert total.done()
        assert total.result() == 19
        assert total.exception() is None
        with pytest.raises(MethodNotFound):
            wrong.result()
        assert isinstance(wrong.exception(), MethodNotFound)
        assert served.noted == [[1]]


def test_a_batch_left_by_an_error_is_never_sent(served: Served) -> None:
    with connect(served.tcp) as peer:
        with pytest.raises(ZeroDivisionError), peer.batch() as batch:
            batch.notify("update", [1 // 0])
        with peer.batch():
            pass
        peer.call("subtract", [1, 1])
    assert served.noted == []


class Calculator(Protocol):
    def subtract(self, minuend: int, subtrahend: int) -> int: ...


def test_proxies(served: Served) -> None:
    with connect(served.tcp) as peer:
        calculator = peer.proxy(Calculator)
        assert calculator.subtract(42, 23) == 19
        assert calculator.subtract(subtrahend=23, minuend=42) == 19
        assert peer.proxy().subtract(42, 23) == 19


# -- being called ---------------------------------------------------------------------------------


def test_notifications_are_an_iterator(served: Served) -> None:
    with connect(served.tcp) as peer:
        ticks = peer.notifications("tick")
        others = peer.notifications("other")
        assert peer.call("count", [3]) == 3
        assert [next(ticks).params for _ in range(3)] == [[0], [1], [2]]
        others.close()
        assert list(others) == []
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(list, ticks)
            peer.close()
            assert rest.result(LIMIT) == []


def test_a_lost_channel_ends_the_iterator_with_its_reason(served: Served) -> None:
    peer = connect(served.tcp)
    ticks = peer.notifications()
    served.close()
    with pytest.raises(ConnectionError):
        next(ticks)
    peer.close()


def test_a_service_of_ones_own_is_called_in_worker_threads(served: Served) -> None:
    mine = Service("mine")
    threads: list[threading.Thread] = []

    @mine.method
    def answer(question: str) -> str:
        threads.append(threading.current_thread())
        return f"{question} {peer.call('subtract', [44, 2])}"  # a worker thread may block

    with connect(served.tcp, service=mine) as peer:
        assert peer.call("ask_back", ["why?"]) == "why? 42"
    assert threads[0] is not threading.main_thread()


def test_a_blocking_call_on_the_loop_itself_is_a_local_error(served: Served) -> None:
    mine = Service("mine")
    caught: list[LocalError] = []

    @mine.method
    async def answer(question: str) -> str:
        try:
            peer.call("subtract", [44, 2])
        except LocalError as error:
            caught.append(error)
        return "no"

    with connect(served.tcp, service=mine) as peer:
        assert peer.call("ask_back", ["why?"]) == "no"
    assert "use the asynchronous face" in str(caught[0])


# -- its ends -------------------------------------------------------------------------------------


def test_ctrl_c_cancels_the_call_at_the_far_end_too(served: Served) -> None:
    def press() -> None:
        served.started.wait(LIMIT)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored
    try:
        with connect(served.tcp) as peer:
            pressing = threading.Thread(target=press)
            pressing.start()
            with pytest.raises(KeyboardInterrupt):
                peer.call("forever", timeout=None)
            pressing.join()
            assert served.cancelled.wait(LIMIT)
            assert peer.call("subtract", [42, 23]) == 19
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_peer_without_references_is_closed(served: Served) -> None:
    peer = connect(served.tcp)
    with ThreadPoolExecutor(1) as pool:
        inner = peer._peer
        waiting = pool.submit(
            asyncio.run_coroutine_threadsafe(inner.call("forever", timeout=None), behind(inner)._loop).result
        )
        assert served.started.wait(LIMIT)
        del peer
        gc.collect()
        with pytest.raises(Closed):
            waiting.result(LIMIT)
        # its calls end first, then its wire is released
        pool.submit(asyncio.run_coroutine_threadsafe(inner.close(), behind(inner)._loop).result).result(LIMIT)
    assert inner.closed


def test_the_signature_is_that_of_the_asynchronous_connect() -> None:
    blocking, other = inspect.signature(connect), inspect.signature(connecting.connect)
    assert blocking.parameters == other.parameters
    assert blocking.return_annotation == "SyncPeer"
    assert connect.__module__ == "dragoman.sync"
    assert "Blocks until" in (connect.__doc__ or "")
    public = {name for name in dir(AsyncPeer) if not name.startswith("_")}
    assert {"call", "notify", "batch", "proxy", "notifications", "close", "closed", "caller"} <= public
    assert {"call", "notify", "batch", "proxy", "notifications", "close", "closed", "caller"} <= set(dir(SyncPeer))


def script(text: str, url: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", text, url], capture_output=True, text=True, timeout=60, check=False
    )


LEFT_OPEN = """
import sys
from dragoman.sync import connect
peer = connect(sys.argv[1])
ticks = peer.notifications()
print(peer.call("subtract", [42, 23]))
"""


@pytest.mark.parametrize("wire", ["tcp", "http"])
def test_the_interpreter_ends_without_hanging_and_without_noise(served: Served, wire: str) -> None:
    done = script(LEFT_OPEN, getattr(served, wire), "-W", "always")
    assert (done.stdout, done.stderr, done.returncode) == ("19\n", "", 0)


def test_the_interpreter_ends_under_a_call_of_a_daemon_thread(served: Served) -> None:
    text = LEFT_OPEN + "import threading\nthreading.Thread(target=peer.call, args=['forever'], daemon=True).start()\n"
    done = script(text, served.tcp)
    assert (done.stdout, done.returncode) == ("19\n", 0)


def test_a_command_left_running_ends_with_the_interpreter(served: Served) -> None:
    text = """
import sys
from dragoman.sync import connect
child = [sys.executable, "-c", "import os, sys; print(os.getpid(), file=sys.stderr, flush=True); sys.stdin.read()"]
import threading
told = threading.Event()
def line(text):
    print(text.strip(), flush=True)
    told.set()
peer = connect(child, stderr=line)
told.wait(20)
"""
    done = script(text, served.tcp)
    assert (done.stderr, done.returncode) == ("", 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


FORKED = """
import os, sys
from dragoman import LocalError
from dragoman.sync import connect
peer = connect(sys.argv[1])
print(peer.call("subtract", [42, 23]), flush=True)
child = os.fork()
if not child:
    try:
        peer.call("subtract", [1, 1])
    except LocalError as error:
        print(error, peer.closed, flush=True)
    peer.close()
    with connect(sys.argv[1]) as mine:
        print(mine.call("subtract", [43, 23]), flush=True)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
print(peer.call("subtract", [44, 23]))
peer.close()
"""


def test_a_forked_child_connects_anew(served: Served) -> None:
    done = script(FORKED, served.tcp, "-W", "ignore::DeprecationWarning")
    said = "this peer was connected before os.fork; connect again in the child True"
    assert (done.stdout.splitlines(), done.stderr) == (["19", said, "20", "21"], "")
    assert done.returncode == 0
