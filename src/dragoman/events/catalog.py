"""The event types of a publisher: what their events look like, who may follow them, and which subscription gets which.

An event type is a `msgspec.Struct`: its fields are the payload, its docstring the description. A subscription may name
values of the fields that are its filters; it gets the events that have these. A type whose subscriptions need more has
arguments of its own, and a function that compares them with each event.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from inspect import cleandoc
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

from ..access import Access, Allow, access_of
from ..channel import Caller, Identity
from ..jsonrpc.errors import InvalidParams, LocalError, Refusal
from ..jsonrpc.options import CALLABLE, NONE, TEXT, TEXTS, Rule, check, many, one_of
from ..repeats import Repeats

logger: logging.Logger = logging.getLogger("dragoman")
repeats: Repeats = Repeats(logger)

Mode: TypeAlias = Literal["poll", "push", "webhook"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
"""How events may be delivered: to a poll, on a stream, to a webhook."""
Match: TypeAlias = Callable[[Any, Any], bool]
"""(arguments, event) -> whether a subscription with these arguments gets this event."""

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_./-]{0,127}"
_is_struct: Final = Rule(lambda value: isinstance(value, type) and issubclass(value, Struct), "a msgspec.Struct")
OPTIONS: Final = {
    "name": TEXT | NONE,
    "description": TEXT | NONE,
    "modes": many(one_of(*MODES)),
    "filters": many(TEXT),
    "arguments": _is_struct | NONE,
    "match": CALLABLE | NONE,
    "scopes": TEXT | TEXTS,
    "roles": TEXT | TEXTS,
    "allow": CALLABLE | NONE,
}
"""The rules of the options of an event type."""


class EventOptions(TypedDict, total=False):
    """The options of an event type; `EventPublisher.event` describes them."""

    description: str | None
    modes: Collection[Mode]
    filters: Collection[str]
    arguments: type[Struct] | None
    match: Match | None
    scopes: str | Collection[str]
    roles: str | Collection[str]
    allow: Allow | None


class EventArguments(Struct, frozen=True):
    """The arguments of one subscription."""

    text: bytes
    """As JSON in one spelling: those of equal subscriptions are equal."""
    value: Any
    """As the type of the arguments has them."""
    wanted: Mapping[str, bytes]
    """The values of the filters, as JSON text by member of the payload."""


class EventDefinition:
    """An event type of a server. `kind`: the Struct of its events; `EventPublisher.event` describes the options. Raises
    LocalError for options that make no sense."""

    def __init__(
        self,
        kind: type[Struct],
        *,
        name: str | None = None,
        description: str | None = None,
        modes: Collection[Mode] = MODES,
        filters: Collection[str] = (),
        arguments: type[Struct] | None = None,
        match: Match | None = None,
        scopes: str | Collection[str] = (),
        roles: str | Collection[str] = (),
        allow: Allow | None = None,
    ) -> None:
        if not _is_struct.fits(kind) or kind.__struct_config__.array_like:
            raise LocalError(f"an event is a msgspec.Struct, an object in JSON, and not {kind!r:.100}")
        self.name: str = _snake_case(kind.__name__) if name is None else name
        where = f"event {self.name!r:.100}"
        check(where, OPTIONS, locals())
        if re.fullmatch(_NAME, self.name) is None:
            raise LocalError(f"{where}: a name has letters, digits, and _ . / - between them, at most 128 in all")
        if not modes or (arguments is None) != (match is None) or (filters and arguments is not None):
            raise LocalError(
                f"{where}: it has at least one of the modes {', '.join(MODES)}, and filters, or arguments= with match="
            )
        self.kind: type[Struct] = kind
        self.modes: tuple[Mode, ...] = tuple(one for one in MODES if one in modes)
        self.access: Access | None = None
        if scopes or roles or allow is not None:
            self.access = access_of(where, scopes, roles, allow, _as_given)
        self._match = match
        self._members: Mapping[str, str] = {}
        """The filters: their members in JSON, by field."""
        self._arguments: type[Struct] = arguments or self._filters_type(where, kind, filters)
        self._fields = {member: field for field, member in self._members.items()}
        self._read_arguments = msgspec.json.Decoder(self._arguments).decode
        self._read_event = msgspec.json.Decoder(kind).decode
        text = vars(kind).get("__doc__") if description is None else description
        self.description: str = cleandoc(text) if text else ""
        """When its events happen; "": it is not said."""
        try:
            self.input_schema: Mapping[str, Any] = _schema(self._arguments)
            """The JSON Schema of the arguments of a subscription."""
            self.payload_schema: Mapping[str, Any] = _schema(kind)
            """The JSON Schema of the payload of its events."""
        except TypeError as error:
            raise LocalError(f"{where}: {error}") from None

    def __repr__(self) -> str:
        return f"<event {self.name}>"

    def _filters_type(self, where: str, kind: type[Struct], filters: Collection[str]) -> type[Struct]:
        """Return the type of the arguments that name values of these fields; set the members that they are in JSON."""
        known: dict[str, FieldInfo] = {}
        for one in fields(kind):
            known[one.name] = known[one.encode_name] = one
        if missing := [one for one in filters if one not in known]:
            raise LocalError(
                f"{where}: {missing[0]!r:.100} is no field of {kind.__name__}, so nothing can be filtered by it"
            )
        chosen = {known[one].name: known[one] for one in filters}
        self._members = {one.name: one.encode_name for one in chosen.values()}
        return msgspec.defstruct(
            f"{kind.__name__}Filters",
            [(one.name, one.type | UnsetType, UNSET) for one in chosen.values()],
            rename=self._members.get,
            forbid_unknown_fields=True,
            frozen=True,
        )

    # -- arguments and events

    def arguments_of(self, given: Any, most: int) -> EventArguments:
        """Return the arguments that a client gave. `most`: bytes that they may have. Raises InvalidParams."""
        if given is None or isinstance(given, UnsetType):
            given = {}
        try:
            value = self._read_arguments(msgspec.json.encode(given))
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidParams(f"Invalid params: arguments of {self.name}: {error}") from None
        text = canonical(value)
        if len(text) > most:
            raise InvalidParams(f"Invalid params: arguments of {self.name}: {len(text)} bytes, and {most} are allowed")
        return self._arguments_of(text, value)

    def arguments_from(self, text: bytes) -> EventArguments:
        """Return the arguments of a subscription that was kept, by their text. Raises LocalError if they do not fit the
        event type any more."""
        try:
            return self._arguments_of(text, self._read_arguments(text))
        except (msgspec.DecodeError, RecursionError) as error:
            raise LocalError(f"the arguments of a subscription to {self.name} do not fit any more: {error}") from None

    def _arguments_of(self, text: bytes, value: Any) -> EventArguments:
        wanted = {}
        for field, member in self._members.items():
            if (one := getattr(value, field)) is not UNSET:
                wanted[member] = canonical(one)
        return EventArguments(text, value, wanted)

    def encode(self, event: Struct) -> bytes:
        """Return the payload of an event as JSON. Raises LocalError for values that JSON or the type does not have."""
        try:
            text = msgspec.json.encode(event)
            self._read_event(text)  # a Struct's constructor accepts any value
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise LocalError(f"event {self.name}: {error}") from None
        return text

    def matcher(self, data: bytes) -> Callable[[EventArguments], bool]:
        """Return the function that says whether a subscription with some arguments gets an event with this payload. One
        for which that fails does not get it, which is logged."""
        event: list[Any] = []
        members: dict[str, bytes] = {}

        def is_for(arguments: EventArguments) -> bool:
            if self._match is None and not arguments.wanted:
                return True
            if not event:
                event.append(self._read_event(data))
            if self._match is not None:
                return self._match(arguments.value, event[0]) is True
            if not members:  # of the event, since omit_defaults leaves members out of its text
                members.update((one, canonical(getattr(event[0], field))) for one, field in self._fields.items())
            return all(members[name] == text for name, text in arguments.wanted.items())

        def is_for_or_fails(arguments: EventArguments) -> bool:
            try:
                return is_for(arguments)
            except Exception:
                repeats.error("event %s: it could not be compared with a subscription", self.name, exc_info=True)
                return False

        return is_for_or_fails

    def matches(self, arguments: EventArguments, data: bytes) -> bool:
        """Return whether a subscription with these arguments gets an event with this payload."""
        return self.matcher(data)(arguments)

    # -- callers

    def refuses(self, identity: Identity | None, arguments: EventArguments | None) -> dict[str, Any] | None:
        """Return why this caller may not follow these events, for the data of an error; None if it may. `arguments`:
        None to ask whether lists show it the type."""
        if self.access is None:
            return None
        caller = Caller(identity=identity)
        if arguments is None:
            return None if self.access.shown(caller) else {"error": "access_denied"}
        refusal = self.refusal(caller, arguments)
        return None if refusal is None else dict(refusal.data)

    def refusal(self, caller: Caller, arguments: EventArguments) -> Refusal | None:
        """Return the refusal for a caller that may not follow these events; None if it may."""
        return None if self.access is None else self.access.refusal(caller, msgspec.to_builtins(arguments.value))


def canonical(value: Any) -> bytes:
    """Return a value as JSON text in which members of objects are sorted: equal values have equal texts."""
    return msgspec.json.encode(value, order="sorted")


def _as_given(params: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = params
    return found


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _schema(kind: type[Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a Struct, an object with its definitions in it. Raises TypeError for what has none."""
    (schema,), definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    own = schema.get("$ref", "").removeprefix("#/$defs/")
    if own in definitions:
        recursive = f'"#/$defs/{own}"'.encode() in msgspec.json.encode(definitions)
        schema = definitions[own] if recursive else definitions.pop(own)
    schema = {name: value for name, value in schema.items() if name not in ("title", "description")}
    return schema | ({"$defs": definitions} if definitions else {})
