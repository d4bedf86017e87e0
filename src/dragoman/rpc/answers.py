"""Answers that are no result: what a service says of failures, of what is no message, and of what does not fit.

What crosses the wire is what the specification prints; what is internal stays in the log, under a
reference. With `debug` reasons and exceptions cross too.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct

from ..jsonrpc.codec import failure, join, unholdable
from ..jsonrpc.errors import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    PLAIN,
    Dialect,
    InternalError,
    LocalError,
    RpcError,
    too_large,
)
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import Malformed, Notification, Request

logger = logging.getLogger("dragoman")


class Answers(Struct, frozen=True):
    """How one service answers where there is no result."""

    limits: Limits
    debug: bool = False

    def unknown(self, message: Request | Notification) -> bytes | None:
        """-32601, or -32700 when the params hold a number that no double holds."""
        if type(message) is Notification:
            return None
        if message.params is not UNSET and (fault := unholdable(message.params)) is not None:
            return self._error(RpcError.of(PARSE_ERROR, "Parse error", self._reason(fault)))
        error = RpcError.of(
            METHOD_NOT_FOUND, "Method not found", self._reason(f"there is no method {message.method!r}")
        )
        return failure(message.id, error, message.version)

    def malformed(self, message: Malformed, dialect: Dialect = PLAIN) -> bytes | None:
        """The answer to what is no message; None for a response, which is never answered."""
        if not message.answerable:
            return None
        if message.refusal is not None:
            error = dialect.error(message.refusal)
        elif message.kind == "parse":
            error = RpcError.of(PARSE_ERROR, "Parse error", self._reason(message.reason))
        else:
            error = RpcError.of(INVALID_REQUEST, "Invalid Request", self._reason(message.reason))
        return failure(message.id, error, message.version)

    def oversized(self, size: int) -> bytes:
        """The answer to a message above `limits.message_size`, which was not read."""
        return self._error(PLAIN.error(too_large("message_size", self.limits.message_size, size)))

    def _error(self, error: RpcError) -> bytes:
        """An error for a request whose id could not be read."""
        return failure(None, error)

    def failed(self, message: Request | Notification, error: BaseException) -> bytes | None:
        """The answer when a method raised. What is no RpcError stays here, in the log, under a reference.

        KeyboardInterrupt is nothing of the method's: it goes on.
        """
        if isinstance(error, KeyboardInterrupt):
            raise error
        if not isinstance(error, RpcError):
            error = self._masked(message.method, error)
        if type(message) is Notification:
            logger.debug("notification %r failed: %s", message.method, error)
            return None
        id = None if error.code == PARSE_ERROR and not error.remote else message.id
        try:
            return self.fitting(message, failure(id, error, message.version))
        except LocalError as fault:
            return failure(message.id, self._masked(message.method, fault), message.version)

    def _masked(self, method: str, error: BaseException) -> RpcError:
        reference = os.urandom(6).hex()
        logger.error("method %r failed, reference %s", method, reference, exc_info=error)
        data: dict[str, Any] = {"reference": reference}
        if self.debug:
            data["exception"] = f"{type(error).__name__}: {error}"
            data["traceback"] = traceback.format_exception(error)
        return InternalError(data=data)

    def _reason(self, reason: str) -> Any:
        """The reason as `error.data` where texts may cross the wire; the specification's examples have none."""
        return {"reason": reason} if self.debug else UNSET

    def fitting(self, message: Request | Notification, answer: bytes) -> bytes:
        """The answer, or an error when it is above `limits.response_size`."""
        if len(answer) <= self.limits.response_size or type(message) is Notification:
            return answer
        refusal = too_large("response_size", self.limits.response_size, len(answer))
        return failure(message.id, PLAIN.error(refusal), message.version)

    def batch(self, answers: Sequence[bytes], size: int) -> bytes:
        """Answers as one batch of so many bytes, or one error when that is above `limits.response_size`."""
        if size <= self.limits.response_size:
            return join(answers)
        return self._error(PLAIN.error(too_large("response_size", self.limits.response_size, size)))
