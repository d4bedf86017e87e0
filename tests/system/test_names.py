"""The names of one system alone stand in `dragoman.system` and nowhere else, and everything imports on all of them."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

import dragoman

SOURCE: Final = Path(dragoman.__file__).parent

MODULES: Final = frozenset(
    ("_winapi", "ctypes", "fcntl", "grp", "msvcrt", "pty", "pwd", "resource", "termios", "tty", "winreg")
)
"""Modules of one system."""
MEMBERS: Final = frozenset(
    [
        "add_reader",
        "add_writer",
        "remove_reader",
        "remove_writer",
        "add_signal_handler",
        "remove_signal_handler",
        "create_unix_connection",
        "create_unix_server",
        "open_unix_connection",
        "start_unix_server",
        "fork",
        "forkpty",
        "fchmod",
        "fchown",
        "geteuid",
        "getegid",
        "getuid",
        "getgid",
        "getpgid",
        "getpgrp",
        "getppid",
        "kill",
        "killpg",
        "mkfifo",
        "openpty",
        "pidfd_open",
        "pread",
        "pwrite",
        "register_at_fork",
        "sched_getaffinity",
        "sendfile",
        "set_blocking",
        "get_blocking",
        "setsid",
        "setpgrp",
        "sysconf",
        "wait3",
        "wait4",
        "waitid",
        "waitpid",
        "O_DIRECTORY",
        "O_NOCTTY",
        "O_NOFOLLOW",
        "O_NONBLOCK",
        "pthread_sigmask",
        "SIGBREAK",
        "SIGHUP",
        "SIGKILL",
        "SIGUSR1",
        "SIGUSR2",
        "SIGBUS",
        "SIGCHLD",
        "SIGPIPE",
        "SIGWINCH",
        "AF_UNIX",
        "SO_PEERCRED",
        "SO_REUSEADDR",
        "SO_REUSEPORT",
        "SCM_RIGHTS",
        "sendmsg",
        "recvmsg",
        "CREATE_NEW_PROCESS_GROUP",
        "CREATE_NO_WINDOW",
        "CTRL_BREAK_EVENT",
        "STARTUPINFO",
        "which",
    ]
)
"""Members of os, signal, socket, subprocess, shutil and event loops that some systems lack, or mean otherwise."""
KEYWORDS: Final = frozenset(
    ("preexec_fn", "start_new_session", "process_group", "creationflags", "startupinfo", "pass_fds")
)
"""Arguments of subprocess that one system has."""

ALLOWED: Final = {
    ("cli/serving/large_blocks.py", "ctypes"): "the allocator of glibc, on Linux alone",
    ("net/sockets.py", "O_DIRECTORY"): "by getattr: a folder of Unix sockets",
    ("workers/supervisor.py", "pass_fds"): "workers, which start on POSIX alone (`system.processes.WORKERS`)",
    ("workers/supervisor.py", "start_new_session"): "workers, as above",
    ("workers/process.py", "add_reader"): "workers, as above: the pipe of one",
    ("workers/process.py", "add_writer"): "workers, as above",
    ("workers/process.py", "remove_reader"): "workers, as above",
    ("workers/process.py", "remove_writer"): "workers, as above",
}
OWNERS: Final = frozenset(("os", "signal", "socket", "subprocess", "loop", "_loop", "asyncio", "shutil"))
"""What such members belong to. Other objects may have methods of these names."""


def owner(node: ast.expr) -> str:
    """The last name of what a member belongs to."""
    if isinstance(node, ast.Call):
        return "loop" if owner(node.func) in ("get_running_loop", "get_event_loop") else ""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names(tree: ast.AST) -> Iterator[str]:
    """The names of one system that a file uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module in MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Attribute) and node.attr in MEMBERS and owner(node.value) in OWNERS:
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg in KEYWORDS:
            yield node.arg


def test_names_of_one_system_are_in_one_room() -> None:
    used = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path in SOURCE.rglob("*.py")
        if path.parent != SOURCE / "system"
        for name in names(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert sorted(used - ALLOWED.keys()) == []


def test_the_room_knows_no_other() -> None:
    for path in (SOURCE / "system").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.ImportFrom) and node.level > 1), path


@pytest.mark.parametrize(
    "name",
    [one.name for one in pkgutil.walk_packages(dragoman.__path__, "dragoman.") if not one.name.endswith(".__main__")],
)
def test_everything_imports(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name not in ("PyInstaller",):
            raise
        pytest.skip(f"{missing.name} is not installed")
