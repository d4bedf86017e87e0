"""One name of a service: the function behind it, and how it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from opcode import opmap
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..channel import Identity
from ..jsonrpc.errors import LocalError, RpcError
from ..jsonrpc.leniency import STRICT, Leniency
from ..jsonrpc.options import (
    ANYTHING,
    CALL_TIME,
    CALLABLE,
    FLAG,
    NONE,
    NOT_GIVEN,
    TEXT,
    TEXTS,
    Rule,
    check,
    many,
    options_of,
    whole,
)
from .binding.binding import Binding, bind
from .binding.loose_arguments import bind_loosely
from .context import Context
from .middleware import Call, Middleware, Next

if TYPE_CHECKING:
    from ..access import Access
    from ..tasks.policy import TaskPolicy
    from .lifespan import Lifespan
else:
    TaskPolicy = Any  # start-up: annotations resolve at run time, to no more than this


Allow: TypeAlias = Callable[[Identity, Mapping[str, Any] | None], bool]
"""Says whether a caller may make a call with these arguments, by name; None for them: whether lists show it."""


class MethodHandler(Protocol):
    """The code that a `Method` runs for one call: `function(*arguments(params, context))`, awaited where `kind` is
    "async".

    A function's `Binding` is one. `params` is the message's own JSON text (`Raw`, or UNSET), or a router's replacement;
    `encode` makes the text of an answer that contains the result, and leaves a result that is `Raw` as it is, so a
    handler may take and return bytes that nothing decodes.
    """

    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def arguments(self) -> Callable[..., tuple[Any, ...]]:
        """(params, context=None) -> the arguments of the function. Raises InvalidParams."""

    @property
    def encode(self) -> Callable[[Any], bytes]: ...
    @property
    def kind(self) -> Literal["async", "plain"]: ...
    @property
    def wants_context(self) -> bool:
        """Whether it needs a Context."""

    @property
    def opaque(self) -> bool:
        """True if a part of the params is left undecoded, so that its numbers are not checked."""

    @property
    def shallow(self) -> bool:
        """True if its results are never nested deeply, so that nothing looks how deep a long one is."""


_encode = msgspec.json.Encoder().encode


class LongResult(Struct):
    """A long result that is written in one step with its answer, and is never nested deeply: a subclass has its
    members, and strings that UTF-8 can hold. Middleware gets its JSON text."""

    def as_text(self) -> Raw:
        """Its JSON text."""
        return Raw(_encode(self))


class Passed(Struct, frozen=True, eq=False):
    """The `MethodHandler` of a function that takes `(params, context)` as they are, and returns `Raw` or a JSON value.

    Without `wants_context` its context is None.
    """

    function: Callable[[Any, Any], Any]
    kind: Literal["async", "plain"] = "plain"
    wants_context: bool = True
    opaque: bool = True
    encode: Callable[[Any], bytes] = _encode
    shallow: bool = False

    def arguments(self, params: Any, context: Any = None) -> tuple[Any, ...]:
        """Both, unchanged."""
        return params, context


class Method(Struct, eq=False):
    """One name of a service and its handler."""

    name: str
    binding: MethodHandler
    kind: Literal["inline", "thread", "async"]
    errors: tuple[type[RpcError], ...] = ()
    timeout: float | UnsetType | None = UNSET
    """Seconds a call may take; None for ever; UNSET: the limits' `handler_timeout`."""
    concurrency: int | None = None
    """Calls of this method that run at once; None: no limit of its own."""
    queue: int | None = None
    """Calls that may wait for one of those; further ones are busy. None: no bound of its own."""
    idempotent: bool = False
    deprecated: bool = False
    description: str = ""
    middleware: tuple[Middleware, ...] = ()
    """The middleware of the services from which it was included, outermost first."""
    handler: Next | None = None
    """The whole chain, if there is middleware."""
    quick: bool = False
    """Answered in place: inline, and no middleware."""
    waits: bool = True
    """An `async def` that may wait for something; see `may_wait`."""
    runs_inline: bool = False
    """Answered in place where a loop runs: quick, or an `async def` that never waits, without middleware."""
    life: Lifespan | None = None
    """The lifespan of the service that it was registered with."""
    tags: frozenset[str] = frozenset()
    """By which it may be enabled and disabled, with others."""
    enabled: bool = True
    stream: bool = False
    """A long-lived call that sends messages: it does not count among the calls in flight."""
    access: Access | None = None
    """The scopes, roles and rules that it demands of its callers."""
    task: TaskPolicy | None = None
    """How its calls become tasks; None: they are none."""

    @property
    def signature(self) -> Binding:
        """The described function: its parameters and its result. Raises LocalError for a method without one, which a
        protocol on top answers itself."""
        if not isinstance(self.binding, Binding):
            raise LocalError(f"{self.name} is not a method of a service: it has no signature of its own")
        return self.binding


def _verifies(value: Any) -> bool:
    several = value if isinstance(value, list | tuple) else (value,)
    return bool(several) and all(
        callable(getattr(one, "verify", None)) or callable(getattr(one, "challenged", None)) for one in several
    )


RUNNING: Final = {
    "inline": FLAG,
    "timeout": CALL_TIME | NOT_GIVEN,
    "concurrency": whole(1) | NONE,
    "queue": whole(0) | NONE,
}
"""The rules of the options that say how a function runs."""
ERROR: Final = Rule(lambda value: isinstance(value, type) and issubclass(value, RpcError), "a subclass of RpcError")
AUTH: Final = Rule(_verifies, "a verifier of tokens, such as dragoman.auth.Bearer(issuer, resource=...)") | NONE
DEMANDS: Final = {"scopes": TEXT | TEXTS, "roles": TEXT | TEXTS, "allow": CALLABLE | NONE}
"""The rules of the options that say who may call."""
_SAID: Final = {"errors": many(ERROR), "idempotent": FLAG, "deprecated": FLAG, "tags": many(TEXT)}
METHOD: Final = RUNNING | DEMANDS | _SAID | {"process": FLAG, "name": TEXT | NONE, "task": ANYTHING}
"""The rules of the options of a method; `tasks.policy` checks `task`."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "inline": False,
    "process": False,
    "timeout": UNSET,
    "scopes": (),
    "roles": (),
    "errors": (),
    "idempotent": False,
    "deprecated": False,
    "tags": (),
}
"""Of the options of a method whose default is not None."""


def declared(errors: tuple[type[RpcError], ...], more: tuple[type[RpcError], ...]) -> tuple[type[RpcError], ...]:
    """The errors of a method and those of its service, each once."""
    return tuple(dict.fromkeys((*errors, *more))) if more else errors


class RunOptions(TypedDict, total=False):
    """How a function runs; `Service.method` describes them."""

    inline: bool
    timeout: float | UnsetType | None
    concurrency: int | None
    queue: int | None


class ProcessOption(TypedDict, total=False):
    """Where a function runs; `Service.method` describes it."""

    process: bool


class CallOptions(RunOptions, total=False):
    """How a function runs, and who may call it; `Service.method` describes them."""

    scopes: str | Collection[str]
    roles: str | Collection[str]
    allow: Allow | None


class MethodOptions(CallOptions, ProcessOption, total=False):
    """How a function is registered as a method; `Service.method` describes them."""

    errors: Iterable[type[RpcError]]
    idempotent: bool
    deprecated: bool
    tags: Collection[str]
    task: TaskPolicy | bool | None


def method_of(function: Callable[..., Any], name: str | None, **given: Unpack[MethodOptions]) -> Method:
    """The method for a function, by its own name unless `name` gives another. Raises LocalError for what cannot be a
    method."""
    if name == "":
        raise LocalError(f"{function!r}: a method's name is not empty; leave it out for the function's own")
    name = name or getattr(function, "__name__", "")
    options = options_of("@service.method", str(name or function), METHOD, {**given, "name": name}, DEFAULTS)
    if not name or name == "<lambda>":
        raise LocalError(f"{function!r} has no name of its own: give one, @service.method('name')")
    declared = tuple(options["errors"])
    check(name, {"errors": METHOD["errors"]}, {"errors": declared})  # an iterator could not be looked into
    function = running_function(function, name, options)
    binding = bind(function, context_type=Context)
    running = running_of(name, binding.kind, options)
    if options["inline"] and binding.injection is not None:
        binding.injection.run_inline()
    return Method(
        name,
        binding,
        **running,
        errors=declared,
        idempotent=options["idempotent"],
        deprecated=options["deprecated"],
        tags=frozenset(options["tags"]),
        description=(getattr(function, "__doc__", None) or "").strip(),
        waits=binding.injection is not None or may_wait(function),
        access=demands(name, options, partial(arguments_by_name, binding)),
        task=_task_of(name, options["task"], options["inline"]),
    )


def _task_of(name: str, task: Any, inline: bool) -> TaskPolicy | None:
    """Return how a method's calls become tasks; None: they are none. Raises LocalError for what is no policy."""
    if task is None or task is False:
        return None
    from ..tasks.policy import method_policy  # noqa: PLC0415  (start-up: for methods that have tasks)

    return method_policy(name, task, inline=inline)


def running_function(function: Callable[..., Any], name: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function that runs: with the option `process` one that runs it in a child process. Raises LocalError
    for a function that a child could not find, and for options that conflict."""
    if not options.get("process"):
        return function
    if options["inline"]:
        raise LocalError(f"{name}: inline functions run on the loop, process=True in a child process: leave one out")
    from .process.declaring import in_process  # noqa: PLC0415  (start-up: for functions that run in a process)

    return in_process(function)


def running_of(name: str, kind: Literal["async", "plain"], options: RunOptions) -> dict[str, Any]:
    """Return how a function runs, as the members of its `Method`. `options`: all of them. Raises LocalError for those
    that conflict."""
    inline, concurrency, queue = options["inline"], options["concurrency"], options["queue"]
    if inline and kind == "async":
        raise LocalError(f"{name}: an async def already runs on the loop; inline=True is for plain functions")
    if queue is not None and concurrency is None:
        raise LocalError(f"{name}: queue bounds the calls that wait for one of `concurrency` places: give both")
    return {
        "kind": "async" if kind == "async" else "inline" if inline else "thread",
        "timeout": options["timeout"],
        "concurrency": concurrency,
        "queue": queue,
    }


def demands(name: str, options: CallOptions, arguments: Callable[[Any], Mapping[str, Any]]) -> Access | None:
    """Return what a method demands of its callers; None where it demands nothing. `options`: all of them; `arguments`:
    decodes the params of a call to its arguments by name. Raises LocalError for a scope that no token could have."""
    scopes, roles, allow = options["scopes"], options["roles"], options["allow"]
    if not scopes and not roles and allow is None:
        return None
    from ..access import access_of  # noqa: PLC0415  (start-up: for methods that not every caller may call)

    return access_of(name, scopes, roles, allow, arguments)


def arguments_by_name(binding: Binding, params: Any, lenient: Leniency = STRICT, depth: int = 0) -> dict[str, Any]:
    """The arguments of a call by their names, decoded. `depth`: as of `bind_loosely`. Raises what `Binding.arguments`
    raises."""
    try:
        values = binding.arguments(params, NO_CONTEXT)
    except Exception as error:
        values = bind_loosely(binding, params, NO_CONTEXT, error, lenient, depth)
    return by_name(binding, values)


def by_name(binding: Binding, values: tuple[Any, ...]) -> dict[str, Any]:
    """The values that `Binding.arguments` gave, by the names of the parameters, without a context."""
    given = iter([value for value in values if value is not NO_CONTEXT and not isinstance(value, Context)])
    kinds = ("positional", "either"), ("named",), ("members",), ("rest",)
    found: dict[str, Any] = {}
    for parameter in (one for kind in kinds for one in binding.parameters if one.kind in kind):
        if parameter.kind == "members":
            found |= next(given, {})
        elif parameter.kind == "rest":
            found[parameter.name] = list(given)
        else:
            found[parameter.name] = next(given)
    return found


NO_CONTEXT: Any = object()
"""Instead of a context, where arguments are only looked at."""


def may_wait(function: Callable[..., Any]) -> bool:
    """Whether an `async def` may wait. One whose code awaits nothing ends in its first step.

    With eager tasks (Python 3.12) it need not be known: such a task costs no scheduling there.
    """
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is None or sys.version_info >= (3, 12) or opmap["SEND"] in code.co_code[::2]


def living(life: Lifespan, method: Method, handler: Callable[[Method], Next]) -> Method:
    """A method within a lifespan: unchanged if the lifespan has begun on this loop, otherwise one that begins it first.
    `handler`: what runs a method with its middleware."""
    if life.here() is not None:
        return method
    inner = handler(method)

    async def begun(call: Call) -> Any:
        await life.begin()
        return await inner(call)

    return msgspec.structs.replace(method, handler=begun, quick=False, runs_inline=False)
