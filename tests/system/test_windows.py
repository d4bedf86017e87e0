"""On Windows: child processes with all that they start, batch files, encodings, and what is not there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dragoman import LocalError, connect
from dragoman.channel import Options
from dragoman.net.environment import child_environment
from dragoman.schemes import dial, listen
from tests.transports.ends import Echo, Recorder

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="of Windows")

ROOT = Path(__file__).parents[2]
HERE = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
SLEEPS = "import time; time.sleep(600)"


async def gone(pid: int) -> None:
    """Wait for the end of a process."""
    await asyncio.to_thread(lambda: psutil.pid_exists(pid) and psutil.Process(pid).wait(20))


async def test_nothing_outlives_a_channel() -> None:
    program = (
        "import subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}], stdin=subprocess.DEVNULL)\n"
        "print(p.pid, flush=True); sys.stdin.read()"
    )
    end = Recorder(await dial([sys.executable, "-c", program], Options()))
    (pid,) = await end.got(1)
    assert psutil.pid_exists(int(pid))
    await end.channel.close()
    await gone(int(pid))


async def test_nothing_outlives_us(tmp_path: Path) -> None:
    """Killed without a chance to do anything: the system ends the job, with the grandchild that reads nothing."""
    inner = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]); print(p.pid, flush=True); p.wait()"
    program = (
        "import asyncio, sys\nfrom dragoman.schemes import dial\nfrom dragoman.channel import Options\n"
        "from tests.transports.ends import Recorder\n"
        "async def main():\n"
        f"    end = Recorder(await dial([sys.executable, '-c', {inner!r}], Options()))\n"
        "    print((await end.got(1))[0].decode(), flush=True)\n"
        "    await end.over()\n"
        "asyncio.run(main())"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE) as parent:  # noqa: ASYNC220
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    await gone(pid)


BATCH = '@echo off\r\n"{python}" "{echo}" %*\r\n'


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    """A folder with a batch file that a program behind it answers for, as npx.cmd does with node."""
    folder = tmp_path / "with space"
    folder.mkdir()
    echo = folder / "echo.py"
    echo.write_text("import json, sys; print(json.dumps(sys.argv[1:]), flush=True); sys.stdin.read()")
    (folder / "npy.cmd").write_text(BATCH.format(python=sys.executable, echo=echo))
    return folder


@pytest.mark.parametrize("name", ["npy", "npy.cmd", "NPY.CMD"])
async def test_batch_files_are_found_in_path_and_get_their_arguments(batch: Path, name: str) -> None:
    given = ["-y", "two words", "a&b", "x|y>z", "@scope/name@1"]
    path = f"{batch}{os.pathsep}{os.environ['PATH']}"
    end = Recorder(await dial([name, *given], Options(env={"PATH": path})))
    assert json.loads((await end.got(1))[0]) == given
    await end.channel.close()


async def test_batch_files_by_path(batch: Path) -> None:
    end = Recorder(await dial([str(batch / "npy"), "1"], Options()))
    assert await end.got(1) == [b'["1"]']
    await end.channel.close()


async def test_an_argument_that_cmd_would_interpret_is_refused(batch: Path) -> None:
    with pytest.raises(LocalError, match=r"npy\.cmd is a batch file, and cmd\.exe would interpret '\"'"):
        await dial([str(batch / "npy.cmd"), '"&calc.exe'], Options())


async def test_a_program_is_not_looked_for_in_the_current_folder(batch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(batch)
    with pytest.raises(LocalError, match="there is no program 'npy'"):
        await dial(["npy"], Options())


@pytest.mark.parametrize("variables", [{}, {"PYTHONIOENCODING": "cp1252"}, {"PYTHONUTF8": "0"}])
async def test_utf8_whatever_the_code_page(tmp_path: Path, variables: dict[str, str]) -> None:
    """Of a server of ours, both ways."""
    (tmp_path / "echoes.py").write_text(
        "from dragoman import Service\napi = Service('echoes')\n"
        "@api.method\ndef echo(text: str) -> str:\n    print(len(text))\n    return text\n"
        "if __name__ == '__main__':\n    api.run('stdio:')\n",
        encoding="utf-8",
    )
    text = "grüße, 世界, 😀, \u2028, \r\n" * 1000
    env = HERE | variables
    async with connect([sys.executable, str(tmp_path / "echoes.py")], env=env) as peer:
        assert await peer.call("echo", [text]) == text


async def test_lines_that_end_in_crlf_are_taken_and_lf_is_sent() -> None:
    program = (
        "import sys; out = sys.stdout.buffer; out.write(b'1\\r\\n2\\r\\n'); out.flush()\n"
        "out.write(repr(sys.stdin.buffer.readline()).encode() + b'\\r\\n'); out.flush(); sys.stdin.read()"
    )
    end = Recorder(await dial([sys.executable, "-c", program], Options()))
    await end.got(2)
    end.channel.send(b"[]")
    assert [one.strip() for one in await end.got(3)] == [b"1", b"2", b"b'[]\\n'"]
    await end.channel.close()


def test_the_short_environment() -> None:
    found = child_environment({"OURS": "1"}, False)
    assert {"SYSTEMROOT", "PATH", "OURS"} <= found.keys()
    assert "PYTHONPATH" not in found


async def test_unix_sockets_say_that_they_are_not_there() -> None:
    with pytest.raises(LocalError, match="no Unix sockets"):
        await dial("unix:x.sock", Options())
    with pytest.raises(LocalError, match="no Unix sockets"):
        await listen("unix:x.sock", {"": Echo()}, Options())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--workers", "2"], "there are no workers on Windows"),
        (["unix:x.sock"], "no Unix sockets"),
        (["--admin", "x.sock"], "no Unix sockets"),
    ],
)
def test_the_command_says_what_is_not_there(tmp_path: Path, words: list[str], says: str) -> None:
    (tmp_path / "one.py").write_text("from dragoman import Service\napi = Service('one')\n")
    urls = [] if words[0].startswith("unix") else ["tcp://127.0.0.1:0"]
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "serve", "one:api", *urls, *words],
        cwd=tmp_path,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == 2, done
    assert says in done.stderr.decode()
    assert len(done.stderr.splitlines()) <= 2


def test_the_command_speaks_utf8_and_lf(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "from dragoman import Service\napi = Service('one')\n@api.method\ndef say() -> str:\n    return '世界'\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "call", "one.py", "say"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONUTF8": "0"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.stdout == '"世界"\n'.encode(), done
