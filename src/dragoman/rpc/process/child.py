"""The program of a child process: runs one call after another of its parent, and ends with it.

The pipes of the parent are its standard input and output when it starts. It takes them away at once: input is empty
then, and what functions print goes to standard error.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import importlib.util
import logging
import os
import runpy
import sys
import threading
import types
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from ...jsonrpc.errors import LocalError
from ..binding.signature import runs_as
from . import remote_context
from .connection import ParentConnection, ToParent
from .frames import MARK, CallFrame, FunctionPath, OutcomeFrame, pack_error, unpack_value, with_trace

if TYPE_CHECKING:
    import asyncio


def main() -> None:
    """Run calls until the parent closes the pipe."""
    incoming, outgoing = _take_pipes()
    outgoing.write(MARK)
    remote_context.connection = connection = ParentConnection(incoming, outgoing)
    logging.getLogger().addHandler(ToParent(connection))
    threading.Thread(target=connection.read, name="dragoman reads from the parent", daemon=True).start()
    while (call := connection.calls.get()) is not None:
        _run(connection, call)
        del call


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the parent's pipes, and give the process an empty input, and its standard error for output."""
    incoming, outgoing = os.dup(0), os.dup(1)  # which processes of its own do not inherit
    empty = os.open(os.devnull, os.O_RDWR)
    os.dup2(empty, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # it has no standard error
        os.dup2(empty, 1)
    os.close(empty)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # a child that is killed flushes nothing
    return os.fdopen(incoming, "rb", 0), os.fdopen(outgoing, "wb")


def _run(connection: ParentConnection, call: CallFrame) -> None:
    what = f"{call.target.name}()"
    threads: set[threading.Thread] | None = None
    try:
        function = find(call.target)
        connection.awaits = runs_as(function) == "coroutine"
        arguments, named = unpack_value(call.given, f"{what}: an argument")
        threads = set(threading.enumerate())
        value = function(*arguments, **named)
        if connection.awaits:
            value = _loop.run(value)
        value, failed = connection.pack_result(value, f"{what}: its result"), False
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:  # which would end the parent
        ended = RuntimeError(f"{what} raised {type(error).__name__}: {error}")
        ended.__cause__ = error
        value, failed = pack_error(with_trace(ended)), True
    except BaseException as error:
        value, failed = pack_error(with_trace(error)), True
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):  # there is none, or it is closed
            stream.flush()
    reusable = threads is not None and threads.issuperset(threading.enumerate())
    connection.finish(OutcomeFrame(value, failed, reusable))


class _Loop:
    """The event loop of the process's `async def` functions. It is made when it is first used, since that and the
    import take longer than a call."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine, and return its result. What it leaves behind (tasks, the threads of `asyncio.to_thread`) is
        ended as by `asyncio.run`."""
        import asyncio  # noqa: PLC0415  (start-up: a plain function needs none)

        if self._runner is None:
            self._runner = asyncio.Runner()
        threads = threading.active_count()
        try:
            return self._runner.run(work, context=contextvars.copy_context())
        finally:
            if asyncio.all_tasks(self._runner.get_loop()) or threading.active_count() > threads:
                runner, self._runner = self._runner, None
                runner.close()


_loop: Final = _Loop()
_modules: Final[dict[tuple[str, str | None], types.ModuleType]] = {}


def find(target: FunctionPath) -> Callable[..., Any]:
    """Return the function of a call. Raises LocalError for one that cannot be found, and what its module raises."""
    found: Any = _modules.get((target.module, target.file))
    if found is None:
        found = _modules[target.module, target.file] = _load(target)
    try:
        for name in target.name.split("."):
            found = getattr(found, name)
        for _ in range(target.depth):
            found = found.__wrapped__
    except AttributeError as error:
        guard = ""
        if target.module == "__main__":
            guard = '; what it needs may not be under `if __name__ == "__main__":`'
        raise LocalError(
            f"{target.name}() is not found in {target.module} in a child process: {error}{guard}"
        ) from error
    function: Callable[..., Any] = found
    return function


def _load(target: FunctionPath) -> types.ModuleType:
    """Import the module of a function."""
    if target.module == "__main__":
        # as multiprocessing does: under another name, so that what it starts as a program is not started
        made = types.ModuleType("__mp_main__")
        if target.main is not None:
            names = runpy.run_module(target.main, run_name="__mp_main__", alter_sys=True)
        else:
            names = runpy.run_path(target.file or "", run_name="__mp_main__")
        vars(made).update(names)
        sys.modules["__main__"] = sys.modules["__mp_main__"] = made
        return made
    try:
        return importlib.import_module(target.module)
    except ModuleNotFoundError as error:
        if error.name != target.module or target.file is None:
            raise
    spec = importlib.util.spec_from_file_location(target.module, target.file)
    if spec is None or spec.loader is None:
        raise LocalError(f"the module {target.module} cannot be imported from {target.file} in a child process")
    made = sys.modules[target.module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
