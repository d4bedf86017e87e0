"""Functions that run in child processes. A child imports this module, so it imports little."""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from msgspec import Struct

from dragoman.jsonrpc.errors import CallRefused, Refusal, RpcError
from dragoman.rpc.binding.dependencies import Depends
from dragoman.rpc.context import Context
from dragoman.rpc.process.declaring import in_process
from dragoman.rpc.process.pool import ProcessLimits

ONE = ProcessLimits(processes=1, waiting=1)
TWO = ProcessLimits(processes=2)
SINGLE_USE = ProcessLimits(processes=1, calls_per_process=1)
SHORT_LIVED = ProcessLimits(processes=1, idle_time=0.05)
SMALL = ProcessLimits(processes=1, message_size=1000)


class Point(Struct):
    """What a function takes and returns."""

    x: int
    y: int


@in_process
def mirrored(point: Point, /, *rest: int, factor: int = 1, **members: int) -> Point:
    """Swap the coordinates."""
    return Point(point.y * factor + sum(rest), point.x * factor + sum(members.values()))


@in_process
async def waits(seconds: float) -> str:
    """Return a text, after a while."""
    await asyncio.sleep(seconds)
    return await asyncio.to_thread(str.upper, "waited")


def pid() -> int:
    """The number of the process."""
    return os.getpid()


one_pid = in_process(pid, limits=ONE)
two_pid = in_process(pid, limits=TWO)
pid_once = in_process(pid, limits=SINGLE_USE)
pid_for_long = in_process(pid, limits=SHORT_LIVED)


def spin() -> None:
    """Never return, and let no other code run for long."""
    while True:
        sum(range(1000))


one_spin = in_process(spin, limits=ONE)
two_spin = in_process(spin, limits=TWO)


def spin_with_child(path: str) -> None:
    """Start a process, write its number to a file, and never return."""
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(f"{path}.new", "w") as file:
        file.write(f"{os.getpid()} {started.pid}")
    os.rename(f"{path}.new", path)
    spin()


spins_with_child = in_process(spin_with_child, limits=ONE)


@in_process
def leaves_a_thread() -> int:
    """Start a thread that never ends."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return os.getpid()


@in_process
async def leaves_a_task() -> int:
    """Start a task that never ends."""
    asyncio.get_running_loop().leftover = asyncio.create_task(asyncio.sleep(600))  # type: ignore[attr-defined]
    return os.getpid()


@in_process
def dies(how: str) -> None:
    """End the process."""
    faulthandler.disable()
    if how == "exit":
        os._exit(3)
    faulthandler._read_null()  # type: ignore[attr-defined]  # not by ctypes, which raises it on Windows


class OutOfStock(RpcError):
    """An error for callers."""

    code = 1001
    message = "Out of stock"


class Unfinished(Exception):
    """Cannot be made again from its arguments alone."""

    def __init__(self, done: int, of: int) -> None:
        super().__init__(f"{done} of {of}")
        self.done, self.of = done, of


def _errors() -> dict[str, BaseException]:
    class Hidden(RpcError):
        code = 1002
        message = "Hidden"

    class Nowhere(Exception):
        pass

    with_lock = ValueError("a lock")
    with_lock.lock = threading.Lock()  # type: ignore[attr-defined]
    return {
        "plain": ValueError("wrong"),
        "system": FileNotFoundError(2, "No such file", "data.csv"),
        "rpc": OutOfStock(data={"left": 2}),
        "arguments": Unfinished(2, 3),
        "refused": CallRefused(Refusal("busy", "Busy: later", {"retry_after": 1})),
        "group": ExceptionGroup("several", [ValueError("a"), OutOfStock()]),
        "local rpc": Hidden(data=[1]),
        "local": Nowhere("unknown"),
        "lock": with_lock,
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "cancelled": asyncio.CancelledError(),
    }


@in_process
def fails(how: str) -> None:
    """Raise an error."""
    raise _errors()[how]


@in_process
async def fails_async(how: str) -> None:
    """Raise an error in `async def`."""
    raise _errors()[how]


@in_process
def lock() -> Any:
    """Return what has no pickle."""
    return threading.Lock()


class Sly:
    """Has a pickle that cannot be read."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


@in_process
def sly() -> Any:
    """Return what cannot be unpickled."""
    return Sly()


@in_process
def takes(value: Any) -> str:
    """Return the type of a value."""
    return type(value).__name__


@in_process
def returns(value: Any) -> Any:
    """Return a value."""
    return value


def size(data: bytes, more: int) -> bytes:
    """Return this many bytes."""
    return bytes(more)


small_size = in_process(size, limits=SMALL)


@in_process
def prints() -> str:
    """Write to everything that is called standard output, and read the input."""
    print("printed")
    os.write(1, b"by number\n")
    subprocess.run([sys.executable, "-c", "print('by a process')"], check=True)
    assert sys.__stdout__ is not None
    sys.__stdout__.write("without an end")
    return sys.stdin.read() + "done"


@in_process
def logs() -> None:
    """Log at three levels."""
    logger = logging.getLogger("functions.log")
    logger.debug("too low")
    logger.info("%d things", 3, extra={"color": "red"})
    try:
        raise ValueError("inner")
    except ValueError:
        logger.exception("failed")


@in_process
def floods(count: int) -> None:
    """Log so many lines."""
    for number in range(count):
        logging.getLogger("functions.flood").info("%d", number)


@in_process
def forks() -> bytes:
    """Log in a forked process, and return what it could not do."""
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            logging.getLogger("functions.log").warning("of a forked process")
            os.write(write, b"done")
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        return file.read()


# -- what is found under another name, or wrapped


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator."""

    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        return 2 * await function(*args, **kwargs)

    return run


@doubled
@in_process
def wrapped(number: int) -> int:
    """Within a decorator."""
    return number + 1


def replaced(number: int) -> int:
    """Another object has its name."""
    return number


first = in_process(replaced)
replaced = doubled(in_process(pid))


class Holder:
    """Has functions."""

    @staticmethod
    def triple(number: int) -> int:
        """In a class."""
        return number * 3

    def method(self) -> None:
        """Needs an instance."""


triple = in_process(Holder.triple)


def generates() -> Iterator[int]:
    """A generator."""
    yield 1


# -- with a context


@in_process
def plain_context(name: str, ctx: Context) -> dict[str, Any]:
    """Use a context, plainly."""
    return {
        "progress": bool(ctx.progress({"at": 1})),
        "answer": ctx.call("question", [name], result=str),
        "both": ctx.call_all([("question", ["a"]), ("question", ["b"])], result=str),
        "notified": ctx.notify("news", {"is": name}),
        "stored": [ctx.store.set("k", {"v": 1}), ctx.store.get("k"), ctx.store.keys(), ctx.store.delete("k")],
        "method": ctx.method,
        "scheme": ctx.caller.scheme,
        "identity": ctx.identity,
        "cancelled": ctx.cancelled,
        "left": ctx.time_left is not None and ctx.time_left > 0,
        "pid": os.getpid(),
    }


@in_process
async def async_context(name: str, *, ctx: Context) -> dict[str, Any]:
    """Use a context, awaited."""
    answers = await asyncio.gather(*(ctx.call("question", [one], result=str) for one in "abc"))
    late = "none"
    try:
        async with asyncio.timeout(0.05):
            await ctx.call("silence")
    except TimeoutError:
        late = "timeout"
    await ctx.store.set("k", name)
    return {
        "progress": [bool(await ctx.progress(1)), bool(ctx.progress(2))],
        "answers": answers,
        "late": late,
        "stored": await ctx.store.get("k"),
        "method": ctx.method,
        "left": ctx.time_left is not None,
    }


def secret_of(ctx: Context) -> str:
    """A dependency, which has the context itself."""
    return f"{type(ctx).__name__} of {ctx.message.method} in {os.getpid()}"


@in_process
def depends(secret: Annotated[str, Depends(secret_of)], ctx: Context, number: int = 1) -> list[Any]:
    """Take a dependency."""
    return [secret, os.getpid(), number, ctx.method]


@in_process
def refused_context(member: str, ctx: Context) -> str:
    """Return the error of a member that does not exist there."""
    try:
        found: Any = ctx
        for name in member.split("."):
            found = getattr(found, name)
        return str(found() if callable(found) else found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@in_process
def failing_context(ctx: Context) -> None:
    """Have an error of the context."""
    ctx.call("missing")


@in_process
def unsendable(ctx: Context) -> None:
    """Give a context what has no pickle."""
    ctx.notify("news", threading.Lock())


@in_process
def context_back(ctx: Context) -> Any:
    """Return the context itself."""
    return ctx


@in_process
def spins_with_context(ctx: Context) -> None:
    """Report the number of the process, and never return."""
    ctx.progress(os.getpid())
    spin()
