"""Real processes at the far end: those we start, and ourselves as the one that was started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dragoman.channel import Broken, Channel, Closed, Ended, Options
from dragoman.jsonrpc.errors import LocalError
from dragoman.jsonrpc.limits import Limits
from dragoman.schemes import dial
from dragoman.transports.stream import child as child_module
from tests.loops import PROGRAMS, RUNNERS

from ..ends import PATIENCE, Recorder, options, until

ROOT = Path(__file__).parents[3]

HERE = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else None
"""Where a child finds dragoman that is not installed."""
CAT = "import sys\nfor line in sys.stdin.buffer:\n    sys.stdout.buffer.write(line); sys.stdout.buffer.flush()"


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def popen(command: list[str], **pipes: int) -> subprocess.Popen[bytes]:
    """A process of the standard library's, for what must not be ours."""
    return subprocess.Popen(
        command, cwd=ROOT, stdin=pipes.get("stdin"), stdout=pipes.get("stdout"), stderr=pipes.get("stderr")
    )


async def started(program: str, opts: Options | None = None) -> Recorder:
    return Recorder(await dial(python(program), opts or Options()))


# -- children -------------------------------------------------------------------------------------

_before: set[psutil.Process] = set()


@pytest.fixture(autouse=True)
def _others() -> None:
    """Processes that run before a test, such as another module's broker, are not its children."""
    _before.clear()
    _before.update(psutil.Process().children())


def children() -> list[psutil.Process]:
    """The processes that this test has started and that still are."""
    return [one for one in psutil.Process().children() if one not in _before]


@pytest.mark.parametrize("run", RUNNERS)
def test_there_and_back(run: Callable[..., None]) -> None:
    async def main() -> None:
        before = descriptors()
        channel = await dial(python(CAT), Options())
        assert isinstance(channel, Channel)
        assert channel.duplex
        assert channel.caller.scheme == "stdio"
        end = Recorder(channel)
        for i in range(1000):
            channel.send(b"%d" % i)
        assert await end.got(1000) == [b"%d" % i for i in range(1000)]
        big = b'"' + b"x" * 2_000_000 + b'"'
        channel.send(big)
        await channel.flush()
        assert (await end.got(1001))[-1] == big
        await channel.close()
        await channel.close()
        assert isinstance(end.why, Closed)
        assert not children()
        assert descriptors() == before

    run(main())


def descriptors() -> list[str]:
    """What is open, but for the loop's own; [] where the system does not say."""
    if sys.platform != "linux":
        return []
    found = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    ]
    return sorted(what for what in found if what.startswith(("pipe", "anon_inode:[pidfd]")))


async def test_a_command_as_a_string_its_folder_and_its_environment(tmp_path: Path) -> None:
    program = "import os, json; print(json.dumps([os.getcwd(), os.environ[chr(71)], 'PATH' in os.environ]))"
    (tmp_path / "x.py").write_text(program)
    end = Recorder(await dial(f'"{sys.executable}" x.py', Options(cwd=str(tmp_path), env={"G": "set"})))
    assert json.loads((await end.got(1))[0]) == [str(tmp_path), "set", True]
    await end.over()


async def test_content_length() -> None:
    program = "import sys\nwhile b := sys.stdin.buffer.read1(): sys.stdout.buffer.write(b); sys.stdout.buffer.flush()"
    end = await started(program, Options(framing="content-length"))
    end.channel.send(b"[1,\n2]")
    assert await end.got(1) == [b"[1,\n2]"]
    await end.channel.close()


async def test_a_child_that_ends_says_how_and_why() -> None:
    end = await started("import sys; print(1); print('no\\x1b disk', file=sys.stderr); sys.exit(3)")
    why = await end.over()
    assert isinstance(why, Ended)
    assert "ended with exit status 3: no\\x1b disk" in str(why)
    assert end.messages == [b"1"]  # what it had written is not lost
    with pytest.raises(Ended, match="exit status 3"):
        end.channel.send(b"1")
    await end.channel.close()


@pytest.mark.parametrize("status", [0, 3])
async def test_the_last_line_of_a_child_needs_no_end_unless_it_failed(status: int) -> None:
    """One that has failed was cut off in the middle of it, in all likelihood."""
    end = await started(f"import sys; input(); print(1); print(2, end='', flush=True); sys.exit({status})")
    end.channel.send(b"{}")
    assert f"ended with exit status {status}" in str(await end.over())
    assert end.messages == ([b"1"] if status else [b"1", b"2"])


async def test_a_child_that_is_over_before_its_channel_is_open() -> None:
    channel = await dial(python("print(1); print(2); import sys; sys.exit(3)"), Options())
    await channel.gone()  # type: ignore[attr-defined]
    end = Recorder(channel)
    assert not end.messages
    assert "exit status 3" in str(await end.over())
    assert end.messages == [b"1", b"2"]


async def test_kill_9() -> None:
    end = await started(f"import os; print(os.getpid(), flush=True)\n{CAT}")
    pid = int((await end.got(1))[0])
    os.kill(pid, signal.SIGKILL)
    assert "was ended by SIGKILL" in str(await end.over())
    assert not psutil.pid_exists(pid)  # reaped, no zombie


@pytest.mark.parametrize("run", RUNNERS)
def test_a_grandchild_that_holds_the_pipe_hides_nothing(run: Callable[..., None]) -> None:
    """End of file does not come, the exit does; and the grandchild does not stay."""
    program = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(p.pid, flush=True); sys.stdin.readline(); sys.exit(5)"
    )

    async def main() -> None:
        end = await started(program)
        grandchild = int((await end.got(1))[0])
        assert alive(grandchild)
        end.channel.send(b"go")
        assert "exit status 5" in str(await end.over())
        await until(lambda: not alive(grandchild))
        await end.channel.close()

    run(main())


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a child is killed in any case there is no use in waiting long for it."""
    monkeypatch.setattr(child_module, "_PATIENCE", 0.1)


async def test_closing_ends_grandchildren_too(hasty: None) -> None:
    """They ignore SIGTERM, and live on when their parent has gone."""
    program = (
        "import subprocess, sys\n"
        "inner = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)'\n"
        "p = subprocess.Popen([sys.executable, '-c', inner], stdin=subprocess.DEVNULL)\n"
        "print(p.pid, flush=True); sys.stdin.read()"
    )
    end = await started(program)
    await end.got(2)
    grandchild = max(map(int, end.messages))
    await end.channel.close()
    await until(lambda: not alive(grandchild))


async def test_a_child_that_ignores_everything_is_killed(hasty: None) -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)\nwhile 1: time.sleep(9)"
    end = await started(program)
    await end.got(1)
    (child,) = children()
    await end.channel.close()
    assert not child.is_running()
    assert isinstance(end.why, Closed)


async def test_sigterm_comes_before_sigkill() -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('orderly', file=sys.stderr, flush=True), sys.exit()))\n"
        "print(1, flush=True)\nwhile 1: time.sleep(9)"
    )
    lines: list[str] = []
    end = await started(program, Options(stderr=lines.append))
    await end.got(1)
    await end.channel.close()
    assert lines == ["orderly"]


async def test_abort_kills_at_once() -> None:
    end = await started(f"print(1, flush=True)\n{CAT}")
    await end.got(1)
    (child,) = children()
    end.channel.abort(Broken("enough"))
    assert not end.endings
    assert str(await end.over()) == "enough"
    assert not child.is_running()
    await end.channel.close()


async def test_a_child_that_closes_its_output_has_finished() -> None:
    end = await started("import os, sys; print(1, flush=True); os.close(1); sys.stdin.read()")
    await end.until(lambda end: end.is_finished)
    assert end.messages == [b"1"]
    await end.channel.close()
    assert isinstance(end.why, Ended)


async def test_a_child_that_closes_its_input_is_broken() -> None:
    end = await started("import os, time; os.close(0); print(1, flush=True); time.sleep(600)")
    await end.got(1)
    end.channel.send(b"into the void")
    assert "reads its standard input no more" in str(await end.over())
    assert not children()


async def test_a_child_that_does_not_read_holds_us_back_and_is_cut_off() -> None:
    end = await started(
        "import time; print(1, flush=True); time.sleep(600)", options(send_queue=1000, write_timeout=0.2)
    )
    await end.got(1)
    while end.channel.writable:
        end.channel.send(b"x" * 100_000)
        await asyncio.sleep(0)
    with pytest.raises(Broken, match=r"took nothing of what was sent to it for 0\.2 s"):
        await end.channel.flush()
    await end.over()
    assert not children()


async def test_a_child_that_reads_slowly_gets_it_all() -> None:
    program = (
        "import os, sys, time\nprint(1, flush=True); n = len(sys.stdin.readline())\n"
        "while b := os.read(0, 100000): n += len(b)\nprint(n, file=sys.stderr, flush=True)"
    )
    lines: list[str] = []
    end = await started(program, Options(limits=Limits(send_queue=1000), stderr=lines.append))
    await end.got(1)
    sent = 0
    while end.channel.writable:
        end.channel.send(b"x" * 9999)
        sent += 10_000
        await asyncio.sleep(0)
    await end.channel.close()
    assert 0 < int(lines[0]) <= sent


async def test_stderr_is_logged_a_line_at_a_time_and_escaped(caplog: pytest.LogCaptureFixture) -> None:
    program = "import sys; sys.stderr.buffer.write(b'one\\ntwo \\xff\\x1b\\n' + b'x' * 100000 + b'\\nlast'); sys.stderr.flush()"
    with caplog.at_level(logging.INFO, "dragoman.child"):
        end = await started(program)
        await end.over()
    said = [record.getMessage().rpartition(": ")[2] for record in caplog.records if record.name == "dragoman.child"]
    assert said[:2] == ["one", "two \\xff\\x1b"]
    assert 8000 < len(said[2]) < 9000
    assert said[3] == "last"


async def test_a_stderr_function_that_fails_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def fail(line: str) -> None:
        raise ValueError(line)

    end = await started("import sys; print('a\\nb', file=sys.stderr)", Options(stderr=fail))
    await end.over()
    assert len([record for record in caplog.records if record.exc_info and record.levelname == "ERROR"]) == 1


async def test_a_signal_without_a_name() -> None:
    end = await started(f"import os; os.kill(os.getpid(), {signal.SIGRTMIN + 5})")
    assert f"was ended by signal {signal.SIGRTMIN + 5}" in str(await end.over())


async def test_without_pidfd_a_thread_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    end = await started("import sys; sys.exit(4)")
    assert "exit status 4" in str(await end.over())
    end = await started(CAT)
    await end.channel.close()
    assert isinstance(end.why, Closed)


@pytest.mark.parametrize(
    ("command", "opts", "says"),
    [
        (["no-such-program"], Options(), "Cannot start no-such-program: there is no program 'no-such-program'"),
        ([sys.executable], Options(cwd="/no/such"), "there is no folder '/no/such'"),
        ([os.fspath(ROOT / "README.md")], Options(), "may not be run"),
        (["a\0b"], Options(), "embedded null"),
    ],
)
async def test_what_cannot_be_started_is_one_sentence(command: list[str], opts: Options, says: str) -> None:
    with pytest.raises(LocalError, match=says) as caught:
        await dial(command, opts)
    assert "\n" not in str(caught.value)


async def test_our_death_ends_the_child(tmp_path: Path) -> None:
    """Killed without a chance to do anything: the child sees end of file."""
    program = (
        "import asyncio, sys\nfrom dragoman.schemes import dial\nfrom dragoman.channel import Options\n"
        "from tests.transports.ends import Recorder\n"
        "async def main():\n"
        f"    end = Recorder(await dial([sys.executable, '-c', {'import os; print(os.getpid(), flush=True)' + chr(10) + CAT!r}], Options()))\n"
        "    print((await end.got(1))[0].decode(), flush=True)\n"
        "    await end.over()\n"
        "asyncio.run(main())"
    )
    parent = popen(python(program), stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    await until(lambda: not alive(pid))


# -- ourselves ------------------------------------------------------------------------------------

SERVER = """
import asyncio, os, subprocess, sys
from dragoman.channel import Options
from dragoman.schemes import listen
from tests.transports.ends import Echo

def answer(end, message):
    if message == b"print":
        print("stray from python")
        os.write(1, b"stray from C\\n")
        subprocess.run([sys.executable, "-c", "print('stray from a child')"])
        end.channel.send(repr(sys.stdin.read()).encode())
    elif message == b"die":
        os._exit(7)
    else:
        end.channel.send(message)

async def main():
    sys.stdout.reconfigure(newline="\\n")
    listener = await listen(URL, {"": Echo(answer)}, Options())
    assert listener.url == "stdio:"
    await listener.closed()
    print("and back again")

RUN(main())
"""


def server(url: str = "stdio:", runner: str = "asyncio.run") -> str:
    imports = "import uvloop\n" if runner.startswith("uvloop") else ""
    return imports + SERVER.replace("URL", repr(url)).replace("RUN", runner)


def run_server(stdin: bytes, url: str = "stdio:", runner: str = "asyncio.run") -> tuple[list[bytes], list[bytes], int]:
    done = subprocess.run(python(server(url, runner)), input=stdin, capture_output=True, cwd=ROOT, timeout=PATIENCE * 2)
    return done.stdout.splitlines(), done.stderr.splitlines(), done.returncode


@pytest.mark.parametrize("runner", PROGRAMS)
def test_end_of_file_with_a_hundred_questions_gives_a_hundred_answers(runner: str) -> None:
    out, err, status = run_server(b"\n".join(b"%d" % i for i in range(100)), runner=runner)
    assert out == [b"%d" % i for i in range(100)] + [b"and back again"]
    assert (err, status) == ([], 0)


@pytest.mark.parametrize("runner", PROGRAMS)
def test_stray_output_goes_to_stderr(runner: str) -> None:
    out, err, status = run_server(b"print\n1\n", runner=runner)
    assert out == [b"''", b"1", b"and back again"]
    assert sorted(err) == [b"stray from C", b"stray from a child", b"stray from python"]
    assert status == 0


def test_content_length_framing() -> None:
    done = subprocess.run(
        python(server("stdio:?framing=content-length")),
        input=b"Content-Length: 2\r\n\r\n42",
        capture_output=True,
        cwd=ROOT,
    )
    assert done.stdout == b"Content-Length: 2\r\n\r\n42and back again\n"


@pytest.mark.parametrize("runner", PROGRAMS)
def test_files_in_place_of_pipes(tmp_path: Path, runner: str) -> None:
    (tmp_path / "in").write_bytes(b"".join(b'"%d %s"\n' % (i, b"x" * 100) for i in range(5000)))
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        subprocess.run(
            python(server(runner=runner)), stdin=stdin, stdout=stdout, cwd=ROOT, check=True, timeout=PATIENCE * 2
        )
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes() + b"and back again\n"


@pytest.mark.parametrize("runner", PROGRAMS)
def test_nothing_at_all(runner: str) -> None:
    with open(os.devnull, "rb") as stdin:
        done = subprocess.run(
            python(server(runner=runner)), stdin=stdin, capture_output=True, cwd=ROOT, timeout=PATIENCE * 2
        )
    assert (done.stdout, done.stderr, done.returncode) == (b"and back again\n", b"", 0)


def test_a_socket_for_both() -> None:
    """As node gives its children."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = subprocess.Popen(python(server()), stdin=theirs.fileno(), stdout=theirs.fileno(), cwd=ROOT)
        ours.sendall(b"1\n2\n")
        ours.shutdown(socket.SHUT_WR)
        with ours.makefile("rb") as lines:
            assert lines.read() == b"1\n2\nand back again\n"
    assert child.wait(PATIENCE) == 0


def test_a_terminal_and_it_is_left_as_it_was() -> None:
    import pty

    far, near = pty.openpty()
    with subprocess.Popen(python(server()), stdin=near, stdout=near, stderr=subprocess.DEVNULL, cwd=ROOT) as child:
        os.write(far, b'"typed"\n')
        seen = b""
        while seen.count(b'"typed"') < 2:  # the terminal's echo, and the answer
            seen += os.read(far, 1000)
        assert os.get_blocking(near)
        os.write(far, b"\x04")
        assert child.wait(PATIENCE) == 0
    os.close(near)
    os.close(far)


def test_blocking_is_as_before_afterwards() -> None:
    program = server() + "\nprint(os.get_blocking(0), os.get_blocking(1))"
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        subprocess.Popen(python(program), stdin=theirs.fileno(), stdout=theirs.fileno(), cwd=ROOT) as child,
    ):
        ours.shutdown(socket.SHUT_WR)
        assert child.wait(PATIENCE) == 0
        assert ours.recv(1000) == b"and back again\nTrue True\n"


async def test_the_parent_dies_and_end_of_file_does_not_come(tmp_path: Path) -> None:
    """Another process still holds the writing end of our standard input."""
    read, write = os.pipe()
    parent = popen(
        python(
            f"import subprocess, sys, time\np = subprocess.Popen([sys.executable, '-c', {server()!r}])\nprint(p.pid, flush=True); time.sleep(600)"
        ),
        stdin=read,
        stdout=subprocess.PIPE,
    )
    os.close(read)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    os.write(write, b"1\n")
    assert parent.stdout.readline() == b"1\n"  # it serves
    parent.kill()
    parent.wait()
    await until(lambda: not alive(pid))
    parent.stdout.close()
    os.close(write)


async def test_our_output_is_not_read_any_more() -> None:
    child = popen(python(server()), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdin.write(b"1\n")
    child.stdin.flush()
    assert child.stdout.readline() == b"1\n"
    child.stdout.close()
    child.stdin.write(b"2\n" * 10)
    child.stdin.flush()
    await until(lambda: child.poll() is not None)  # though its input is still open
    child.stdin.close()
    assert re.search(
        rb"BrokenPipeError|OSError: \[Errno 22\]", child.stderr.read()
    )  # of the last print, when nothing is guarded any more
    child.stderr.close()


def test_a_full_disk_ends_it() -> None:
    with (
        open("/dev/full", "wb") as full,
        subprocess.Popen(
            python(server()), stdin=subprocess.PIPE, stdout=full, stderr=subprocess.DEVNULL, cwd=ROOT
        ) as child,
    ):
        assert child.stdin is not None
        child.stdin.write(b"1\n")
        child.stdin.flush()
        child.wait(PATIENCE)  # though its input is still open


def test_dial_takes_our_own_too_and_only_once() -> None:
    program = """
import asyncio
from dragoman.channel import Options
from dragoman.jsonrpc.errors import LocalError
from dragoman.schemes import dial
from dragoman.transports.stream import child as child_module
from tests.transports.ends import Recorder
async def main():
    end = Recorder(await dial("stdio:", Options()))
    try:
        await dial("stdio:", Options())
    except LocalError as error:
        end.channel.send(b'"%s"' % str(error).encode())
    end.channel.send(b'"hello"')
    await end.until(lambda end: end.is_finished)
    await end.channel.close()
    await (await dial("stdio:", Options())).close()
asyncio.run(main())
"""
    done = subprocess.run(python(program), input=b"1\n", capture_output=True, cwd=ROOT)
    assert done.stderr == b""
    assert done.stdout.splitlines() == [
        b'"stdio: is taken already: a process has one standard input and one standard output"',
        b'"hello"',
    ]


def test_no_standard_input() -> None:
    closed = ["sh", "-c", 'exec "$0" "$@" <&-', *python(server())]
    done = subprocess.run(closed, capture_output=True, cwd=ROOT)
    assert b"LocalError: stdio: this process has no standard input or no standard output" in done.stderr


async def test_both_ends_ours() -> None:
    """Dragoman at both ends, with many questions under way and a child that dies in the middle."""
    end = Recorder(await dial(python(server()), Options(cwd=str(ROOT), env=HERE)))
    for i in range(500):
        end.channel.send(b"%d" % i)
    assert await end.got(500) == [b"%d" % i for i in range(500)]
    end.channel.send(b"die")
    assert "exit status 7" in str(await end.over())


def test_a_slow_parent_is_waited_for() -> None:
    """More answers than a pipe holds, and they are not read for a while: all of them come."""
    count = 20_000
    with subprocess.Popen(python(server()), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b'"0123456789"\n' * count)
        child.stdin.close()
        deadline = time.monotonic() + PATIENCE
        with contextlib.suppress(psutil.Error):
            while psutil.Process(child.pid).status() == psutil.STATUS_RUNNING and time.monotonic() < deadline:
                time.sleep(0.01)
        assert child.stdout.read() == b'"0123456789"\n' * count + b"and back again\n"
        assert child.wait(PATIENCE) == 0
