"""The control pipe between a supervisor and a worker, line by line: of each of the two ends, the test plays the
other."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dragoman.workers import process as process_module
from dragoman.workers import reports as reports_module
from dragoman.workers import worker as worker_module
from dragoman.workers.process import DRAIN_TIME, WorkerProcess
from dragoman.workers.reports import collect_answers, collect_reports
from dragoman.workers.worker import VARIABLE, ControlPipe, WorkerSpec, take_worker_spec

pytestmark = pytest.mark.usefixtures("quiet_loop")
PATIENCE = 20.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a pipe; the loop reads the first."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.settimeout(PATIENCE)
    yield near, far
    near.close()
    far.close()


async def turns(count: int = 5) -> None:
    """So many turns of the loop: what is there to be read was read."""
    for _ in range(count):
        await asyncio.sleep(0)


# -- the supervisor's end ------------------------------------------------------------------------------


class Program:
    """A process that does nothing until the test ends it."""

    def __init__(self, pid: int = 4711) -> None:
        self.pid = pid
        self.signals: list[int] = []
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return await self.status

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


class Played:
    """A worker as the supervisor has it, whose end of the pipe is the test's."""

    def __init__(self, number: int = 1, pid: int = 4711) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.settimeout(PATIENCE)
        self.program = Program(pid)
        process: Any = self.program
        self.worker = WorkerProcess(number, 1, process, self.near)

    async def says(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.far.sendall(piece)
            await turns()

    def hears(self) -> bytes:
        return self.far.recv(65_536)

    def hears_nothing(self) -> bool:
        self.far.setblocking(False)
        try:
            return self.far.recv(1) == b""
        except BlockingIOError:
            return True
        finally:
            self.far.settimeout(PATIENCE)

    async def ends(self, status: int = 0) -> None:
        self.program.status.set_result(status)
        await self.worker.over
        await turns()

    async def close(self) -> None:
        if not self.program.status.done():
            await self.ends()
        self.far.close()


async def test_a_worker_is_ready_once_and_in_any_number_of_pieces() -> None:
    played = Played()
    worker = played.worker
    worker.since = float("-inf")
    assert worker.seconds == DRAIN_TIME
    await played.says(b"report before\nanswer 5 to nothing\nwhat else\n")
    assert (worker.report, worker.ready.done()) == (b"before", False)
    await played.says(b"rea", b"dy 2", b".5")
    assert not worker.ready.done()
    await played.says(b"\nready 7\n")
    assert worker.ready.result() is True
    assert worker.seconds == 2.5
    assert worker.since > 0
    await played.close()
    assert worker.ready.result() is True


async def test_a_report_is_asked_for_once_at_a_time() -> None:
    played = Played()
    worker = played.worker
    first = worker.request_report()
    assert worker.request_report() is first
    assert played.hears() == b"report\n"
    assert not first.done()
    large = b"x" * 1_000_000
    for at in range(0, len(large), 50_000):
        await played.says((b"report " if at == 0 else b"") + large[at : at + 50_000])
    assert not first.done()
    await played.says(b"\n")
    assert first.done()
    assert worker.report == large
    second = worker.request_report()
    assert second is not first
    assert played.hears() == b"report\n"
    await played.says(b"report two words\n")
    assert second.done()
    assert worker.report == b"two words"
    await played.close()


async def test_a_line_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "REPORT_SIZE", 100)
    played = Played()
    await played.says(b"report " + b"x" * 93, b"\n")
    assert played.worker.report == b"x" * 93
    await played.says(b"report " + b"y" * 94, b"\n")
    assert played.worker.report == b"x" * 93
    await played.says(b"report z\n")
    assert played.worker.report == b"z"
    await played.close()


async def test_each_answer_goes_to_its_query() -> None:
    played = Played()
    worker = played.worker
    first, second, third = (worker.query(message) for message in (b"a", b"b c", b"d"))
    assert played.hears() == b"query 1 a\nquery 2 b c\nquery 3 d\n"
    third.cancel()
    await played.says(b"answer 9 strange\nanswer 3 late\nanswer 2 B C\n")
    assert (await second, first.done()) == (b"B C", False)
    await played.says(b"answer 2 again\nanswer 1 \n")
    assert await first == b""
    assert worker._queries == {}
    await played.close()


async def test_the_end_answers_all_and_is_read_to_the_last_line() -> None:
    played = Played()
    worker = played.worker
    asked, query = worker.request_report(), worker.query(b"a")
    played.far.sendall(b"report last words\nrest")
    played.program.status.set_result(3)
    await worker.over
    await turns()
    assert asked.done()
    assert await query == b""
    assert worker.ready.result() is False
    assert worker.report == b"last words"
    assert worker.how() == "ended with exit status 3"
    assert played.near.fileno() == -1
    assert worker.request_report().done(), "nothing is left that could report"
    assert await worker.query(b"b") == b""
    await played.close()


async def test_a_pipe_that_ends_before_its_process_answers_a_report() -> None:
    played = Played()
    asked = played.worker.request_report()
    played.far.close()
    await turns()
    assert asked.done()
    assert played.worker.request_report().done()
    assert await played.worker.query(b"a") == b""
    assert not played.worker.ready.done()
    await played.close()


@pytest.mark.parametrize("ready", [False, True])
async def test_a_worker_is_told_to_drain_as_it_can_be(ready: bool) -> None:
    played = Played()
    worker = played.worker
    if ready:
        await played.says(b"ready 1\n")
    assert worker.draining is False
    worker.drain()
    assert worker.draining is True
    if ready:
        assert played.hears() == b"drain\n"
        assert played.program.signals == []
    else:
        assert played.hears_nothing()
        assert played.program.signals == [signal.SIGTERM]
    worker.kill()
    assert played.program.signals[-1] == signal.SIGKILL
    played.program.signals.clear()
    worker.draining = False
    await played.ends()
    worker.drain()
    worker.kill()
    assert (worker.draining, played.program.signals) == (False, [])
    await played.close()


async def test_a_signal_that_comes_too_late_harms_nothing() -> None:
    played = Played()

    def gone(number: int) -> None:
        raise ProcessLookupError

    played.program.send_signal = gone  # type: ignore[method-assign]
    played.worker.kill()
    await played.close()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with exit status 0"),
        (1, "ended with exit status 1"),
        (-9, "was ended by SIGKILL"),
        (-63, "was ended by signal 63"),
    ],
)
async def test_how_it_ended_is_told_in_words(status: int, words: str) -> None:
    played = Played()
    await played.ends(status)
    assert played.worker.how() == words
    await played.close()


async def test_a_worker_that_reads_late_gets_every_line_whole_and_its_drain() -> None:
    """The pipe is full when it is told to drain, as of a process that was stopped for a while."""
    one = Played()
    one.worker.ready.set_result(True)
    text = b"x" * 50_000
    asked = [one.worker.query(text) for _ in range(40)]
    refused = [number for number, query in enumerate(asked, 1) if query.done()]
    assert refused == list(range(refused[0], 41))  # from some number on it had too much to read
    one.worker.drain()
    expected = b"".join(b"query %d %b\n" % (number, text) for number in range(1, refused[0])) + b"drain\n"
    got = b""
    one.far.setblocking(False)
    async with asyncio.timeout(PATIENCE):
        while len(got) < len(expected):
            got += await asyncio.get_running_loop().sock_recv(one.far, 1 << 20)
    assert got == expected
    await one.close()


# -- what a supervisor asks for ------------------------------------------------------------------------


async def test_reports_are_those_of_now_in_the_order_of_their_places() -> None:
    assert await collect_reports([]) == []
    several = [Played(number, pid) for number, pid in ((2, 20), (1, 11), (1, 10), (3, 30))]
    for played, since in zip(several, (5.0, 7.0, 6.0, float("-inf")), strict=True):
        if played.worker.number < 3:
            await played.says(b"ready 1\n")
        played.worker.since = since
    several[1].worker.draining = True
    asking = asyncio.ensure_future(collect_reports([one.worker for one in several]))
    await turns()
    for played in several[:3]:
        assert played.hears() == b"report\n"
        assert not asking.done()
        await played.says(b"report of %d\n" % played.worker.pid)
    assert several[3].hears_nothing(), "it does not listen yet"
    found = await asking
    assert [(one.number, one.pid, one.state, one.text) for one in found] == [
        (1, 10, "serving", b"of 10"),
        (1, 11, "draining", b"of 11"),
        (2, 20, "serving", b"of 20"),
        (3, 30, "starting", b""),
    ]
    assert found[3].age == float("inf")
    for played in several:
        await played.close()


async def test_of_a_worker_that_does_not_answer_in_time_there_is_the_report_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports_module, "REPORT_TIME", 0.01)
    played = Played()
    await played.says(b"ready 1\nreport before\n")
    async with asyncio.timeout(PATIENCE):
        [one] = await collect_reports([played.worker])
    assert one.text == b"before"
    await played.close()


async def test_answers_are_those_that_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports_module, "REPORT_TIME", 0.05)
    assert await collect_answers([], b"a") == {}
    prompt, empty, late, starting = several = [Played(number, number) for number in (1, 2, 3, 4)]
    for played in several[:3]:
        await played.says(b"ready 1\n")
    asking = asyncio.ensure_future(collect_answers([one.worker for one in several], b"a"))
    await turns()
    prompt.far.sendall(b"answer 1 yes\n")
    empty.far.sendall(b"answer 1 \n")
    async with asyncio.timeout(PATIENCE):
        assert await asking == {1: b"yes"}
    await turns()
    assert late.hears() == b"query 1 a\n"
    assert late.worker._queries == {}, "it is not waited for any more"
    assert starting.hears_nothing()
    for played in several:
        await played.close()


async def test_all_answers_are_waited_for() -> None:
    played = Played()
    await played.says(b"ready 1\n")
    asking = asyncio.ensure_future(collect_answers([played.worker], b"a"))
    await turns()
    assert not asking.done()
    await played.says(b"answer 1 yes\n")
    assert await asking == {4711: b"yes"}
    await played.close()


# -- the worker's end ----------------------------------------------------------------------------------


class Employed:
    """A worker's end, and the supervisor's for the test."""

    def __init__(self, pair: tuple[socket.socket, socket.socket], **options: Any) -> None:
        near, self.far = pair
        near.setblocking(True)
        self.near = near
        self.drained: asyncio.Queue[None] = asyncio.Queue()
        job = WorkerSpec(number=1, pipe=os.dup(near.fileno()), supervisor=os.getpid(), load_board=-1)
        self.before = set(threading.enumerate())
        self.pipe = ControlPipe(job, lambda: self.drained.put_nowait(None), 2.5, **options)
        near.close()

    async def hears(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += await asyncio.to_thread(self.far.recv, size - len(found))
        return found

    def line(self) -> threading.Thread:
        [thread] = [one for one in threading.enumerate() if one not in self.before and one.name == "dragoman-pipe"]
        return thread

    async def told_to_drain(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.drained.get()

    async def close(self) -> None:
        thread = self.line()
        self.pipe.close()
        self.far.close()
        await asyncio.to_thread(thread.join, PATIENCE)
        assert not thread.is_alive()
        self.pipe._socket.close()


async def test_a_worker_says_that_it_listens_and_answers_what_it_is_asked(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    asked: list[bytes] = []

    async def answer(message: bytes) -> bytes | None:
        asked.append(message)
        return None if message == b"silent" else b"to " + message

    end = Employed(pair, report=lambda: b"a report", answer=answer)
    end.pipe.ready()
    assert await end.hears(10) == b"ready 2.5\n"
    for said, answered in (
        ([b"report\n"], b"report a report\n"),
        ([b"que", b"ry 7 one t", b"wo\n"], b"answer 7 to one two\n"),
        ([b"query 8 silent\n"], b"answer 8 \n"),
        ([b"query 9 " + b"x" * 5_000 + b"\n"], b"answer 9 to " + b"x" * 5_000 + b"\n"),
    ):
        for piece in said:
            end.far.sendall(piece)
        assert await end.hears(len(answered)) == answered
    assert asked == [b"one two", b"silent", b"x" * 5_000]
    assert end.drained.empty()
    end.pipe._report = None
    await end.close()


async def test_a_worker_that_has_nothing_to_say_says_so(pair: tuple[socket.socket, socket.socket]) -> None:
    end = Employed(pair)
    end.far.sendall(b"report\nquery 1 a\n")
    assert sorted((await end.hears(18)).splitlines()) == [b"answer 1 ", b"report "]
    await end.close()


async def test_told_to_drain_twice_and_left_alone_it_drains_once(pair: tuple[socket.socket, socket.socket]) -> None:
    end = Employed(pair, report=lambda: b"still there")
    end.far.sendall(b"drain\ndrain\nreport\n")
    await end.told_to_drain()
    assert await end.hears(19) == b"report still there\n"
    end.pipe._report = None
    await end.close()
    await turns()
    assert end.drained.empty()


@pytest.mark.parametrize("unread", [False, True], ids=["closed", "reset"])
async def test_without_its_supervisor_it_drains(pair: tuple[socket.socket, socket.socket], unread: bool) -> None:
    end = Employed(pair)
    if unread:
        end.pipe.ready()  # what was not read resets the connection
    thread = end.line()
    end.far.close()
    await end.told_to_drain()
    end.pipe.close()
    await asyncio.to_thread(thread.join, PATIENCE)
    assert not thread.is_alive()
    assert end.drained.empty()
    end.pipe._socket.close()


async def test_its_last_words_are_a_report(pair: tuple[socket.socket, socket.socket]) -> None:
    end = Employed(pair, report=lambda: b"the last")
    thread = end.line()
    end.pipe.close()
    assert await end.hears(16) == b"report the last\n"
    end.far.close()
    await asyncio.to_thread(thread.join, PATIENCE)
    assert not thread.is_alive()
    end.pipe._socket.close()


class Over:
    """Stands for the event of the end: how long it was waited for."""

    def __init__(self, over: bool) -> None:
        self._over = over
        self.waited: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return self._over

    def set(self) -> None: ...


@pytest.mark.parametrize("over", [False, True])
async def test_without_its_supervisor_it_is_ended_after_its_time(
    pair: tuple[socket.socket, socket.socket], over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", statuses.append)
    end = Employed(pair)
    waits: Any = Over(over)
    end.pipe._over = waits
    await end.close()
    assert waits.waited == [2.5 + worker_module.GRACE]
    assert statuses == ([] if over else [1])


def test_the_first_serve_of_a_process_is_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert take_worker_spec() is None
    line, board, served = socket.socketpair(), os.pipe(), os.pipe()
    numbers = [line[0].fileno(), board[0], *served]
    for number in numbers:
        os.set_inheritable(number, True)
    job = WorkerSpec(
        number=3, pipe=numbers[0], supervisor=5, load_board=numbers[1], announce=True, sockets={"tcp:": numbers[2:]}
    )
    monkeypatch.setenv(VARIABLE, msgspec.json.encode(job).decode())
    assert take_worker_spec() == job
    assert VARIABLE not in os.environ
    assert [os.get_inheritable(number) for number in numbers] == [False] * 4
    assert take_worker_spec() is None
    for one in line:
        one.close()
    for number in (*board, *served):
        os.close(number)
    monkeypatch.setenv(VARIABLE, msgspec.json.encode(job).decode())
    assert take_worker_spec() == job, "what is not open is told where it is used"
