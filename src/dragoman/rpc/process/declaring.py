"""Makes an `async def` of a function that runs it in a child process.

    @app.tool
    @in_process
    def factors(number: int, ctx: Context) -> list[int]: ...

Rules:

- The function is at the top of a module, or of a class there: a child finds it by its name. So is what it takes and
  returns, which is pickled.
- What its decorators and the parameters' dependencies do is done in the parent; only the function's own code runs in
  the child.
- Its context has the same members there (`context_members`), and blocks or is awaited as in the parent.
- When its call is cancelled or times out, the child is killed at once: no `finally` runs in it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from ...jsonrpc.errors import LocalError
from ...jsonrpc.options import check, instance
from ..binding.signature import name_of, runs_as
from ..context_members import ContextMembers
from .frames import FunctionPath, pack_value
from .pool import REDUCERS, ProcessLimits, pool_of, result_of
from .remote_context import open_context

DEFAULT: Final = ProcessLimits()


def in_process(function: Callable[..., Any], *, limits: ProcessLimits = DEFAULT) -> Callable[..., Any]:
    """Return an `async def` with the function's name, docstring, parameters and annotations, which runs it in a child
    process, plain or `async def` alike.

    Functions with equal `limits` share the children of an event loop. Raises LocalError for a function that a child
    could not find by its name, and for a generator. A call raises what the function raises, an exception that cannot be
    pickled as the nearest base class that can; CallRefused where too many calls wait (busy), or the arguments are too
    large; InternalError if the process ends before its answer; LocalError for arguments and results without a pickle.
    """
    check("in_process", {"limits": instance(ProcessLimits, "a ProcessLimits")}, {"limits": limits})
    target = target_of(function)

    @functools.wraps(function)
    async def run(*arguments: Any, **named: Any) -> Any:
        contexts: list[Any] = []
        given = _pack(function, arguments, named, contexts)
        outcome = await pool_of(limits).run(found(), given, contexts)
        return result_of(outcome, name_of(function))

    @functools.cache
    def found() -> FunctionPath:
        return _with_depth(target, function)

    return run


def target_of(function: Any) -> FunctionPath:
    """Return how a child finds a function. Raises LocalError for one that it could not find."""
    name = name_of(function)
    if not isinstance(function, FunctionType):
        raise LocalError(
            f"{name}: a child process runs a function that it finds by its name, not a {type(function).__name__}; write a "
            "function at the top of a module"
        )
    if "<lambda>" in function.__qualname__ or "<locals>" in function.__qualname__:
        raise LocalError(
            f"{name}: a child process finds a function by its name in its module, and this one is a lambda, or within "
            "another function; write it at the top of the module"
        )
    if runs_as(function) not in ("value", "coroutine"):
        raise LocalError(f"{name}: a generator cannot run in a child process; return a list, or report by ctx.progress")
    if not sys.executable or getattr(sys, "frozen", False):
        raise LocalError(f"{name}: this program has no Python interpreter of its own that could run a child process")
    return _in_module(function, name)


def _in_module(function: FunctionType, name: str) -> FunctionPath:
    module = sys.modules.get(function.__module__)
    spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
    if function.__module__ == "__main__":
        main = getattr(spec, "name", None)
        if file is None or (main is not None and main.rpartition(".")[2] == "__main__"):
            raise LocalError(
                f"{name}: a child process cannot import this program, which is a console, a notebook or a package's "
                "__main__; write the function in a module of its own and import it here"
            )
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])  # the child's name for it, in pickles
        return FunctionPath("__main__", function.__qualname__, file=file, main=main)
    if spec is None and file is None:
        raise LocalError(
            f"{name}: a child process cannot import its module {function.__module__!r}; write it in a module that is a file"
        )
    return FunctionPath(function.__module__, function.__qualname__, file=file)


def _with_depth(target: FunctionPath, function: Callable[..., Any]) -> FunctionPath:
    """Return the target with the number of wrappers that are around the function under its name. Raises LocalError
    where something else has its name."""
    found: Any = sys.modules.get(target.module)
    for name in target.name.split("."):
        found = getattr(found, name, None)
    depth = 0
    while found is not function:
        if not hasattr(found, "__wrapped__"):
            raise LocalError(
                f"{target.name}() in {target.module} is now another object than the function that was declared, so that a "
                "child process cannot find that one: give each a name of its own, and use functools.wraps in decorators"
            )
        found, depth = found.__wrapped__, depth + 1
    return FunctionPath(target.module, target.name, depth, target.file, target.main)


def _pack(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any], contexts: list[Any]
) -> bytes:
    """Return the pickle of arguments, in which contexts are references; they are added to `contexts`. Raises LocalError
    for an argument that has no pickle."""
    given = (*arguments, *named.values())
    contexts += [one for one in given if isinstance(getattr(type(one), "_in_child", None), ContextMembers)]
    reducers = {**REDUCERS, **{type(one): _reference(contexts) for one in contexts}}
    try:
        return pack_value((arguments, named), f"{name_of(function)}: an argument", reducers)
    except LocalError:
        labels = [*function.__code__.co_varnames[: len(arguments)], *named]
        for label, value in zip(labels, given, strict=False):
            pack_value(value, f"{name_of(function)}: the argument {label!r}", reducers)
        raise


def _reference(contexts: list[Any]) -> Callable[[Any], Any]:
    def reduce(context: Any) -> Any:
        index = next(index for index, one in enumerate(contexts) if one is context)
        return open_context, (type(context), index)

    return reduce
