"""What the methods of Events have in common: the event type that a call names, whether its caller may follow it, where
its events begin, and the errors of all that is refused."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping

from msgspec import UnsetType

from ....channel import Identity
from ....jsonrpc.errors import RpcError
from ....repeats import Repeats
from ....store.database import DatabaseFull
from .catalog import EventArguments, EventDefinition
from .clock import Clock
from .limits import EventLimits
from .model import Arguments, Cursor, EventCodes, Milliseconds, Mode, Profile
from .outbox import Outbox, TooManySubscriptions

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)


class Admission:
    """Admits the calls of one `Events`. `definitions`: the event types by name; `box`: returns the outbox."""

    def __init__(
        self,
        definitions: Mapping[str, EventDefinition],
        box: Callable[[], Outbox],
        clock: Clock,
        *,
        profile: Profile,
        limits: EventLimits,
        codes: EventCodes,
    ) -> None:
        self._definitions = definitions
        self._box = box
        self._clock = clock
        self._profile = profile
        self._limits = limits
        self._codes = codes

    def find(self, name: str, mode: Mode) -> EventDefinition:
        """Return an event type. Raises RpcError if there is none, or it is not delivered so."""
        definition = self.definition(name)
        if mode not in self.modes(definition):
            raise self.unsupported(mode)
        return definition

    def definition(self, name: str) -> EventDefinition:
        """Return an event type. Raises RpcError if there is none."""
        definition = self._definitions.get(name)
        if definition is None:
            text = f"NotFound: there is no event type {name!r:.100}"
            raise RpcError.of(self._codes.not_found, text, {"kind": "event"})
        return definition

    def arguments(self, definition: EventDefinition, given: Arguments, identity: Identity | None) -> EventArguments:
        """Return the arguments of a caller that may follow these events. Raises RpcError."""
        arguments = definition.arguments_of(given, self._limits.arguments_size)
        if (why := definition.refuses(identity, arguments)) is not None:
            text = f"Forbidden: this caller may not follow {definition.name} with these arguments"
            raise RpcError.of(self._codes.forbidden, text, why)
        return arguments

    def modes(self, definition: EventDefinition) -> list[Mode]:
        """Return how the events of a type are delivered."""
        return [one for one in definition.modes if self._profile != "chatgpt" or one == "webhook"]

    def unsupported(self, mode: str) -> RpcError:
        """Return the error for a way in which events are not delivered."""
        text = f"Unsupported: these events are not delivered by {mode!r:.40}"
        return RpcError.of(self._codes.unsupported, text, {"feature": "deliveryMode", "value": mode[:40]})

    def start(self, name: str, cursor: Cursor, max_age: Milliseconds) -> tuple[int, bool]:
        """Return the number after which a client's events begin, and whether it has lost some."""
        outbox = self._box()
        state = outbox.state(name)
        if cursor is None or isinstance(cursor, UnsetType):
            return state.head, False
        number = outbox.number_of(name, cursor)
        if number is None or number > state.head:
            return state.head, True
        start = max(number, state.gone)
        if max_age is not None and not isinstance(max_age, UnsetType):
            start = max(start, outbox.number_at(name, self._clock.now() - max_age / 1000))
        return start, start > number

    def exhausted(self, limit: str, most: int) -> RpcError:
        """Return the error for what is above a limit."""
        text = f"ResourceExhausted: {limit}: {most} are allowed"
        return RpcError.of(self._codes.exhausted, text, {"limit": limit, "max": most})

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Raise RpcError for what the outbox has no room for."""
        try:
            yield
        except TooManySubscriptions as error:
            raise self.exhausted(error.limit, error.most) from None
        except DatabaseFull:
            repeats.error("events: the store is full: limit file_size allows no more", exc_info=True)
            raise self.exhausted("file_size", self._limits.file_size) from None
