"""Error answers of a service: for failures, malformed messages, and answers above a limit.

The texts that cross the wire are those of the specification; internal details stay in the log, under a
reference. With `debug` reasons and exceptions are sent too.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import UNSET, Raw, Struct, field
from msgspec.structs import replace

from ..jsonrpc.codec import AnyAnswer, FailedAnswer, failed_answer, join, requests, text_of, unsent_failure
from ..jsonrpc.errors import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    PLAIN,
    CallRefused,
    Dialect,
    InternalError,
    LocalError,
    Refusal,
    RpcError,
    UnfitCaller,
    too_large,
)
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import NULL, Batch, Malformed, Message, Notification, Request, Version
from ..jsonrpc.options import nearest_name
from ..jsonrpc.scanner import too_deep, unholdable
from ..repeats import Repeats
from .declared import sendable_data

logger: logging.Logger = logging.getLogger("dragoman")
repeats: Repeats = Repeats(logger)
_LONGEST_NAME = 128
"""Characters of the longest name for which a near one is looked for."""


def _sendable(id: Any, dialect: Dialect) -> Any:
    """Return the id as an error of this dialect has it. UNSET, which is left out, where the dialect has no null id and
    the id is null or a number that is no integer."""
    if dialect.null_id or type(id) is not Raw:
        return id
    text = bytes(id)
    return UNSET if text == b"null" or not text.lstrip(b"-").isdigit() else id


class Debug(Struct):
    """Whether reasons and exceptions are sent to callers: one switch for a service and its copies under other
    limits."""

    on: bool = False


class ErrorAnswers(Struct, frozen=True):
    """The error answers of one service."""

    limits: Limits
    switch: Debug = field(default_factory=Debug)
    dialect: Dialect = PLAIN

    def unknown(
        self, message: Request | Notification, known: Callable[[], Iterable[str]] = tuple
    ) -> FailedAnswer | None:
        """Return -32601 for an unknown method, or -32700 if the params hold a number that no double holds; None for a
        notification. `known`: returns the names that this caller may see, of which the nearest is proposed in debug
        mode."""
        if type(message) is Notification:
            return None
        if message.params is not UNSET and (fault := unholdable(message.params)) is not None:
            error = RpcError.of(PARSE_ERROR, "Parse error", self._reason(fault))
            return self._error(error, message.version)
        data = None
        if self.switch.on:
            near = nearest_name(message.method, known()) if len(message.method) <= _LONGEST_NAME else ""
            meant = f"; did you mean {near}?" if near else ""
            data = self._reason(f"there is no method {message.method!r}{meant}")
        return failed_answer(message.id, RpcError.of(METHOD_NOT_FOUND, "Method not found", data), message.version)

    def malformed(self, message: Malformed, dialect: Dialect | None = None) -> FailedAnswer:
        """Return the answer to a malformed message; it has no text if the message must not be answered."""
        dialect = dialect or self.dialect
        if message.refusal is not None:
            error = dialect.error(message.refusal)
        elif message.kind == "parse":
            error = RpcError.of(PARSE_ERROR, "Parse error", self._reason(message.reason))
        else:
            error = RpcError.of(INVALID_REQUEST, "Invalid Request", self._reason(message.reason))
        if not message.answerable:
            return unsent_failure(error, message.refusal)
        return failed_answer(_sendable(message.id, dialect), error, message.version, refusal=message.refusal)

    def no_batch(self, dialect: Dialect | None = None) -> FailedAnswer:
        """Return -32600, the answer to a batch in a dialect that has none."""
        error = RpcError.of(INVALID_REQUEST, "Invalid Request: one message at a time; this protocol has no batches")
        return failed_answer(_sendable(NULL, dialect or self.dialect), error, refusal=Refusal("unfit", "no batches"))

    def oversized(self, size: int) -> FailedAnswer:
        """Return the answer to a message above `limits.message_size`, which was not read. `size`: its bytes."""
        refusal = too_large("message_size", self.limits.message_size, size)
        return self._error(self.dialect.error(refusal), refusal=refusal)

    def _error(self, error: RpcError, version: Version = "2.0", refusal: Refusal | None = None) -> FailedAnswer:
        """Return the answer to a request whose id could not be read."""
        return failed_answer(None if self.dialect.null_id else UNSET, error, version, refusal=refusal)

    def refused(self, message: Message, refusal: Refusal, dialect: Dialect | None = None) -> FailedAnswer:
        """Return the answer to a message of which nothing is begun."""
        error = (dialect or self.dialect).error(refusal)
        if isinstance(message, Notification):
            return unsent_failure(error, refusal)
        if isinstance(message, Request):
            return failed_answer(message.id, error, message.version, refusal=refusal)
        return failed_answer(NULL, error, refusal=refusal)

    def failed(
        self,
        message: Request | Notification,
        error: BaseException,
        dialect: Dialect | None = None,
        refusal: Refusal | None = None,
    ) -> FailedAnswer:
        """Return the answer to a call whose method raised. An exception other than RpcError is logged under a
        reference; an UnfitCaller is logged, and the caller receives its `answer`. `refusal`: why nothing was begun;
        CallRefused brings its own.

        Raises KeyboardInterrupt, which is no failure of the method.
        """
        if isinstance(error, KeyboardInterrupt):
            raise error
        ended: Refusal | None = None
        if isinstance(error, CallRefused):
            refusal = error.refusal
        if isinstance(error, UnfitCaller):
            repeats.error("method %r failed: %s", message.method, error, exc_info=error)
            error = error.answer
            ended = error.refusal if isinstance(error, CallRefused) else None
        if isinstance(error, CallRefused):
            error = (dialect or self.dialect).error(error.refusal)
        if not isinstance(error, RpcError):
            error = self._masked(message.method, error)
        if type(message) is Notification:
            logger.debug("notification %r failed: %s", message.method, error)
            return unsent_failure(error, refusal)
        id = NULL if error.code == PARSE_ERROR and not error.remote else message.id
        id = _sendable(id, dialect or self.dialect)
        try:
            data = sendable_data(error)
            if data is not error.data:
                error = RpcError.of(error.code, error.message, data)
            answer = failed_answer(id, error, message.version, refusal=refusal, ended=ended)
            fitted = self.fitting(message, answer.text or b"")
            if type(fitted) is FailedAnswer:  # a shorter error, which refuses as the long one did
                answer = replace(fitted, refusal=refusal, ended=ended)
            return answer
        except LocalError as fault:
            masked = self._masked(message.method, fault)
            return failed_answer(id, masked, message.version, refusal=refusal, ended=ended)

    def fault(self, message: Message, error: Exception, dialect: Dialect | None = None) -> AnyAnswer:
        """Return the answer to a message for which our own code raised; None if none is owed."""
        if isinstance(message, Batch):
            found = [self.failed(one, error, dialect).text for one in message.messages if isinstance(one, Request)]
            return join(filter(None, found)) if found else None
        if isinstance(message, Request | Notification):
            return self.failed(message, error, dialect)
        logger.error("a fault on the way of a message", exc_info=error)
        return None

    def faulty(
        self,
        raw: bytes,
        error: Exception,
        respond: Callable[[AnyAnswer], object],
        dialect: Dialect | None = None,
    ) -> None:
        """Answer the requests in a text for which our own code raised."""
        batched, requests_in = requests(raw)
        found = [self.failed(message, error, dialect) for message in requests_in]
        if not requests_in:
            logger.error("a fault on the way of a message", exc_info=error)
        if batched and found:
            respond(join(filter(None, map(text_of, found))))
        else:
            respond(found[0] if found else None)

    def _masked(self, method: str, error: BaseException) -> RpcError:
        """Log an exception under a reference, and return the error that tells the caller the reference alone."""
        reference = os.urandom(6).hex()
        logger.error("method %r failed, reference %s", method, reference, exc_info=error)
        data: dict[str, Any] = {"reference": reference}
        if self.switch.on:
            data["exception"] = f"{type(error).__name__}: {error}"
            data["traceback"] = traceback.format_exception(error)
        return InternalError(data=data)

    def _reason(self, reason: str) -> Any:
        """Return the reason as `error.data` in debug mode, else None, as in the specification's examples."""
        return {"reason": reason} if self.switch.on else None

    def fitting(self, message: Request, answer: bytes, *, shallow: bool = False) -> bytes | FailedAnswer:
        """Return the answer, or an error if it is above `limits.response_size` or `limits.depth`. `shallow`: its depth
        is known to be small."""
        limits = self.limits
        size = len(answer)
        if size <= limits.response_size and size <= 2 * limits.depth:
            return answer
        if size > limits.response_size:
            refusal = too_large("response_size", limits.response_size, size)
        elif not shallow and too_deep(answer, limits.depth):
            refusal = too_large("depth", limits.depth, None, "levels")
        else:
            return answer
        return failed_answer(message.id, self.dialect.error(refusal), message.version)

    def batch(self, answers: Sequence[bytes], size: int) -> bytes | FailedAnswer:
        """Return answers as one batch of `size` bytes, or one error if that is above `limits.response_size`."""
        if size <= self.limits.response_size:
            return join(answers)
        return self._error(self.dialect.error(too_large("response_size", self.limits.response_size, size)))
