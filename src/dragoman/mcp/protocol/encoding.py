"""Encodes values of `types` and `params` for a revision, and decodes them. Pure.

`fit` reduces a value to what a revision knows, at any depth: unknown members are left out, unknown blocks become text
that says so, and required members must be set; a foreign block becomes its JSON text. The steps are worked out once for
each type and revision; where there are none, msgspec encodes the value as it is. Free members (`_meta`, JSON Schemas,
structured content) belong to the caller and are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from ...jsonrpc.errors import LocalError
from .foreign import ForeignContent
from .revisions import REVISIONS, Revision
from .types import BORN, stand_in

T = TypeVar("T")
Fit: TypeAlias = Callable[[Any], Any]

_encode = msgspec.json.Encoder().encode


class _Readers(dict[Any, Callable[[bytes | Raw], Any]]):
    """The decoder of each type, made at its first use."""

    def __missing__(self, type: Any) -> Callable[[bytes | Raw], Any]:
        made = self[type] = msgspec.json.Decoder(type).decode
        return made


READERS: Final = _Readers()
"""The decoders of `decode`, for code that decodes each message and saves a call."""
_fits: tuple[dict[type, Fit | None], ...] = tuple({} for _ in REVISIONS)
"""The function that fits a value, by `Revision.order` and type; None: the revision knows all of the type."""


def encode(value: Any, revision: Revision) -> bytes:
    """Return `value` as JSON for a peer of `revision`, reduced by `fit`.

    Raises LocalError if the revision requires a member that is not set, or cannot express one that is.
    """
    return _encode(fit(value, revision))


def fit(value: T, revision: Revision) -> T:
    """Return `value` as `revision` knows it: the same object if it knows all of it, otherwise a reduced copy.

    A list or dict itself is not reduced: pass the Struct that has it as a member. Raises LocalError, as `encode` does.
    """
    known = _fits[revision.order]
    kind = type(value)
    if kind not in known:
        known[kind] = _of_struct(kind, revision) if issubclass(kind, Struct) else None
    change = known[kind]
    return value if change is None else cast(T, change(value))


def decode(raw: bytes | Raw, type: type[T]) -> T:
    """Decode `raw` as a value of `type`; members that the type does not have are ignored.

    `type` may be any annotation that msgspec decodes (then cast the result). Raises msgspec.DecodeError; where `raw` is
    JSON and does not fit, its subclass ValidationError, with the path to the fault.
    """
    found: T = READERS[type](raw)
    return found


class _TextStep(Struct, frozen=True):
    """What becomes of a member of JSON text in a revision."""

    name: str
    gone: bool
    required: bool
    older: Fit | None


@cache
def _text_steps(kind: type[Struct], order: int) -> tuple[_TextStep, ...]:
    revision = next(one for one in REVISIONS.values() if one.order == order)
    steps = (
        _TextStep(
            field.encode_name,
            not knows(field.type, revision),
            requires(field.type, revision),
            _older(field.type, revision),
        )
        for field in structs.fields(kind)
    )
    return tuple(one for one in steps if one.gone or one.required or one.older is not None)


def encode_text(text: Raw | bytes, kind: type[Struct], revision: Revision) -> bytes:
    """Return a foreign `kind`, which came as JSON text, for a peer of `revision`, with the order of its members.

    Members that the revision does not have are left out, as by `fit`, but only of the object itself: what is in its
    members, and members that `kind` does not have, stay as they came. Raises LocalError if the revision requires a
    member that is not there, msgspec.DecodeError for text that is no JSON object.
    """
    members = decode(text, dict[str, Raw])
    for step in _text_steps(kind, revision.order):
        member = members.get(step.name)
        if member is None:
            if step.required:
                raise LocalError(f"{kind.__name__} must have the member {step.name}: {revision.date} requires it")
        elif step.gone:
            del members[step.name]
        elif step.older is not None:
            value = msgspec.json.decode(member)
            changed = step.older(value)
            if changed is UNSET:
                del members[step.name]
            elif changed is not value:
                members[step.name] = Raw(_encode(changed))
    return _encode(members)


def with_members(text: Raw | bytes, changed: Mapping[str, Raw]) -> Raw:
    """Return an object's JSON text with these members set; the others, and the order, stay. Raises msgspec.DecodeError
    for text that is no object."""
    return Raw(_encode(decode(text, dict[str, Raw]) | dict(changed)))


@cache
def members_of(kind: type[Struct]) -> dict[str, str]:
    """Return the fields of a Struct by the names that they have on the wire; "" for its tag."""
    found = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    config = kind.__struct_config__
    return found if config.tag_field is None else found | {config.tag_field: ""}


def splice(text: bytes, members: Mapping[str, Any]) -> bytes:
    """Return the JSON text of an object with these members at its end. Raises TypeError for a value that JSON does not
    have."""
    if not members:
        return text
    added = _encode(dict(members))
    return added if len(text) == 2 else text[:-1] + b"," + added[1:]


def _extra(hint: Any) -> dict[str, Any]:
    """Return the history of a field, from its annotation."""
    if get_origin(hint) is not Annotated:
        return {}
    return {key: value for meta in hint.__metadata__ for key, value in (meta.extra or {}).items()}


def knows(hint: Any, revision: Revision) -> bool:
    """Return whether `revision` has the field with this annotation."""
    extra = _extra(hint)
    return revision.within(extra.get("since"), extra.get("until"))


def requires(hint: Any, revision: Revision) -> bool:
    """Return whether the field with this annotation must not be UNSET in `revision`."""
    extra = _extra(hint)
    since = extra.get("required_since")
    if since is not None and revision.within(since):
        return revision not in extra.get("optional_in", ())
    return revision in extra.get("required_in", ())


def _older(hint: Any, revision: Revision) -> Fit | None:
    """Return the conversion for revisions older than the value's present form."""
    before, change = _extra(hint).get("older", (None, None))
    return cast(Fit, change) if before is not None and not revision.within(before) else None


class _Step(Struct, frozen=True):
    """How one member is reduced; `gone`: it is left out."""

    name: str
    gone: bool
    required: bool
    older: Fit | None
    inner: Fit | None


def _of_struct(kind: type[Struct], revision: Revision) -> Fit | None:
    if kind is ForeignContent:  # which revisions have it is not known
        return lambda value: value.raw
    steps = []
    for field in structs.fields(kind):
        gone = not knows(field.type, revision)
        inner = None if gone else _of_hint(field.type, revision)
        step = _Step(field.name, gone, requires(field.type, revision), _older(field.type, revision), inner)
        if gone or step.required or step.older or inner:
            steps.append(step)
    if not steps:
        return None

    def change(value: Any) -> Any:
        # a caller may put a plain dict where a Struct is expected: that is sent as it is
        if type(value) is not kind:
            return value
        changed = {}
        for step in steps:
            member = getattr(value, step.name)
            new = UNSET if step.gone else _member(member, step, kind, revision)
            if new is not member:
                changed[step.name] = new
        return structs.replace(value, **changed) if changed else value

    return change


def _member(member: Any, step: _Step, kind: type[Struct], revision: Revision) -> Any:
    if member is UNSET:
        if step.required:
            raise LocalError(f"{kind.__name__}.{step.name} must be set: {revision.date} requires it")
        return UNSET
    if step.older is not None:
        member = step.older(member)
    return member if step.inner is None or member is UNSET else step.inner(member)


def _of_hint(hint: Any, revision: Revision) -> Fit | None:
    origin = get_origin(hint)
    if origin is Annotated:
        return _of_hint(hint.__origin__, revision)
    if origin is Union or origin is UnionType:
        return _of_union(get_args(hint), revision)
    if origin is list:
        (item,) = get_args(hint)
        if get_origin(item) in (Union, UnionType):
            fits = _union_fits(get_args(item), revision)
            return _of_mixed_list(fits) if fits else None
        inner = _of_hint(item, revision)
        return inner and _of_list(inner)
    if origin is dict:
        inner = _of_hint(get_args(hint)[1], revision)
        return inner and _of_dict(inner)
    return _of_struct(hint, revision) if isinstance(hint, type) and issubclass(hint, Struct) else None


def _of_list(inner: Fit) -> Fit:
    def change(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        new = [inner(one) for one in value]
        return value if all(a is b for a, b in zip(new, value, strict=True)) else new

    return change


def _of_mixed_list(fits: dict[type, Fit]) -> Fit:
    """Return the function that fits a list of several types, most of which the revision knows: then it only looks at
    the types."""
    types = frozenset(fits)

    def change(value: Any) -> Any:
        if not isinstance(value, list | tuple) or types.isdisjoint(map(type, value)):
            return value
        return [one if (known := fits.get(type(one))) is None else known(one) for one in value]

    return change


def _of_dict(inner: Fit) -> Fit:
    def change(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        new = {key: inner(one) for key, one in value.items()}
        return value if all(new[key] is value[key] for key in value) else new

    return change


def _union_fits(hints: tuple[Any, ...], revision: Revision) -> dict[type, Fit]:
    """Return the functions that fit the types of a union, by type, without those that the revision knows."""
    by_type: dict[type, Fit] = {}
    for hint in hints:
        one = (
            _replace_by_text(revision) if hint in BORN and not revision.within(BORN[hint]) else _of_hint(hint, revision)
        )
        if one is not None:
            by_type[get_origin(hint) or hint] = one
    return by_type


def _of_union(hints: tuple[Any, ...], revision: Revision) -> Fit | None:
    by_type = _union_fits(hints, revision)

    def change(value: Any) -> Any:
        known = by_type.get(type(value))
        return value if known is None else known(value)

    return change if by_type else None


def _replace_by_text(revision: Revision) -> Fit:
    def change(value: Any) -> Any:
        instead = stand_in(value)
        if instead is None:
            raise LocalError(f"{type(value).__name__} cannot be sent to a peer of {revision.date}")
        return fit(instead, revision)

    return change
