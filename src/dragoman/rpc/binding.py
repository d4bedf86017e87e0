"""A function's signature as JSON-RPC sees it: its params decoder, its JSON Schema, all argument errors at once.

Rules:

- Everything is compiled at registration. One decoder takes params by position *or* by name (a union of
  an array type and an object type), straight into the arguments; nothing is decoded twice while it fits.
- Only what does not fit is decoded again, argument by argument (`faults`), and only then is 1.0 taken for 1.
- Defaults are the function's own objects, evaluated by Python, never copied.
- This module imports no asyncio: scripts that only answer bytes never pay for it.
"""

from __future__ import annotations

import collections.abc
import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import astuple

from ..jsonrpc.errors import InvalidParams, LocalError, ParseError
from .annotations import ANY, UNION, Annotation, translate, translate_result
from .faults import MOST, Fault, below, fault, find, has_fractions, integral, surplus, words
from .hooks import decoder, schemas
from .results import result_decoder as result_decoder
from .results import to_json as to_json
from .results import write
from .signatures import Kind, Signature, Slot, documentation, parameter_docs, read

Params: TypeAlias = Raw | UnsetType
Arguments: TypeAlias = Callable[..., tuple[Any, ...]]
"""(params, context=None) -> what `Binding.function` takes."""

REFS = "#/$defs/{name}"


class Parameter(Struct, frozen=True):
    """A parameter that a caller gives. `kind`: "positional" (only), "either", "named" (only), "rest" (*args),
    "members" (**kwargs). `default`: the function's own object, where `required` is False."""

    name: str
    kind: Kind
    required: bool
    default: Any
    annotation: Annotation
    description: str
    decode: Callable[[Any], Any]

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema (2020-12), whole, with "$defs" where it needs them."""
        (schema,), components = described([self], refs=REFS)
        return schema | ({"$defs": components} if components else {})


class Binding(Struct, frozen=True, eq=False):
    """A function as JSON-RPC calls it: `function(*arguments(params, context))`, awaited where `kind` is "async".

    `arguments` raises InvalidParams with every fault (data: {"errors": [{"field", "message", "received"}, ...]}),
    ParseError for a number that no double holds, and what the code of a parameter's type raises but
    TypeError and ValueError, which are faults. `encode` gives the JSON text of a result, where non-finite floats
    become null; it raises TypeError, RecursionError or UnicodeEncodeError for what has none (a -32603).
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
    context: type | None = None
    """The class of the context it wants."""

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

    def result_schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the result."""
        (schema,), components = schemas([self.result.check], refs=REFS, result=True)
        return schema | ({"$defs": components} if components else {})


def described(parameters: Sequence[Parameter], *, refs: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The parameters' JSON Schemas, with descriptions and defaults, and the components they refer to."""
    found, components = schemas([p.annotation.check for p in parameters], refs=refs)
    whole = []
    for p, schema in zip(parameters, found, strict=True):
        # beside a $ref other words are allowed in 2020-12, and ignored by older readers
        extra: dict[str, Any] = {"description": p.description} if p.description else {}
        if not p.required and p.kind not in ("rest", "members"):
            try:
                extra["default"] = msgspec.json.decode(to_json(p.default))
            except LocalError:
                pass
        whole.append(schema | extra)
    return whole, components


# -- binding --------------------------------------------------------------------------------------


class _Plan(Struct, frozen=True):
    """Who takes what. Values stand in this order: `lead`, `named`, a dict of `members`, the items of `rest`;
    the context goes in at index `context` in the end. `taken`: its name, where **kwargs must not use it."""

    name: str
    lead: tuple[Parameter, ...]
    named: tuple[Parameter, ...]
    rest: Parameter | None
    members: Parameter | None
    context: int | None
    taken: str | None


def bind(
    function: Callable[..., Any],
    *,
    context_type: type | tuple[type, ...],
    by_position: bool = True,
    result: bool = True,
) -> Binding:
    """Compile a function. A parameter annotated `context_type` (or a subclass, or with `| None`) takes the context.

    Without `by_position` params are an object, and nothing is compiled for arrays. Without `result` the type
    of the result is only kept, not looked into, since the caller makes JSON of it himself.
    Raises LocalError, naming function and parameter and saying what would be right, for annotations
    that cannot be resolved or that no JSON can be decoded to, and for functions that cannot be called.
    """
    signature = read(function, context_type[0] if isinstance(context_type, tuple) else context_type)
    docs = documentation(function)
    texts = parameter_docs(docs)
    context = _context(signature, context_type)
    parameters = tuple(_parameter(slot, signature, texts) for slot in signature.slots if slot is not context)
    slots = [slot for slot in signature.slots if slot.kind not in ("rest", "members")]
    plan = _Plan(
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
    return Binding(
        _positional(function, slots, plan),
        _compile(plan, True) if by_position else _compile_later(plan),
        write,
        "async" if signature.asynchronous or awaited else "plain",
        context is not None,
        parameters,
        translate_result(result_type, f"{plan.name}, result") if result else ANY,
        result_type,
        any(p.annotation.opaque for p in parameters),
        docs,
        None if context is None else _takes(context.annotation, context_type),
    )


def _context(signature: Signature, context_type: type | tuple[type, ...]) -> Slot | None:
    found = [slot for slot in signature.slots if _takes(slot.annotation, context_type) is not None]
    for slot in found:
        if slot.kind in ("rest", "members"):
            raise LocalError(f"{signature.name}, parameter {slot.name!r}: the context is one object, not several")
    if len(found) > 1:
        raise LocalError(
            f"{signature.name}: parameters {found[0].name!r} and {found[1].name!r} both take the context; keep one"
        )
    return found[0] if found else None


def _takes(hint: Any, context_type: type | tuple[type, ...]) -> type | None:
    """The class of context that a parameter with this annotation takes."""
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


def _positional(function: Callable[..., Any], slots: list[Slot], plan: _Plan) -> Callable[..., Any]:
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


# -- the quick way --------------------------------------------------------------------------------


def _compile(plan: _Plan, by_position: bool) -> Arguments:
    """The `arguments` of a plan."""
    slow = functools.partial(_slowly, plan)
    either = [p for p in plan.lead if p.kind == "either"]
    if (plan.rest and plan.lead) or (plan.members and (either or plan.named)):
        return _compile_mixed(plan, slow)
    decode, by_name = _decoder(plan, either, by_position)
    if (
        plan.context is None
        and plan.rest is None
        and plan.members is None
        and len(either) == len(plan.lead)
        and not plan.named
    ):
        return _compile_plain(decode, by_name, slow, _defaults(plan))
    return _compile_arranged(plan, decode, by_name, slow)


def _compile_later(plan: _Plan) -> Arguments:
    """The `arguments` of a plan, by name, compiled when they are first asked for: a thousand tools are rarely called."""
    made: Arguments | None = None

    def arguments(params: Params, context: Any = None) -> tuple[Any, ...]:
        nonlocal made
        if made is None:
            made = _compile(plan, False)
        return made(params, context)

    return arguments


def _defaults(plan: _Plan) -> tuple[Any, ...] | None:
    """The values when nothing is given; None where something must be."""
    parameters = (*plan.lead, *plan.named)
    return None if any(p.required for p in parameters) else tuple(p.default for p in parameters)


def _compile_plain(
    decode: Callable[[Any], Any], by_name: Any, slow: Arguments, defaults: tuple[Any, ...] | None
) -> Arguments:
    """Parameters that are given either way, and nothing else."""

    def arguments(params: Params, context: Any = None) -> tuple[Any, ...]:
        try:
            values = decode(params)
        except Exception:  # all of it is looked at again, slowly
            return slow(params, context)
        return astuple(values) if type(values) is by_name else values

    if defaults is None:
        return arguments
    none = defaults

    def arguments_or_none(params: Params, context: Any = None) -> tuple[Any, ...]:
        if params is UNSET:
            return none
        try:
            values = decode(params)
        except Exception:
            return slow(params, context)
        return astuple(values) if type(values) is by_name else values

    return arguments_or_none


def _compile_arranged(plan: _Plan, decode: Callable[[Any], Any], by_name: Any, slow: Arguments) -> Arguments:
    """Any other plan that one decoder can do."""
    before = tuple(p.default for p in plan.lead if p.kind == "positional")
    named = tuple(p.default for p in plan.named)
    mapping, rest = plan.members is not None, plan.rest is not None
    place, none, taken = _placer(plan.context), _defaults(plan), plan.taken

    def arguments(params: Params, context: Any = None) -> tuple[Any, ...]:
        if params is UNSET and none is not None:
            return place((*none, {}) if mapping else none, context)
        try:
            values = decode(params)
        except Exception:  # all of it is looked at again, slowly
            return slow(params, context)
        if type(values) is by_name:
            values = before + astuple(values)
        elif mapping and type(values) is dict:
            if taken in values:
                return slow(params, context)
            values = (*before, values)
        elif mapping:
            values = (*values, {}) if not rest else ({}, *values)
        elif rest:
            values = named + values
        else:
            values += named
        return place(values, context)

    return arguments


def _placer(index: int | None) -> Callable[[tuple[Any, ...], Any], tuple[Any, ...]]:
    """What puts the context in its place."""
    if index is None:
        return lambda values, context: values
    if index == 0:
        return lambda values, context: (context, *values)
    return lambda values, context: (*values[:index], context, *values[index:])


def _compile_mixed(plan: _Plan, slow: Arguments) -> Arguments:
    """*args or **kwargs beside other parameters: the items are told apart first, then decoded one by one."""
    split: Callable[[Any], Any] = msgspec.json.Decoder(tuple[Raw, ...] | dict[str, Raw]).decode
    place = _placer(plan.context)
    required = [p.name for p in (*plan.lead, *plan.named) if p.required]

    def arguments(params: Params, context: Any = None) -> tuple[Any, ...]:
        try:
            given, rest, members, wrong = _assign(plan, split(params))
            if not wrong and all(name in given for name in required):
                values = [p.decode(given[p.name]) if p.name in given else p.default for p in (*plan.lead, *plan.named)]
                if plan.members is not None:
                    values.append({name: plan.members.decode(value) for name, value in members.items()})
                if plan.rest is not None:
                    values += map(plan.rest.decode, rest)
                return place(tuple(values), context)
        except Exception:  # all of it is looked at again, slowly
            pass
        return slow(params, context)

    return arguments


def _decoder(plan: _Plan, either: list[Parameter], by_position: bool) -> tuple[Callable[[Any], Any], Any]:
    """What decodes params given by position or by name, and the type it makes of the latter."""
    parameters = [p for p in (*plan.lead, *plan.named, plan.rest, plan.members) if p is not None]
    by_position = by_position and not any(p.required for p in plan.named)
    by_name = not any(p.required for p in plan.lead if p.kind == "positional")

    def kinds(of: Callable[[Parameter], Any]) -> list[Any]:
        return ([_array(plan, of)] if by_position else []) + ([_object(plan, either, of)] if by_name else [])

    whole = kinds(lambda p: p.annotation.type)
    twice = any(p.annotation.twice for p in parameters)
    check = _union(kinds(lambda p: p.annotation.check)) if twice else Any
    return decoder(Annotation(_union(whole), check, twice)), whole[-1] if by_name else None


def _array(plan: _Plan, of: Callable[[Parameter], Any]) -> Any:
    """The type of params by position."""
    if plan.rest is not None:
        return _generic(tuple, (of(plan.rest), ...))
    if all(p.required for p in plan.lead):
        return _generic(tuple, tuple(of(p) for p in plan.lead))
    # the one array type with defaults that msgspec makes a tuple of
    kind: Any = NamedTuple("Positional", [(f"p{index}", of(p)) for index, p in enumerate(plan.lead)])  # type: ignore[misc]
    kind._field_defaults = {f"p{index}": p.default for index, p in enumerate(plan.lead) if not p.required}
    kind.__new__.__defaults__ = tuple(kind._field_defaults.values())
    return kind


def _object(plan: _Plan, either: list[Parameter], of: Callable[[Parameter], Any]) -> Any:
    """The type of params by name."""
    if plan.members is not None:
        return _generic(dict, (str, of(plan.members)))
    parameters = [*either, *plan.named]
    return msgspec.defstruct(
        "Named",
        [(f"p{i}", of(p)) if p.required else (f"p{i}", of(p), _itself(p.default)) for i, p in enumerate(parameters)],
        rename={f"p{i}": p.name for i, p in enumerate(parameters)},
        kw_only=True,  # required ones may follow optional ones
        forbid_unknown_fields=True,
        gc=False,
    )


def _itself(value: Any) -> Any:
    """A default that msgspec neither copies nor refuses."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    return msgspec.field(default_factory=lambda: value)


def _generic(origin: Any, args: Any) -> Any:
    return origin[args]


def _union(kinds: list[Any]) -> Any:
    return Union[tuple(kinds)]  # noqa: UP007


# -- the slow way ---------------------------------------------------------------------------------


def _assign(plan: _Plan, given: Any) -> tuple[dict[str, Any], Sequence[Any], dict[str, Any], list[Fault]]:
    """Who gets what: values by parameter, those of *args, those of **kwargs, and what is surplus."""
    wrong: list[Fault] = []
    rest: Sequence[Any] = ()
    members: dict[str, Any] = {}
    if isinstance(given, dict):
        mine = {p.name for p in (*plan.lead, *plan.named) if p.kind != "positional"}
        values = {name: given[name] for name in mine if name in given}
        others = {name: value for name, value in given.items() if name not in mine}
        if plan.members is not None:
            members = others
            if plan.taken in members:
                wrong.append(fault(below("", plan.taken), "Unknown argument", members.pop(plan.taken)))
        else:
            unseen = {p.name for p in (*plan.lead, plan.rest) if p is not None and p.name not in mine}
            for name in list(others)[:MOST]:
                why = "This argument is given only by position" if name in unseen else surplus(name, mine)
                wrong.append(fault(below("", name), why, others[name]))
    else:
        values = {p.name: value for p, value in zip(plan.lead, given, strict=False)}
        extra = given[len(plan.lead) :]
        if plan.rest is not None:
            rest = extra
        else:
            many = f"Surplus argument: there are {len(plan.lead) or 'none'} by position"
            wrong += [fault(f"[{index}]", many, v) for index, v in enumerate(extra[:MOST], len(plan.lead))]
    return values, rest, members, wrong


def _only(p: Parameter, given: Any) -> str:
    if p.kind == "named" and isinstance(given, list) and given:
        return "; it is given only by name"
    return "; it is given only by position" if p.kind == "positional" and isinstance(given, dict) else ""


def _slowly(plan: _Plan, params: Params, context: Any = None) -> tuple[Any, ...]:
    """The arguments one by one, with every fault, and with 1.0 for 1."""
    given = _whole(plan, params)
    values, rest, members, extra = _assign(plan, given)
    fractions = params is not UNSET and has_fractions(params)
    arguments: list[Any] = []
    wrong: list[Fault] = []
    for p in (*plan.lead, *plan.named):
        if p.name not in values and p.required:
            wrong.append(fault(p.name, f"Missing argument{_only(p, given)}"))
        arguments.append(_one(p, values[p.name], p.name, fractions, wrong) if p.name in values else p.default)
    if plan.members is not None:
        arguments.append(
            {n: _one(plan.members, v, below("", n), fractions, wrong) for n, v in members.items() if len(wrong) < MOST}
        )
    if plan.rest is not None:
        first = len(plan.lead)
        arguments += [
            _one(plan.rest, v, f"[{i}]", fractions, wrong) for i, v in enumerate(rest, first) if len(wrong) < MOST
        ]
    wrong += extra
    if wrong:
        raise InvalidParams(data={"errors": msgspec.to_builtins(wrong[:MOST])})
    return _placer(plan.context)(tuple(arguments), context)


def _whole(plan: _Plan, params: Params) -> Any:
    if params is UNSET:
        return {} if any(p.required for p in plan.named) else []
    try:
        given = msgspec.json.decode(params)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ParseError from error  # a number no double holds, say
    if not isinstance(given, list | dict):
        raise InvalidParams(data={"errors": msgspec.to_builtins([fault("", "Expected an array or an object", given)])})
    return given


def _one(p: Parameter, value: Any, field: str, fractions: bool, wrong: list[Fault]) -> Any:
    """One argument; its faults are added to `wrong`."""
    try:
        if fractions:
            value = integral(value, p.annotation.type)
        return p.decode(msgspec.json.encode(value))
    except RecursionError:
        wrong.append(fault(field, "Nested too deep"))
    except msgspec.ValidationError as error:
        text, place = words(str(error))
        wrong += find(value, p.annotation.check, field) or [fault(f"{field}{place}", text, UNSET if place else value)]
    return None
