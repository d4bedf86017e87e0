"""What the methods of Events have in common: the event type that a call names, whether its caller may follow it, where
its events begin, and the errors of all that is refused."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from msgspec import UnsetType

from ....channel import Identity
from ....events.catalog import EventArguments, EventDefinition, Mode
from ....events.outbox import TooManySubscriptions
from ....events.publisher import EventPublisher, TooManyStreams
from ....jsonrpc.errors import RpcError
from ....repeats import Repeats
from ....store.database import DatabaseFull
from .model import Arguments, Cursor, EventCodes, Milliseconds, Profile

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)


class Admission:
    """Admits the calls of one `Events`."""

    def __init__(self, publisher: EventPublisher, *, profile: Profile, codes: EventCodes) -> None:
        self._publisher = publisher
        self._profile = profile
        self._codes = codes

    def find(self, name: str, mode: Mode) -> EventDefinition:
        """Return an event type. Raises RpcError if there is none, or it is not delivered so."""
        definition = self.definition(name)
        if mode not in self.modes(definition):
            raise self.unsupported(mode)
        return definition

    def definition(self, name: str) -> EventDefinition:
        """Return an event type. Raises RpcError if there is none."""
        definition = self._publisher.types.get(name)
        if definition is None:
            text = f"NotFound: there is no event type {name!r:.100}"
            raise RpcError.of(self._codes.not_found, text, {"kind": "event"})
        return definition

    def arguments(self, definition: EventDefinition, given: Arguments, identity: Identity | None) -> EventArguments:
        """Return the arguments of a caller that may follow these events. Raises RpcError."""
        arguments = definition.arguments_of(given, self._publisher.limits.arguments_size)
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
        given = None if isinstance(cursor, UnsetType) else cursor
        age = None if max_age is None or isinstance(max_age, UnsetType) else max_age / 1000
        return self._publisher.start(name, given, age)

    def exhausted(self, limit: str, most: int) -> RpcError:
        """Return the error for what is above a limit."""
        text = f"ResourceExhausted: {limit}: {most} are allowed"
        return RpcError.of(self._codes.exhausted, text, {"limit": limit, "max": most})

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Raise RpcError for what there is no room for."""
        try:
            yield
        except (TooManyStreams, TooManySubscriptions) as error:
            raise self.exhausted(error.limit, error.most) from None
        except DatabaseFull:
            repeats.error("events: the store is full: limit file_size allows no more", exc_info=True)
            raise self.exhausted("file_size", self._publisher.limits.file_size) from None
