"""Reads a Python callable's signature: parameters, resolved annotations, kind and documentation.

Rules:

- Plain functions and methods are read from their code object. `inspect`, which takes 8 ms to import, is loaded only for
  callables without a code object of their own: partials, callable objects, wrapped functions, classes.
- Annotations are resolved one by one, so that an error names its parameter; with the names of the module and of the
  enclosing functions that are still running.
- A signature that cannot be resolved or served raises a `LocalError` that says what would be right.
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Literal, TypeAlias, get_type_hints

from msgspec import Struct

from ...jsonrpc.errors import LocalError

Kind: TypeAlias = Literal["positional", "either", "named", "rest", "members"]
"""How an argument may be given: only by position, by position or by name, only by name, *args, **kwargs."""

Runs: TypeAlias = Literal["value", "coroutine", "generator", "async generator"]
"""What calling a function returns."""

_REST, _MEMBERS, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x80, 0x200
"""Flags of a code object: CO_VARARGS, CO_VARKEYWORDS, CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR of `inspect`."""

_KINDS: tuple[Kind, ...] = ("positional", "either", "rest", "named", "members")
"""The kinds, in the order of the members of inspect's parameter kind."""


_PLAIN = {"str": str, "int": int, "float": float, "bool": bool, "bytes": bytes}
"""What annotations mean that are text (`from __future__ import annotations`), if the module has no such name itself."""


class Slot(Struct, frozen=True):
    """One parameter of a function. `annotation`: the resolved one, Any if there is none; `default`: None if
    `required`."""

    name: str
    kind: Kind
    annotation: Any
    required: bool
    default: Any = None


class Signature(Struct, frozen=True):
    """A callable's signature. `name`: for error texts; `result`: the resolved annotation, Any if there is none;
    `asynchronous`: calling it returns a coroutine."""

    name: str
    slots: tuple[Slot, ...]
    result: Any
    asynchronous: bool


class _Holder:
    """An object with one annotation, for `get_type_hints`."""

    def __init__(self, annotation: Any) -> None:
        self.__annotations__ = {"it": annotation}


def read(function: Callable[..., Any], known: type, *, generators: bool = False) -> Signature:
    """Return the signature of `function` with every annotation resolved.

    `known`: a class whose name is resolved even if it was imported for type checkers only; `generators`: whether
    generators are allowed. Raises LocalError for a generator that is not, for annotations that cannot be resolved and
    for what has no signature."""
    name = name_of(function)
    if not callable(function):
        raise LocalError(f"{name}: a method is a function or another callable, not a {type(function).__name__}")
    flags = _flags(function)
    if flags & (_GENERATOR | _ASYNC_GENERATOR) and not generators:
        raise LocalError(f"{name}: a generator cannot be a method; return a list, or report with Context.progress")
    try:
        slots, result = _from_code(function) or _from_inspect(function)
    except NameError as error:  # Python 3.14 evaluates annotations when they are read
        raise LocalError(f"{name}: {_unresolved(error)}") from error
    resolve = _resolver(function, known)
    return Signature(
        name,
        tuple(
            Slot(s.name, s.kind, resolve(s.annotation, f"{name}, parameter {s.name!r}"), s.required, s.default)
            for s in slots
        ),
        resolve(result, f"{name}, result"),
        bool(flags & _COROUTINE),
    )


def runs_as(function: Callable[..., Any]) -> Runs:
    """Return what calling a function returns: its value, a coroutine, a generator or an asynchronous generator."""
    flags = _flags(function)
    if flags & _ASYNC_GENERATOR:
        return "async generator"
    if flags & _GENERATOR:
        return "generator"
    return "coroutine" if flags & _COROUTINE else "value"


def registrable(function: Any, decorator: str) -> Any:
    """Return the argument of a decorator, if it can be registered. Raises LocalError, which says what to write, for a
    class, for a function within a class body (there is no instance yet) and for what cannot be called. `decorator`: as
    it is written, like "server.tool"."""
    app, _, word = decorator.partition(".")
    if isinstance(function, type):
        raise LocalError(
            f"@{decorator} stands above the class {function.__name__}; mark its functions with "
            f"@{word} and write {app}.include({function.__name__}(...)) after it"
        )
    if isinstance(function, FunctionType) and (owner := _class_body(function)):
        raise LocalError(
            f"{function.__qualname__}: @{decorator} stands within the class {owner}, where there is no instance yet: "
            f"mark it with @{word} (from dragoman{'.mcp' if app == 'server' else ''} import {word}) and write "
            f"{app}.include({owner}(...)) after the class"
        )
    if callable(function):
        return function
    kind = type(function).__name__
    if isinstance(function, classmethod | property):
        inner = function.__func__ if isinstance(function, classmethod) else function.fget
        name = getattr(inner, "__name__", "f")
        raise LocalError(
            f"{name}: @{decorator} stands above a {kind}, which is not a function yet; register what it gives after the "
            f"class: {decorator}(Class.{name}) for a classmethod, a function that reads it for a property"
        )
    raise LocalError(f"@{decorator} registers a function or another callable under a name that is text, not a {kind}")


_OF_VALUES = ("__struct_fields__", "__dataclass_fields__", "__pydantic_fields__", "__attrs_attrs__")
"""Attributes by which msgspec, dataclasses, pydantic and attrs mark classes whose instances are values."""


def callable_alone(function: Any) -> Any:
    """Return `function`, if it can be called without an instance. Raises LocalError for a class, which would make an
    instance for each call (unless its instances are values, such as a dataclass's), and for a function that was taken
    from its class and still wants `self`."""
    whole = function
    while isinstance(function, functools.partial) and not function.args:
        function = function.func
    if isinstance(function, type) and not any(hasattr(function, mark) for mark in _OF_VALUES):
        raise LocalError(
            f"{function.__name__} is a class: register a function, or mark the functions of the class and include an "
            "instance of it"
        )
    if isinstance(function, FunctionType) and "." in function.__qualname__:
        code = function.__code__
        owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
        first = code.co_varnames[: code.co_argcount][:1]
        if owner != "<locals>" and first in (("self",), ("cls",)) and first[0] not in function.__annotations__:
            raise LocalError(
                f"{function.__qualname__} wants {first[0]}: register it of an instance, {owner}(...).{function.__name__}"
            )
    return whole


def defined_again(before: Any, function: Any) -> bool:
    """Return whether `function` is the definition of `before` run again: it has the same name and module, and the
    module is a notebook or an interactive session, or the definition is in the same line of the same file, which was
    loaded again. The wrappers of decorators are ignored. A `def` that runs twice, as in a loop, makes two functions."""
    old, new = _defined(before), _defined(function)
    if not (isinstance(old, FunctionType) and isinstance(new, FunctionType)) or old.__code__ is new.__code__:
        return False
    if (old.__module__, old.__qualname__) != (new.__module__, new.__qualname__) or "<locals>" in new.__qualname__:
        return False
    if new.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        return True
    return all(getattr(old.__code__, name) == getattr(new.__code__, name) for name in ("co_filename", "co_firstlineno"))


def _class_body(function: FunctionType) -> str:
    """Return the name of the class within whose body a decorator is applied to this function; "" if there is none. It
    is also returned for a function that was taken from the class afterwards and still wants `self`."""
    outer, _, _ = function.__qualname__.rpartition(".")
    owner = outer.rpartition(".")[2]
    if not owner or owner == "<locals>":
        return ""
    if function.__code__.co_varnames[: function.__code__.co_argcount][:1] == ("self",):
        return owner
    return (
        owner if any(f.f_code.co_name == owner and f.f_locals.get("__qualname__") == outer for f in _frames()) else ""
    )


def name_of(function: Any) -> str:
    """Return a function's name for messages: `name()`."""
    core = _core(function)
    return f"{getattr(core, '__qualname__', None) or type(function).__qualname__}()"


# -- reading --------------------------------------------------------------------------------------


def _core(function: Any) -> Any:
    """Return the function that is run in the end: that of a partial or a method, a callable object's `__call__`."""
    while type(function) is not FunctionType:
        call = next((vars(kind)["__call__"] for kind in type(function).__mro__ if "__call__" in vars(kind)), None)
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType | staticmethod):
            function = function.__func__
        elif isinstance(function, FunctionType | type) or not isinstance(call, FunctionType | functools.partial):
            return function
        else:
            function = call
    return function


def _defined(function: Any) -> Any:
    """Return the function that stands in the source: `_core`, without the wrappers of decorators
    (`functools.wraps`)."""
    found, seen = _core(function), set[int]()
    while hasattr(found, "__wrapped__") and id(found) not in seen:
        seen.add(id(found))
        found = _core(found.__wrapped__)
    return found


def _flags(function: Any) -> int:
    core = _core(function)
    code = getattr(core, "__code__", None)
    flags = code.co_flags if isinstance(code, CodeType) else 0
    # inspect.markcoroutinefunction (3.12) leaves this mark on plain functions that return coroutines
    return flags | _COROUTINE if getattr(core, "_is_coroutine_marker", None) is not None else flags


def _from_code(function: Any) -> tuple[list[Slot], Any] | None:
    """Return the slots and the result's annotation of a function or method that has a code object and wraps nothing;
    None for other callables."""
    bound = isinstance(function, MethodType)
    plain = function.__func__ if bound else function
    if not isinstance(plain, FunctionType) or hasattr(plain, "__wrapped__") or hasattr(plain, "__signature__"):
        return None
    code, annotations = plain.__code__, plain.__annotations__
    names, count = code.co_varnames, code.co_argcount
    defaults = dict(zip(names[:count][::-1], (plain.__defaults__ or ())[::-1], strict=False))
    defaults |= plain.__kwdefaults__ or {}
    slots = []

    def add(name: str, kind: Kind) -> None:
        required = name not in defaults and kind not in ("rest", "members")
        slots.append(Slot(name, kind, annotations.get(name, Any), required, defaults.get(name)))

    for index in range(1 if bound and count else 0, count):
        add(names[index], "positional" if index < code.co_posonlyargcount else "either")
    total = count + code.co_kwonlyargcount
    if code.co_flags & _REST:
        add(names[total], "rest")
    for index in range(count, total):
        add(names[index], "named")
    if code.co_flags & _MEMBERS:
        add(names[total + bool(code.co_flags & _REST)], "members")
    return slots[1:] if bound and not count else slots, annotations.get("return", Any)


def _from_inspect(function: Any) -> tuple[list[Slot], Any]:
    import inspect  # noqa: PLC0415 - see the rules above

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise LocalError(f"{name_of(function)}: it has no signature; wrap it in a function with annotations") from error
    slots = []
    for p in signature.parameters.values():
        kind = _KINDS[p.kind]
        required = p.default is p.empty and kind not in ("rest", "members")
        annotation = Any if p.annotation is p.empty else p.annotation
        slots.append(Slot(p.name, kind, annotation, required, None if p.default is p.empty else p.default))
    result = Any if signature.return_annotation is signature.empty else signature.return_annotation
    return slots, result


# -- annotations ----------------------------------------------------------------------------------


def _resolver(function: Any, known: type) -> Callable[[Any, str], Any]:
    core = _core(function)
    while hasattr(core, "__wrapped__"):
        core = core.__wrapped__
    if isinstance(core, type):
        core = vars(core).get("__init__", core)
    names = getattr(core, "__globals__", {})
    local = _enclosing(core) if "<locals>" in getattr(core, "__qualname__", "") else {}

    def resolve(annotation: Any, where: str) -> Any:
        if annotation is Any or (type(annotation) is type and annotation.__module__ == "builtins"):
            return annotation  # nothing in it to resolve
        if type(annotation) is str and annotation in _PLAIN and annotation not in names and annotation not in local:
            return _PLAIN[annotation]
        try:
            try:
                return get_type_hints(_Holder(annotation), names, local, include_extras=True)["it"]
            except NameError:
                return get_type_hints(_Holder(annotation), names, {known.__name__: known} | local, include_extras=True)[
                    "it"
                ]
        except NameError as error:
            raise LocalError(f"{where}: {_unresolved(error)}") from error
        except Exception as error:
            raise LocalError(f"{where}: the annotation {annotation!r} cannot be evaluated: {error}") from error

    return resolve


def _unresolved(error: NameError) -> str:
    return f"the annotation names {error.name!r}, which is not known here; import it for real, not under TYPE_CHECKING"


def _enclosing(function: Any) -> dict[str, Any]:
    """Return the names, with their values, of the running functions and class bodies in whose source `function` is, and
    of its closure."""
    code = getattr(function, "__code__", None)
    found: dict[str, Any] = {}
    if not isinstance(code, CodeType):
        return found
    for frame in _frames():
        if _holds(frame.f_code, code):
            found = dict(frame.f_locals) | found
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _holds(outer: CodeType, inner: CodeType) -> bool:
    return any(c is inner or _holds(c, inner) for c in outer.co_consts if isinstance(c, CodeType))


# -- documentation --------------------------------------------------------------------------------

_FIELD = r":(?:param|parameter|arg|argument|key|keyword)(?:\s+[^:]+?)?\s+\*{0,2}(\w+)\s*:\s*(.*)"
_SECTION = (
    r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Attributes|Returns?|Raises|Yields|"
    r"Examples?|Notes?|Warnings?|References|See Also):?\s*"
)
_OF_PARAMETERS = ("Arg", "Param", "Keyword", "Other")
_ENTRY = r"\*{0,2}(\w+)\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*:\s*(.*)"
_RULED_ENTRY = r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?"
_RULE = r"-{3,}"


@functools.cache
def _patterns() -> list[re.Pattern[str]]:
    """Return the patterns above, compiled when a docstring is first read."""
    return [re.compile(text) for text in (_FIELD, _SECTION, _ENTRY, _RULED_ENTRY, _RULE)]


def documentation(function: Any) -> str:
    """Return a function's docstring without its indentation; "" if it has none."""
    core = _core(function)
    own = None if isinstance(function, functools.partial) else getattr(function, "__doc__", None)
    text = own or getattr(core, "__doc__", None)
    return tidy(text) if isinstance(text, str) else ""


def tidy(text: str) -> str:
    """Return a docstring without its indentation."""
    first, _, rest = text.expandtabs().strip().partition("\n")
    return f"{first}\n{textwrap.dedent(rest)}".strip()


def parameter_docs(text: str) -> dict[str, str]:
    """Return the descriptions of parameters in a docstring, by name: from `:param name: ...` lines (Sphinx), an `Args:`
    section (Google), or a section called Parameters and underlined (NumPy). Paragraphs after the first are left out."""
    return _docs(text)[0]


def without_parameters(text: str) -> str:
    """Return a docstring without the descriptions that `parameter_docs` reads and the headings of their sections."""
    _, own = _docs(text)
    if not own:
        return text
    rest = "\n".join(line for number, line in enumerate(text.splitlines()) if number not in own)
    return re.sub(r"\n{3,}", "\n\n", rest).strip()


def _docs(text: str) -> tuple[dict[str, str], set[int]]:
    """Return the descriptions of parameters by name, and the numbers of the lines in which they are."""
    found: dict[str, str] = {}
    own: set[int] = set()
    if "\n" not in text and not text.startswith(":"):
        return found, own
    section, ruled, depth = False, False, 0
    names: list[str] = []
    """The parameters whose description the next line may continue."""
    field, head, entry, ruled_entry, rule = _patterns()
    for number, line in enumerate(text.splitlines()):
        stripped, indent = line.strip(), len(line) - len(line.lstrip())
        own.add(number)
        if match := field.fullmatch(stripped):
            section, names, depth = False, [match[1]], indent
            found[match[1]] = match[2]
        elif head.fullmatch(stripped) and not (ruled and names and indent):
            section, ruled, names, depth = stripped.startswith(_OF_PARAMETERS), False, [], -1
            if not section:
                own.discard(number)
        elif rule.fullmatch(stripped) and section:
            for name in names:  # what looked like parameters was the heading of another section
                del found[name]
            if names:
                own -= {number - 1, number}
            section, ruled, names = not names, not names, []
        elif section and ruled and not indent and (match := ruled_entry.fullmatch(stripped)):
            names, depth = [name.strip().lstrip("*") for name in match[1].split(",")], 0
            found |= dict.fromkeys(names, "")
        elif not stripped or stripped.startswith(":"):
            names = []
            own.discard(number)
        elif names and indent > depth:
            found |= {name: f"{found[name]} {stripped}".strip() for name in names}
        elif section and indent and (match := entry.fullmatch(stripped)):
            names, depth = [match[1]], indent
            found[match[1]] = match[2]
        else:
            section, names = section and bool(indent), []
            if not section:
                own.discard(number)
    return found, own
