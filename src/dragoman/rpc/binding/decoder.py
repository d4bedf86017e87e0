"""Decodes the params of a call to the arguments of its function: by one decoder, or, if the params do not fit, on a
slow path that finds every fault.

Rules:

- One decoder takes params by position *or* by name (its type is a union of an array type and an object type) and makes
  the arguments directly; params that fit are decoded once.
- Only params that do not fit are decoded again, argument by argument (`faults`), and only then is 1.0 accepted as 1.
- Defaults are the function's own objects, evaluated by Python. A mutable one (a list, a dict, a Struct that is not
  frozen, ...) is copied for each call, so that no call sees another's changes.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, Union

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import astuple

from ...jsonrpc.errors import InvalidParams, LocalError, ParseError
from .faults import MOST, ValueFault, below, fault, find, has_fractions, integral, surplus, words
from .hooks import decoder_of
from .schema import Made, Parameter
from .tree import generic, has_fields, is_model

Params: TypeAlias = Raw | UnsetType
Arguments: TypeAlias = Callable[..., tuple[Any, ...]]
"""Takes (params, context=None), and returns the positional arguments of `Binding.function`."""


class Plan(Struct, frozen=True):
    """The order of a function's arguments: those of `lead`, those of `named`, a dict of `members` (**kwargs), the items
    of `rest` (*args). `name`: the function's, for error texts; `context`: the index at which the context is inserted in
    the end, None if it takes none; `taken`: names that **kwargs may not contain: those of the context and
    dependencies."""

    name: str
    lead: tuple[Parameter, ...]
    named: tuple[Parameter, ...]
    rest: Parameter | None
    members: Parameter | None
    context: int | None
    taken: frozenset[str]


# -- the fast path --------------------------------------------------------------------------------


def owning(plan: Plan, arguments: Arguments) -> Arguments:
    """Return `arguments`, extended where a plan needs it: mutable defaults are copied for each call, and parameters
    with an adapter are decoded by it from JSON text.

    Raises LocalError for a mutable default that cannot be copied.
    """
    parameters: list[Parameter | None] = [*plan.lead, *plan.named]
    if plan.context is not None:
        parameters.insert(plan.context, None)
    own = [
        (i, p.default, _copier(plan, p))
        for i, p in enumerate(parameters)
        if p and not p.required and mutable(p.default)
    ]
    read = [(i, p.read) for i, p in enumerate(parameters) if p and p.read]
    if not own and not read:
        return arguments
    slow = functools.partial(_decode_each, plan, True)

    def with_own(params: Params, context: Any = None) -> tuple[Any, ...]:
        values = list(arguments(params, context))
        try:
            for index, reading in read:
                if type(values[index]) is Raw:
                    values[index] = reading(bytes(values[index]))
        except (TypeError, ValueError):  # it does not fit, and others may not fit either
            values = list(slow(params, context))
        for index, default, copied in own:
            if values[index] is default:
                values[index] = copied()
        return tuple(values)

    return with_own


def mutable(value: Any) -> bool:
    """Return whether a default is mutable or contains something mutable, so that each call needs its own."""
    kind = type(value)
    if kind is Made:
        return True
    if isinstance(value, list | dict | set | bytearray | deque):
        return True
    if isinstance(value, tuple | frozenset):
        return any(mutable(part) for part in value)
    if isinstance(value, Struct):
        return not kind.__struct_config__.frozen or any(
            mutable(getattr(value, name)) for name in kind.__struct_fields__
        )
    return has_fields(kind) or is_model(kind)


def _copier(plan: Plan, p: Parameter) -> Callable[[], Any]:
    if type(p.default) is Made:
        factory: Callable[[], Any] = p.default.factory
        return factory
    if type(p.default) in (list, dict, set) and not p.default:
        return type(p.default)
    from copy import deepcopy  # noqa: PLC0415  (start-up: for such a default)

    try:
        deepcopy(p.default)
    except Exception as error:
        raise LocalError(
            f"{plan.name}, parameter {p.name!r}: its default cannot be copied for each call ({error}); "
            "make it None, and the value in the function"
        ) from error
    return functools.partial(deepcopy, p.default)


def compiled(plan: Plan, by_position: bool) -> Arguments:
    """Compile the `arguments` of a plan. `by_position`: whether params may be an array."""
    slow = functools.partial(_decode_each, plan, by_position)
    either = [p for p in plan.lead if p.kind == "either"]
    if (plan.rest and plan.lead) or (plan.members and (either or plan.named)):
        return _compile_mixed(plan, slow, by_position)
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


class Later:
    """The `arguments` of a plan whose params are by name, compiled when they are first used: of a thousand tools most
    are never called."""

    __slots__ = ("_made", "_plan")

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._made: Arguments | None = None

    def compiled(self) -> Arguments:
        """Return the compiled `arguments`."""
        if self._made is None:
            self._made = compiled(self._plan, False)
        return self._made

    def __call__(self, params: Params, context: Any = None) -> tuple[Any, ...]:
        return self.compiled()(params, context)


def _defaults(plan: Plan) -> tuple[Any, ...] | None:
    """Return the arguments of a call without params; None if one is required."""
    parameters = (*plan.lead, *plan.named)
    return None if any(p.required for p in parameters) else tuple(p.default for p in parameters)


def _compile_plain(
    decode: Callable[[Any], Any], by_name: Any, slow: Arguments, defaults: tuple[Any, ...] | None
) -> Arguments:
    """Compile a plan all of whose parameters may be given by position or by name. `by_name`: the type that `decode`
    makes of params by name; `defaults`: the arguments of a call without params."""

    def arguments(params: Params, context: Any = None) -> tuple[Any, ...]:
        try:
            values = decode(params)
        except Exception:  # decoded again on the slow path
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


def _compile_arranged(plan: Plan, decode: Callable[[Any], Any], by_name: Any, slow: Arguments) -> Arguments:
    """Compile any other plan for which one decoder is enough."""
    before = tuple(p.default for p in plan.lead if p.kind == "positional")
    named = tuple(p.default for p in plan.named)
    mapping, rest = plan.members is not None, plan.rest is not None
    insert, none, taken = _inserter(plan.context), _defaults(plan), plan.taken

    def arguments(params: Params, context: Any = None) -> tuple[Any, ...]:
        if params is UNSET and none is not None:
            return insert((*none, {}) if mapping else none, context)
        try:
            values = decode(params)
        except Exception:  # decoded again on the slow path
            return slow(params, context)
        if type(values) is by_name:
            values = before + astuple(values)
        elif mapping and type(values) is dict:
            if not taken.isdisjoint(values):
                return slow(params, context)
            values = (*before, values)
        elif mapping:
            values = (*values, {}) if not rest else ({}, *values)
        elif rest:
            values = named + values
        else:
            values += named
        return insert(values, context)

    return arguments


def _inserter(index: int | None) -> Callable[[tuple[Any, ...], Any], tuple[Any, ...]]:
    """Return a function that inserts the context into arguments, at this index; None: it leaves them as they are."""
    if index is None:
        return lambda values, context: values
    if index == 0:
        return lambda values, context: (context, *values)
    return lambda values, context: (*values[:index], context, *values[index:])


def _compile_mixed(plan: Plan, slow: Arguments, by_position: bool) -> Arguments:
    """Compile a plan with *args or **kwargs beside other parameters: params are split into their items, which are then
    decoded one by one."""
    kinds: Any = tuple[Raw, ...] | dict[str, Raw] if by_position else dict[str, Raw]
    split: Callable[[Any], Any] = msgspec.json.Decoder(kinds).decode
    insert = _inserter(plan.context)
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
                return insert(tuple(values), context)
        except Exception:  # decoded again on the slow path
            pass
        return slow(params, context)

    return arguments


def _decoder(plan: Plan, either: list[Parameter], by_position: bool) -> tuple[Callable[[Any], Any], Any]:
    """Return the function that decodes params, and the type that it makes of params by name; None if they cannot be
    given so."""
    parameters = [p for p in (*plan.lead, *plan.named, plan.rest, plan.members) if p is not None]
    by_position = by_position and not any(p.required for p in plan.named)
    by_name = not any(p.required for p in plan.lead if p.kind == "positional")

    def kinds(of: Callable[[Parameter], Any]) -> list[Any]:
        return ([_array(plan, of)] if by_position else []) + ([_object(plan, either, of)] if by_name else [])

    whole = kinds(lambda p: Raw if p.read else p.annotation.type)
    twinned = any(p.annotation.tree.twinned for p in parameters)
    check = _union(kinds(lambda p: Raw if p.read else p.annotation.tree.check)) if twinned else None
    return decoder_of(_union(whole), check), whole[-1] if by_name else None


def _array(plan: Plan, of: Callable[[Parameter], Any]) -> Any:
    """Return the type of params by position. `of`: the type of one parameter."""
    if plan.rest is not None:
        return generic(tuple, (of(plan.rest), ...))
    least = next((i for i in range(len(plan.lead), 0, -1) if plan.lead[i - 1].required), 0)
    if least == len(plan.lead):
        return generic(tuple, tuple(of(p) for p in plan.lead))
    # NamedTuple is the only array type with defaults that msgspec decodes to a tuple
    kind: Any = NamedTuple("Positional", [(f"p{index}", of(p)) for index, p in enumerate(plan.lead)])  # type: ignore[misc]
    kind._field_defaults = {f"p{index}": p.default for index, p in enumerate(plan.lead) if index >= least}
    kind.__new__.__defaults__ = tuple(kind._field_defaults.values())
    return kind


def _object(plan: Plan, either: list[Parameter], of: Callable[[Parameter], Any]) -> Any:
    """Return the type of params by name. `of`: the type of one parameter."""
    if plan.members is not None:
        return generic(dict, (str, of(plan.members)))
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
    """Return a default for msgspec that stands for this very object, so that msgspec neither copies nor refuses it."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    return msgspec.field(default_factory=lambda: value)


def _union(kinds: list[Any]) -> Any:
    return Union[tuple(kinds)]  # noqa: UP007


# -- the slow path --------------------------------------------------------------------------------


def _assign(plan: Plan, given: Any) -> tuple[dict[str, Any], Sequence[Any], dict[str, Any], list[ValueFault]]:
    """Assign decoded params to parameters. Returns the values by the parameters' names, those of *args, those of
    **kwargs, and the faults of values that no parameter takes."""
    wrong: list[ValueFault] = []
    rest: Sequence[Any] = ()
    members: dict[str, Any] = {}
    if isinstance(given, dict):
        mine = {p.name for p in (*plan.lead, *plan.named) if p.kind != "positional"}
        values = {name: given[name] for name in mine if name in given}
        others = {name: value for name, value in given.items() if name not in mine}
        if plan.members is not None:
            members = others
            for name in plan.taken.intersection(members):
                wrong.append(fault(below("", name), "Unknown argument", members.pop(name)))
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


def _how_to_give(p: Parameter, given: Any) -> str:
    """Return words that say how a missing argument must be given, if it was given in the other way; "" otherwise."""
    if p.kind == "named" and isinstance(given, list) and given:
        return "; it is given only by name"
    return "; it is given only by position" if p.kind == "positional" and isinstance(given, dict) else ""


def _decode_each(plan: Plan, by_position: bool, params: Params, context: Any = None) -> tuple[Any, ...]:
    """Decode the arguments one by one, accepting 1.0 as 1. Raises InvalidParams with every fault, and ParseError for
    JSON that cannot be decoded."""
    given = _decoded(plan, params)
    if not by_position and params is not UNSET and type(given) is list:
        raise InvalidParams("Invalid params: the arguments have names here, so they are an object")
    values, rest, members, extra = _assign(plan, given)
    fractions = params is not UNSET and has_fractions(params)
    arguments: list[Any] = []
    wrong: list[ValueFault] = []
    for p in (*plan.lead, *plan.named):
        if p.name not in values and p.required:
            wrong.append(fault(p.name, f"Missing argument{_how_to_give(p, given)}"))
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
    return _inserter(plan.context)(tuple(arguments), context)


def _decoded(plan: Plan, params: Params) -> Any:
    if params is UNSET:
        return []
    try:
        given = msgspec.json.decode(params)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ParseError from error  # for example a number that no double can hold
    if not isinstance(given, list | dict):
        raise InvalidParams(data={"errors": msgspec.to_builtins([fault("", "Expected an array or an object", given)])})
    return given


def _one(p: Parameter, value: Any, field: str, fractions: bool, wrong: list[ValueFault]) -> Any:
    """Decode one argument; its faults are added to `wrong`. `fractions`: there may be a 1.0 that means 1."""
    try:
        if fractions:
            value = integral(value, p.annotation.tree)
        return p.decode(msgspec.json.encode(value))
    except RecursionError:
        wrong.append(fault(field, "Nested too deep"))
    except (msgspec.ValidationError, TypeError) as error:
        text, at = words(str(error))
        wrong += find(value, p.annotation.tree, field, None if p.annotation.tree.twinned else error) or [
            fault(f"{field}{at}", text, UNSET if at else value)
        ]
    return None
