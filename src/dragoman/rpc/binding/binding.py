"""A function's signature as JSON-RPC sees it: what takes its params, its JSON Schema, what its result is.

Rules: everything is compiled at registration (`arguments` is how). This module imports no asyncio: scripts that
only answer bytes never pay for it.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Callable
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from msgspec import Struct

from ...jsonrpc.errors import LocalError
from .annotations import ANY, Annotation, translate, translate_result
from .decoder import Arguments, Plan, compiled, compiled_later, owning
from .hooks import decoder
from .projection import projection
from .results import write, writer
from .schema import REFS, Parameter, described
from .signature import Signature, Slot, documentation, parameter_docs, read
from .tree import UNION


class Binding(Struct, frozen=True, eq=False):
    """A function as JSON-RPC calls it: `function(*arguments(params, context))`, awaited where `kind` is "async".

    `arguments` raises InvalidParams with every fault (data: {"errors": [{"field", "message", "received"}, ...]}),
    ParseError for a number that no double holds, and what the code of a parameter's type raises but
    TypeError and ValueError, which are faults. `encode` gives the JSON text of an answer (its envelope): of the result
    what its annotation declares, where non-finite floats become null. It raises TypeError, RecursionError or
    UnicodeEncodeError for what has none, and LocalError for what is another thing than declared (a -32603).
    """

    function: Callable[..., Any]
    """Takes only positional arguments, those of `arguments`."""
    arguments: Arguments
    encode: Callable[[Any], bytes]
    kind: Literal["async", "plain"]
    wants_context: bool
    parameters: tuple[Parameter, ...]
    """Without the context, in the order of the function."""
    result: Annotation
    result_type: Any
    opaque: bool
    """True where a part of the params is left as `msgspec.Raw`, so that its numbers are unread."""
    documentation: str
    """The docstring."""

    def params_schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the params: of the object by name, or of the array where names cannot be given."""
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
            schema["minItems"] = sum(p.required for p, _ in lead)
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

    Without `by_position` params are an object, and nothing is compiled for arrays. Without `result` the type
    of the result is only kept, not looked into, since the caller makes JSON of it himself.
    Raises LocalError, naming function and parameter and saying what would be right, for annotations
    that cannot be resolved or that no JSON can be decoded to, and for functions that cannot be called.
    """
    signature = read(function, context_type)
    docs = documentation(function)
    texts = parameter_docs(docs)
    context = _context(signature, context_type)
    parameters = tuple(_parameter(slot, signature, texts) for slot in signature.slots if slot is not context)
    slots = [slot for slot in signature.slots if slot.kind not in ("rest", "members")]
    plan = Plan(
        signature.name,
        tuple(p for p in parameters if p.kind in ("positional", "either")),
        tuple(p for p in parameters if p.kind == "named"),
        next((p for p in parameters if p.kind == "rest"), None),
        next((p for p in parameters if p.kind == "members"), None),
        None if context is None else slots.index(context),
        None if context is None or context.kind == "positional" else context.name,
    )
    if any(p.required and p.kind == "positional" for p in plan.lead) and any(p.required for p in plan.named):
        raise LocalError(
            f"{plan.name}: it needs arguments by position and others by name, and a call gives all in one way; "
            "take away the `/` or the `*`"
        )
    awaited = get_origin(signature.result) in (collections.abc.Awaitable, collections.abc.Coroutine)
    result_type = (get_args(signature.result) or (Any,))[-1] if awaited else signature.result
    translated = translate_result(result_type, f"{plan.name}, result") if result else ANY
    leave = projection(translated.tree) if result else None
    return Binding(
        _positional(function, slots, plan),
        owning(plan, compiled(plan, True) if by_position else compiled_later(plan)),
        write if leave is None else writer(leave),
        "async" if signature.asynchronous or awaited else "plain",
        context is not None,
        parameters,
        translated,
        result_type,
        any(p.annotation.opaque for p in parameters),
        docs,
    )


def _context(signature: Signature, context_type: type) -> Slot | None:
    found = [slot for slot in signature.slots if _takes(slot.annotation, context_type) is not None]
    for slot in signature.slots:
        if slot not in found and (other := _takes(slot.annotation, object)) and hasattr(other, "_context_of"):
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


def _takes(hint: Any, context_type: type) -> Any:
    """The class in this annotation that is a `context_type`; None where there is none."""
    if get_origin(hint) is Annotated:
        return _takes(get_args(hint)[0], context_type)
    if get_origin(hint) in UNION:
        return next((kind for member in get_args(hint) if (kind := _takes(member, context_type))), None)
    fits = isinstance(hint, type) and get_origin(hint) is None and issubclass(hint, context_type)
    return hint if fits else None


def _parameter(slot: Slot, signature: Signature, texts: dict[str, str]) -> Parameter:
    where = f"{signature.name}, parameter {slot.name!r}"
    annotation = translate(slot.annotation, where)
    try:
        decode = decoder(annotation)
    except Exception as error:
        raise LocalError(f"{where}: {error}") from error
    text = annotation.description or texts.get(slot.name, "")
    return Parameter(slot.name, slot.kind, slot.required, slot.default, annotation, text, decode)


def _positional(function: Callable[..., Any], slots: list[Slot], plan: Plan) -> Callable[..., Any]:
    """The function itself, or one that hands on by name what the function takes only so."""
    names = tuple(slot.name for slot in slots if slot.kind == "named")
    if not names and plan.members is None:
        return function
    given = [f"v{index}" for index in range(len(slots))]
    first = len(slots) - len(names)
    takes, gives = list(given), given[:first]
    if plan.members is not None:
        takes.append("members")
    if plan.rest is not None:
        takes.append("*rest")
        gives.append("*rest")
    gives += [f"{name}={value}" for name, value in zip(names, given[first:], strict=True)]
    if plan.members is not None:
        gives.append("**members")
    # written out, since calling with a dict built for each call costs five times as much
    made: Callable[..., Any] = eval(f"lambda function: lambda {', '.join(takes)}: function({', '.join(gives)})")
    return cast(Callable[..., Any], made(function))
