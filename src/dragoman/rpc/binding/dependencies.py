"""Dependencies: arguments of a registered function that do not come from the params; another function makes their
value.

    def connection() -> Iterator[Connection]:
        with pool.connection() as one:
            yield one

    @api.method
    def rename(id: int, name: str, db: Annotated[Connection, Depends(connection)]) -> None: ...

Rules:

- Dependencies are planned at registration, as ordered steps, which each call runs. A function without dependencies
  costs nothing more.
- Within one call each function runs once, however many depend on it. A generator yields one value; it is resumed when
  the registered function has ended, before the answer is made, the last one first. What it raises then fails the call.
  The registered function's error is raised at its `yield`; it may raise another, but cannot turn it into a success.
- Where dependencies run: for a plain function, in its thread (coroutines on the loop, while the thread waits); for an
  `async def`, coroutines on the loop, and plain functions in a worker thread, or on the loop with `inline=True`.
- With `scope="lifespan"` the value is made once on each event loop, on the loop, and lives as long as the value of
  `rpc.lifespan`.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Annotated, Any, Final, Literal, Protocol, get_origin

from msgspec import Struct

from ...jsonrpc.errors import LocalError
from ...jsonrpc.options import CALLABLE, FLAG, check, one_of
from .identity import IDENTITY_GIVERS, identity_giver
from .signature import Runs, Signature, Slot, name_of, read, runs_as

Function = Callable[..., Any]
Scope = Literal["call", "lifespan"]
OPTIONS: Final = {"function": CALLABLE, "scope": one_of("call", "lifespan"), "inline": FLAG}


class Dependency(Struct, frozen=True):
    """What `Depends` returns."""

    function: Function
    scope: Scope = "call"
    inline: bool = False


def Depends(function: Function, *, scope: Scope = "call", inline: bool = False) -> Any:
    """Mark a parameter whose value `function` makes: in `Annotated[Database, Depends(connect)]`, or as the parameter's
    default.

    `function`: plain or `async def`, or a generator of either kind that yields the value once and then cleans up; a
    class too. Its own parameters may only be dependencies and contexts; others raise LocalError at registration.
    `scope`: "call", the value is made once for each call that needs it; "lifespan", once on each event loop, for as
    long as the app is served there. `inline`: `function` is plain, fast and never blocks, so that it needs no thread
    for an `async def`. Raises LocalError for options that are not these."""
    check("Depends", OPTIONS, locals())
    return Dependency(function, scope, inline)


class DependencyHost(Protocol):
    """Where a call runs, as far as dependencies need it; `context.Site` is one."""

    def thread(self, function: Function, arguments: tuple[Any, ...]) -> Awaitable[Any]:
        """Run a function in a worker thread, and return its result."""

    def wait(self, work: Awaitable[Any]) -> Any:
        """Wait in a worker thread for something that runs on the loop, and return its result."""

    def held(self, life: Any) -> Mapping[Any, Any]:
        """Return the values of a lifespan on this loop, by the functions that made them."""


class DependencyStep(Struct, frozen=True):
    """One function of a plan. `takes`: where its arguments are among the plan's values, those by position first, then
    those by name, whose names and positions are also in `named`."""

    function: Function
    runs: Runs
    scope: Scope
    inline: bool
    takes: tuple[int, ...] = ()
    named: tuple[tuple[str, int], ...] = ()

    def call(self, values: Sequence[Any]) -> Any:
        """Call the function with its arguments, which are among these values."""
        if not self.takes:
            return self.function()
        given = [values[at] for at in self.takes]
        first = len(given) - len(self.named)
        return self.function(*given[:first], **{name: values[at] for name, at in self.named})


class Needs(Struct, frozen=True):
    """The dependencies of one function. `where`: the function's name, for error texts; `slots`: its parameters with
    their dependencies; `inline`: it runs inline, so that none may have to be waited for."""

    where: str
    slots: tuple[tuple[Slot, Dependency], ...]
    context_type: type
    inline: bool = False


def split(signature: Signature, context_type: type) -> Needs | None:
    """Return the dependencies of a function; None if it has none. Raises LocalError for a parameter with a wrong
    `Depends`."""
    found = [(slot, given) for slot in signature.slots if (given := _dependency_of(slot, signature.name)) is not None]
    return Needs(signature.name, tuple(found), context_type) if found else None


def _dependency_of(slot: Slot, where: str) -> Dependency | None:
    if type(slot.annotation) is type and not isinstance(slot.default, Dependency):
        return None  # int, str and the like: most parameters
    if (identity := identity_giver(slot.annotation)) is not None:
        return Dependency(identity, inline=True)
    beside = marks(slot.annotation)
    found = [mark for mark in beside if isinstance(mark, Dependency)]
    if isinstance(slot.default, Dependency):
        found.append(slot.default)
    if not found and any(mark is Depends for mark in beside):
        raise LocalError(f"{where}, parameter {slot.name!r}: write Depends(f), with the function that gives the value")
    if len(found) > 1:
        raise LocalError(f"{where}, parameter {slot.name!r}: it has two Depends; keep one")
    if found and slot.kind in ("rest", "members"):
        raise LocalError(f"{where}, parameter {slot.name!r}: a dependency is one value; take away the `*`")
    return found[0] if found else None


def marks(annotation: Any) -> tuple[Any, ...]:
    """Return what stands in `Annotated` beside the type."""
    return annotation.__metadata__ if get_origin(annotation) is Annotated else ()


# -- planning -------------------------------------------------------------------------------------


class _Planner:
    """Plans the steps of one function. Of the plan's values, the first (0) is the call's context, and n is that of the
    n-th step."""

    def __init__(
        self,
        needs: Needs,
        overrides: Mapping[Function, Function],
        takes: TakesContext,
        signatures: dict[Function, Signature],
    ) -> None:
        self._needs = needs
        self._signatures = signatures
        self._overrides = overrides
        self._takes = takes
        self._at: dict[tuple[Function, Scope], int] = {}
        self.steps: list[DependencyStep] = []
        self.originals: set[Function] = set()

    def position_of(self, given: Dependency, above: tuple[Function, ...] = (), within: Scope = "call") -> int:
        """Return the position of a dependency's value, after adding the steps that make it. `above`: the functions that
        depend on it, the outermost first; `within`: the scope of the last of them. Raises LocalError for a dependency
        that depends on itself, or lives shorter than what depends on it."""
        self.originals.add(given.function)
        fake = self._overrides.get(given.function)
        function = given.function if fake is None else fake
        where = f"{self._needs.where}, Depends({name_of(function)})"
        if function in above:
            path = " -> ".join(name_of(one) for one in (*above[above.index(function) :], function))
            raise LocalError(f"{where}: it depends on itself: {path}")
        if within == "lifespan" and given.scope == "call":
            raise LocalError(
                f'{where}: {name_of(above[-1])} has scope="lifespan" and lives longer than a call; '
                'give this one scope="lifespan" too'
            )
        key = function, given.scope
        if key not in self._at:
            step = self._step(function, given, where, above, inline=given.inline or fake is not None)
            self.steps.append(step)
            self._at[key] = len(self.steps)
        return self._at[key]

    def _step(
        self, function: Function, given: Dependency, where: str, above: tuple[Function, ...], *, inline: bool
    ) -> DependencyStep:
        if function in IDENTITY_GIVERS:
            return DependencyStep(function, "value", "call", True, (0,))
        core = _unmanaged(function)
        runs = runs_as(core)
        if self._needs.inline and runs in ("coroutine", "async generator"):
            raise LocalError(f"{where}: an inline function runs in place and cannot wait for an async one")
        signature = self._signatures.get(core)
        if signature is None:
            signature = self._signatures[core] = read(core, self._needs.context_type, generators=True)
        context = self._takes(signature, self._needs.context_type)
        bound = function.keywords if isinstance(function, functools.partial) else {}
        takes: list[int] = []
        named: list[tuple[str, int]] = []
        for slot in signature.slots:
            if slot.kind in ("rest", "members") or slot.name in bound:
                continue
            inner = _dependency_of(slot, signature.name)
            if slot is context and given.scope == "lifespan":
                raise LocalError(f'{where}, parameter {slot.name!r}: scope="lifespan" is outside of calls: no context')
            if slot is not context and inner is None:
                raise LocalError(
                    f"{where}, parameter {slot.name!r}: it is neither a dependency nor a context, and nothing else is "
                    f"given to it; write Annotated[..., Depends(f)], or functools.partial with a value for it"
                )
            at = 0 if inner is None else self.position_of(inner, (*above, function), given.scope)
            if slot.kind == "named":
                named.append((slot.name, at))
            else:
                takes.append(at)
        order = (*takes, *(at for _, at in named))
        return DependencyStep(core, runs, given.scope, inline, order, tuple(named))


TakesContext = Callable[[Signature, type], Slot | None]
"""Returns the parameter of a signature that takes a context of this type; None if there is none."""


def _unmanaged(function: Function) -> Function:
    """Return the generator function that `contextlib.contextmanager` or `asynccontextmanager` wrapped; any other
    function as it is."""
    inner = getattr(function, "__wrapped__", None)
    if inner is not None and getattr(function, "__globals__", None) is vars(contextlib):
        generator: Function = inner
        return generator
    return function


class Injection:
    """The dependencies of one registered function, as steps, which are planned again when one is overridden."""

    __slots__ = ("__weakref__", "_needs", "_signatures", "_takes", "originals", "owner", "steps", "wanted")

    def __init__(self, needs: Needs, takes: TakesContext) -> None:
        self._needs = needs
        self._takes = takes
        self._signatures: dict[Function, Signature] = {}  # the names in annotations may be known at registration alone
        self.owner: Dependencies | None = None
        """The dependencies of the app with which the function is registered."""
        self.plan({})

    def plan(self, overrides: Mapping[Function, Function]) -> None:
        """Plan the steps. `overrides`: functions to call instead of others. Raises LocalError for dependencies that
        cannot be planned."""
        planner = _Planner(self._needs, overrides, self._takes, self._signatures)
        self.wanted: tuple[int, ...] = tuple(planner.position_of(given) for _, given in self._needs.slots)
        self.steps: tuple[DependencyStep, ...] = tuple(planner.steps)
        self.originals: frozenset[Function] = frozenset(planner.originals)
        """The functions on which it depends; they may be overridden."""

    def run_inline(self) -> None:
        """Note that the function runs inline. Raises LocalError for a dependency that has to be waited for."""
        self._needs = Needs(self._needs.where, self._needs.slots, self._needs.context_type, True)
        self.plan({})

    @property
    def life(self) -> Any:
        """The lifespan of the app with which the function is registered; None if it has none."""
        return None if self.owner is None else self.owner.life

    @property
    def held(self) -> list[DependencyStep]:
        """The steps whose values live as long as the app is served."""
        return [step for step in self.steps if step.scope == "lifespan"]


# -- running --------------------------------------------------------------------------------------


def inject(
    function: Function, injection: Injection, at: int, visible: int, *, own_context: bool, asynchronous: bool
) -> Function:
    """Return a function that runs the steps first. It takes the arguments that `Binding.arguments` returns, with the
    context at index `at`, and calls `function` with the first `visible` of them, the dependencies' values, and the
    rest. `own_context`: False if only the dependencies take the context, so that `function` does not get it."""
    rest = visible if own_context else visible + 1
    return (_async if asynchronous else _plain)(function, injection, at, visible, rest)


def _plain(function: Function, injection: Injection, at: int, visible: int, rest: int) -> Function:
    def called(*given: Any) -> Any:
        host: DependencyHost = given[at]._site
        opened: list[tuple[DependencyStep, Any]] = []
        try:
            values = [given[at]]
            for step in injection.steps:
                if step.scope == "lifespan":
                    values.append(host.held(injection.life)[step.function])
                else:
                    values.append(_entered(step, values, host, opened))
            result = function(*given[:visible], *[values[position] for position in injection.wanted], *given[rest:])
        except BaseException as error:
            if not opened:
                raise
            failed: BaseException | None = error
        else:
            if not opened:
                return result
            failed = None
        while opened:
            step, generator = opened.pop()
            failed = host.wait(_resume_async(generator, failed)) if _waits(step) else _resume(generator, failed)
        if failed is not None:
            raise failed
        return result

    return called


def _async(function: Function, injection: Injection, at: int, visible: int, rest: int) -> Function:
    async def called(*given: Any) -> Any:
        host: DependencyHost = given[at]._site
        opened: list[tuple[DependencyStep, Any]] = []
        try:
            values = [given[at]]
            for step in injection.steps:
                if step.scope == "lifespan":
                    values.append(host.held(injection.life)[step.function])
                else:
                    values.append(await _entered_async(step, values, host, opened))
            result = await function(
                *given[:visible], *[values[position] for position in injection.wanted], *given[rest:]
            )
        except BaseException as error:
            if not opened:
                raise
            failed: BaseException | None = error
        else:
            if not opened:
                return result
            failed = None
        while opened:
            step, generator = opened.pop()
            if _waits(step):
                failed = await _resume_async(generator, failed)
            elif step.inline:
                failed = _resume(generator, failed)
            else:
                try:
                    failed = await host.thread(_resume, (generator, failed))
                except BaseException as error:  # cancelled again: the other generators are still resumed, in order
                    failed = error
        if failed is not None:
            raise failed
        return result

    return called


def _waits(step: DependencyStep) -> bool:
    return step.runs in ("coroutine", "async generator")


def _entered(
    step: DependencyStep, values: list[Any], host: DependencyHost, opened: list[tuple[DependencyStep, Any]]
) -> Any:
    made = step.call(values)
    if step.runs == "value":
        return made
    if step.runs == "coroutine":
        return host.wait(made)
    value = _first(made) if step.runs == "generator" else host.wait(_first_async(made))
    opened.append((step, made))
    return value


async def _entered_async(
    step: DependencyStep, values: list[Any], host: DependencyHost, opened: list[tuple[DependencyStep, Any]]
) -> Any:
    if step.runs == "coroutine":
        return await step.call(values)
    if step.runs == "value":
        return step.call(values) if step.inline else await host.thread(step.call, (values,))
    made = step.call(values)
    if step.runs == "async generator":
        value = await _first_async(made)
    else:
        value = _first(made) if step.inline else await host.thread(_first, (made,))
    opened.append((step, made))
    return value


_ONCE: Final = "{}(): a dependency that is a generator {}"


def _first(generator: Any) -> Any:
    try:
        return next(generator)
    except StopIteration:
        raise LocalError(_ONCE.format(generator.__qualname__, "yields its value once")) from None


async def _first_async(generator: Any) -> Any:
    try:
        return await anext(generator)
    except StopAsyncIteration:
        raise LocalError(_ONCE.format(generator.__qualname__, "yields its value once")) from None


def _resume(generator: Any, error: BaseException | None) -> BaseException | None:
    """Resume a generator to clean up; `error`: the error so far, None if there is none. Returns the error with which
    the call now ends."""
    try:
        if error is None:
            next(generator)
        else:
            generator.throw(error)
    except StopIteration:
        return error
    except BaseException as raised:
        return raised
    generator.close()
    return LocalError(_ONCE.format(generator.__qualname__, "yields once, and this one went on"))


async def _resume_async(generator: Any, error: BaseException | None) -> BaseException | None:
    try:
        if error is None:
            await anext(generator)
        else:
            await generator.athrow(error)
    except StopAsyncIteration:
        return error
    except BaseException as raised:
        return raised
    await generator.aclose()
    return LocalError(_ONCE.format(generator.__qualname__, "yields once, and this one went on"))


@contextlib.asynccontextmanager
async def entered(step: DependencyStep, held: Mapping[Any, Any], steps: Sequence[DependencyStep]) -> AsyncIterator[Any]:
    """Make the value of a step for as long as a lifespan lasts. `steps`: the steps of the plan that the step is in;
    `held`: their values, as far as they were made."""
    values: list[Any] = [None, *(held.get(one.function) for one in steps)]
    made = step.call(values)
    if step.runs == "coroutine":
        made = await made
    elif step.runs == "generator":
        with contextlib.contextmanager(lambda: made)() as value:
            yield value
        return
    elif step.runs == "async generator":
        async with contextlib.asynccontextmanager(lambda: made)() as value:
            yield value
        return
    yield made


# -- an app's dependencies ------------------------------------------------------------------------


class Dependencies:
    """The dependencies of all functions of one app. `changed`: called when the app may need more lifespan values."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._own_changed = changed
        self._above: weakref.WeakSet[Dependencies] = weakref.WeakSet()
        self._numbers = count()
        self._all: weakref.WeakValueDictionary[int, Injection] = weakref.WeakValueDictionary()
        self._overrides: dict[Function, Function] = {}
        self.included: list[Dependencies] = []
        """The dependencies of the apps that this app includes."""
        self.life: Any = None
        """The lifespan of the app, which holds its lifespan values; None while there are none."""

    def add(self, injection: Injection) -> None:
        """Add the dependencies of a function that was registered. Raises LocalError if they cannot be planned with the
        overrides."""
        if self._overrides:
            injection.plan(self._overrides)
        injection.owner = self
        self._all[next(self._numbers)] = injection
        if injection.held:
            self._changed()

    def include(self, other: Dependencies) -> None:
        """Add the dependencies of an app that was included. Its lifespan lasts as long as this app's, and overrides
        apply to it too."""
        self.included.append(other)
        other._above.add(self)
        if other.life is not None:
            self._changed()

    def _changed(self) -> None:
        self._own_changed()
        for one in tuple(self._above):
            one._changed()

    def held(self) -> dict[Function, tuple[DependencyStep, tuple[DependencyStep, ...]]]:
        """Return the steps whose values live as long as the app is served, by their functions, each with the steps of
        its plan; each comes after those on which it depends."""
        return {step.function: (step, one.steps) for one in list(self._all.values()) for step in one.held}

    def knows(self, function: Function) -> bool:
        """Return whether a registered function depends on this one."""
        mine = any(function in one.originals for one in list(self._all.values()))
        return mine or any(one.knows(function) for one in self.included)

    @contextlib.contextmanager
    def override(self, function: Function, fake: Function) -> Iterator[None]:
        """Within the block, call `fake` instead of `function`. Raises LocalError if a function cannot depend on
        `fake`."""
        before = self._overrides
        self._plan({**before, function: fake})
        try:
            with contextlib.ExitStack() as stack:
                for one in self.included:
                    stack.enter_context(one.override(function, fake))
                yield
        finally:
            self._plan(before)

    def _plan(self, overrides: dict[Function, Function]) -> None:
        before, self._overrides = self._overrides, overrides
        try:
            for one in list(self._all.values()):
                one.plan(overrides)
        except BaseException:
            self._overrides = before
            for one in list(self._all.values()):
                one.plan(before)
            raise
        self._changed()
