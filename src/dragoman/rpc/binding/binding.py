"""Compiles a function for calls by JSON-RPC: how params become its arguments, the JSON Schema of the params, and how
its result becomes JSON text.

Rules: everything is compiled at registration. This module does not import asyncio, which scripts that only answer bytes
do not need.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, cast, get_args, get_origin

from msgspec import Struct

from ...jsonrpc.errors import LocalError
from .annotations import ANY, Annotation, translate, translate_result
from .by_pydantic import UNDEFINED, is_field, parameter_field, spread
from .decoder import Arguments, Later, Plan, compiled, owning
from .dependencies import Injection, inject, marks, split
from .hooks import decoder, reader
from .results import write, writer
from .schema import REFS, Made, Parameter, described
from .signature import Signature, Slot, callable_alone, documentation, parameter_docs, read
from .tree import UNION

SCALARS: Final = (int, float, str, bool, None, type(None))
"""Annotations of results whose JSON is neither an array nor an object."""


class Binding(Struct, frozen=True, eq=False):
    """A function as JSON-RPC calls it: `function(*arguments(params, context))`, awaited where `kind` is "async".

    `arguments` raises InvalidParams with every fault (data: {"errors": [{"field", "message", "received"}, ...]}),
    ParseError for a number that no double can hold, and whatever the code of a parameter's type raises, except
    TypeError and ValueError, which are faults. `encode` returns the JSON text of an answer: of its result, only what
    the annotation declares; non-finite floats become null. It raises TypeError, RecursionError or UnicodeEncodeError
    for a result without JSON, and LocalError (an error -32603) for one that is not what is declared."""

    function: Callable[..., Any]
    """Takes positional arguments only, those that `arguments` returns."""
    arguments: Arguments
    encode: Callable[[Any], bytes]
    kind: Literal["async", "plain"]
    wants_context: bool
    parameters: tuple[Parameter, ...]
    """Those that a caller gives, so without the context and dependencies, in the order of the function."""
    result: Annotation
    result_type: Any
    opaque: bool
    """Whether a part of the arguments stays `msgspec.Raw`, so that numbers in it are not checked."""
    shallow: bool
    """Whether the result is declared to be neither an array nor an object."""
    documentation: str
    """The function's docstring; "" if it has none."""
    injection: Injection | None = None
    """The function's dependencies; None if it has none."""

    def params_schema(self) -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of the params: of an object of arguments by name, or of an array if some can
        only be given by position."""
        found, components = described(self.parameters, refs=REFS)
        pairs = list(zip(self.parameters, found, strict=True))
        by_position = any(p.kind == "positional" and p.required for p in self.parameters) or (
            any(p.kind in ("positional", "rest") for p in self.parameters)
            and not any(p.kind in ("either", "named", "members") for p in self.parameters)
        )
        schema: dict[str, Any]
        if by_position:
            lead = [(p, s) for p, s in pairs if p.kind in ("positional", "either")]
            rest = next((s for p, s in pairs if p.kind == "rest"), False)
            schema = {"type": "array", "items": rest} | ({"prefixItems": [s for _, s in lead]} if lead else {})
            schema["minItems"] = next((i for i in range(len(lead), 0, -1) if lead[i - 1][0].required), 0)
        else:
            named = [(p, s) for p, s in pairs if p.kind in ("either", "named")]
            schema = {"type": "object", "properties": {p.name: s for p, s in named}}
            schema["required"] = [p.name for p, _ in named if p.required]
            schema["additionalProperties"] = next((s for p, s in pairs if p.kind == "members"), False)
        return schema | ({"$defs": components} if components else {})


def bind(
    function: Callable[..., Any],
    *,
    context_type: type,
    by_position: bool = True,
    result: bool = True,
) -> Binding:
    """Compile a function. A parameter annotated `context_type` (or a subclass, or with `| None`) takes the context.

    `by_position`: False if params are always an object, so that nothing is compiled for arrays. `result`: False if the
    caller of `bind` makes the JSON of results itself, so that the result's annotation is kept and not compiled.
    Raises LocalError, which names the function and the parameter and says what would be right, for annotations that
    cannot be resolved or to which JSON cannot be decoded, and for functions that no call could give their arguments.
    """
    signature = read(callable_alone(function), context_type)
    docs = documentation(function)
    context = _context(signature, context_type)
    needs = split(signature, context_type)
    given = () if needs is None else tuple(slot for slot, _ in needs.slots)
    apart = {slot.name for slot in (context, *given) if slot is not None}
    given_by_caller = [slot for slot in signature.slots if slot.name not in apart]
    texts = parameter_docs(docs) if given_by_caller else {}
    parameters = tuple(_parameter(slot, signature, texts) for slot in given_by_caller)
    _refuse_ambiguous_names(signature, parameters)
    single = [slot for slot in signature.slots if slot.kind not in ("rest", "members")]
    slots = [slot for slot in single if slot is context or slot.name not in apart]
    injection = None if needs is None else Injection(needs, _context)
    at = slots.index(context) if context is not None else len(slots) if injection is not None else None
    plan = _plan(signature, parameters, at, [slot for slot in (context, *given) if slot is not None])
    awaited = get_origin(signature.result) in (collections.abc.Awaitable, collections.abc.Coroutine)
    result_type = (get_args(signature.result) or (Any,))[-1] if awaited else signature.result
    translated = translate_result(result_type, f"{plan.name}, result") if result else ANY
    asynchronous = signature.asynchronous or awaited
    called = _positional(function, signature, slots, given, plan)
    if injection is not None and at is not None:
        called = inject(called, injection, at, len(slots), own_context=context is not None, asynchronous=asynchronous)
    return Binding(
        called,
        owning(plan, compiled(plan, True) if by_position else Later(plan)),
        writer(plan.name, translated.tree) if result else write,
        "async" if asynchronous else "plain",
        at is not None,
        parameters,
        translated,
        result_type,
        any(p.annotation.opaque for p in parameters),
        result_type in SCALARS,
        docs,
        injection,
    )


def _plan(signature: Signature, parameters: tuple[Parameter, ...], at: int | None, apart: list[Slot]) -> Plan:
    """Return the order of a function's arguments. `at`: the index of the context; None if it takes none; `apart`: the
    parameters that no caller gives. Raises LocalError for a function that no call could give all of its arguments."""
    plan = Plan(
        signature.name,
        tuple(p for p in parameters if p.kind in ("positional", "either")),
        tuple(p for p in parameters if p.kind == "named"),
        next((p for p in parameters if p.kind == "rest"), None),
        next((p for p in parameters if p.kind == "members"), None),
        at,
        frozenset(slot.name for slot in apart if slot.kind != "positional"),
    )
    if any(p.required and p.kind == "positional" for p in plan.lead) and any(p.required for p in plan.named):
        raise LocalError(
            f"{plan.name}: it needs arguments by position and others by name, and a call gives all in one way; "
            "take away the `/` or the `*`"
        )
    return plan


def _refuse_ambiguous_names(signature: Signature, parameters: tuple[Parameter, ...]) -> None:
    """Raise LocalError if an argument that was renamed by a `Field` could be mistaken for another one."""
    names = [p.name for p in parameters]
    for name in names:
        if names.count(name) > 1:
            raise LocalError(f"{signature.name}: two arguments have the name {name!r}; change an alias")
    own = {slot.name for slot in signature.slots}
    if any(p.kind == "members" for p in parameters) and (renamed := [name for name in names if name not in own]):
        raise LocalError(
            f"{signature.name}: the argument {renamed[0]!r} has an alias beside **kwargs, which could take the "
            "parameter's own name; name the parameter as its argument is called"
        )


def _context(signature: Signature, context_type: type) -> Slot | None:
    found = [slot for slot in signature.slots if _context_class(slot.annotation, context_type) is not None]
    for slot in signature.slots:
        if slot not in found and (other := _context_class(slot.annotation, object)) and hasattr(other, "_context_of"):
            takers, _ = other._context_of
            _, imported = getattr(context_type, "_context_of", ("", f"the class {context_type.__qualname__}"))
            raise LocalError(
                f"{signature.name}, parameter {slot.name!r}: this Context is for {takers}; here it is the one of "
                f"`{imported}`"
            )
    for slot in found:
        if slot.kind in ("rest", "members"):
            raise LocalError(f"{signature.name}, parameter {slot.name!r}: the context is one object, not several")
    if len(found) > 1:
        raise LocalError(
            f"{signature.name}: parameters {found[0].name!r} and {found[1].name!r} both take the context; keep one"
        )
    return found[0] if found else None


def _context_class(hint: Any, context_type: type) -> Any:
    """Return the class in this annotation that is `context_type` or a subclass; None if there is none."""
    if type(hint) is type:
        return hint if issubclass(hint, context_type) else None
    if get_origin(hint) is Annotated:
        return _context_class(get_args(hint)[0], context_type)
    if get_origin(hint) in UNION:
        return next((kind for member in get_args(hint) if (kind := _context_class(member, context_type))), None)
    kind = get_origin(hint) or hint  # Context[State] is a context too
    fits = isinstance(kind, type) and (kind is hint or hasattr(kind, "_context_of")) and issubclass(kind, context_type)
    return kind if fits else None


def _parameter(slot: Slot, signature: Signature, texts: dict[str, str]) -> Parameter:
    where = f"{signature.name}, parameter {slot.name!r}"
    name, required, default, hint = _apply_field(slot, where)
    annotation = translate(hint, where)
    tree = annotation.tree
    try:
        decode = decoder(tree)
    except Exception as error:
        raise LocalError(f"{where}: {error}") from error
    text = annotation.description or texts.get(slot.name, "")
    kind = get_args(tree.type)[0] if get_origin(tree.type) is Annotated else tree.type
    one = slot.kind not in ("rest", "members") and isinstance(kind, type)
    read = reader(kind) if one and (tree.adapted or tree.kind == "model") else None
    return Parameter(name, slot.kind, required, default, annotation, text, decode, read)


def _apply_field(slot: Slot, where: str) -> tuple[str, bool, Any, Any]:
    """Return a parameter's name, whether it is required, its default and its annotation: from pydantic's `Field`, if
    one is its default or in its `Annotated`, and else its own. Raises LocalError for a `Field` that no call can
    honour."""
    given = marks(slot.annotation)
    fields = [extra for extra in given if is_field(extra)]
    at_end = not slot.required and is_field(slot.default)
    fields += [slot.default] if at_end else []
    if not fields:
        return slot.name, slot.required, slot.default, slot.annotation
    name, required, default = slot.name, slot.required or at_end, slot.default
    extras = [extra for extra in given if not is_field(extra)]
    for field in fields:
        options = parameter_field(field, where)
        extras += spread(field, where)
        name = options.name or name
        own = not slot.required and not at_end  # what stands after the = is the function's own default
        if not own and (options.default is not UNDEFINED or options.factory is not None):
            required = False
            default = options.default if options.factory is None else Made(options.factory)
    if name != slot.name and slot.kind in ("rest", "members"):
        raise LocalError(f"{where}: Field(alias=...) names one argument; leave it out here")
    inner = get_args(slot.annotation)[0] if given else slot.annotation
    return name, required, default, Annotated[(inner, *extras)] if extras else inner


def _positional(
    function: Callable[..., Any], signature: Signature, slots: list[Slot], given: tuple[Slot, ...], plan: Plan
) -> Callable[..., Any]:
    """Return a function that takes the values of `slots` and then those of `given` by position, and calls `function`
    with them: `function` itself, if it takes them all by position."""
    named = [slot.name for slot in (*slots, *given) if slot.kind == "named"]
    if not named and not given and plan.members is None:
        return function
    values = {slot.name: f"v{index}" for index, slot in enumerate((*slots, *given))}
    parameters = list(values.values())
    arguments = [values[slot.name] for slot in signature.slots if slot.name in values and slot.name not in named]
    if plan.members is not None:
        parameters.append("members")
    if plan.rest is not None:
        parameters.append("*rest")
        arguments.append("*rest")
    arguments += [f"{name}={values[name]}" for name in named]
    if plan.members is not None:
        arguments.append("**members")
    # as source text, since calling with a dict that is built for each call takes five times as long
    made: Callable[..., Any] = eval(
        f"lambda function: lambda {', '.join(parameters)}: function({', '.join(arguments)})"
    )
    return cast(Callable[..., Any], made(function))
