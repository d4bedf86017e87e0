"""Records as bytes: JSON, whose members that are JSON already are copied and not looked into."""

from __future__ import annotations

import logging
from typing import Final, Protocol

import msgspec

from ..repeats import Repeats
from .record import TaskRecord

log: logging.Logger = logging.getLogger("dragoman.tasks")
repeats: Final = Repeats(log)


class Seal(Protocol):
    """Encrypts what a store keeps, each piece for the task that it belongs to."""

    def seal(self, id: str, content: bytes) -> bytes:
        """Return the content, encrypted for this task."""

    def open(self, id: str, sealed: bytes) -> bytes | None:
        """Return the content; None where it was not sealed for this task with a key that is known."""


class Encoding:
    """Writes records and reads them. `what`: the store, for the log."""

    __slots__ = ("_decode", "_encode", "_seal", "_what")

    def __init__(self, what: str, seal: Seal | None = None) -> None:
        self._what, self._seal = what, seal
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(TaskRecord).decode

    def encode(self, record: TaskRecord) -> bytes:
        """Return a record as it is stored."""
        written = self._encode(record)
        return written if self._seal is None else self._seal.seal(record.id, written)

    def decode(self, id: str, stored: bytes) -> TaskRecord | None:
        """Return a stored record. None, which is logged, for one that cannot be read: it counts as missing."""
        opened = stored if self._seal is None else self._seal.open(id, stored)
        if opened is not None:
            try:
                record = self._decode(opened)
            except msgspec.MsgspecError:
                pass
            else:
                if record.id == id:
                    return record
        repeats.error("%s: a task there is damaged, or sealed with another key, and is passed over", self._what)
        return None
