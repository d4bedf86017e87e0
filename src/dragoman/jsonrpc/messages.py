"""The messages of JSON-RPC as frozen values.

What was decoded keeps `params`, `id`, `result` and `error.data` as `msgspec.Raw`: JSON text that
was checked but not yet turned into objects, so that an id comes back as it was sent and params
are decoded once, straight into what a method takes. What you build yourself may hold any JSON value.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, final

from msgspec import UNSET, Raw, Struct

from .errors import Refusal

Version: TypeAlias = Literal["2.0", "1.0"]

NULL = Raw(b"null")


@final
class Request(Struct, frozen=True, gc=False):
    """A call that wants an answer (specification 4). `id`: string, number or null; `params`: array, object or UNSET."""

    method: str
    params: Any = UNSET
    id: Any = NULL
    version: Version = "2.0"

    @property
    def is_notification(self) -> bool:
        """False: a request has an id."""
        return False

    @property
    def is_internal(self) -> bool:
        """True for a name that begins with `rpc.`, which the specification reserves (4.3)."""
        return self.method.startswith("rpc.")


@final
class Notification(Struct, frozen=True, gc=False):
    """A call that wants no answer (specification 4.1): there is no id."""

    method: str
    params: Any = UNSET
    version: Version = "2.0"

    @property
    def is_notification(self) -> bool:
        """True: nothing is answered."""
        return True

    @property
    def is_internal(self) -> bool:
        """True for a name that begins with `rpc.`, which the specification reserves (4.3)."""
        return self.method.startswith("rpc.")


class ErrorObject(Struct, frozen=True, gc=False):
    """The `error` member of a response (specification 5.1). `name`: the word where a peer sent one for the code."""

    code: int
    message: str
    data: Any = UNSET
    name: str | None = None


@final
class Result(Struct, frozen=True, gc=False):
    """A response that went well (specification 5)."""

    result: Any
    id: Any
    version: Version = "2.0"


@final
class Failure(Struct, frozen=True, gc=False):
    """A response that says what went wrong (specification 5.1). `id` is null where the request's could not be read."""

    error: ErrorObject
    id: Any = NULL
    version: Version = "2.0"


@final
class Malformed(Struct, frozen=True, gc=False):
    """What came is no message: why, and the id where one could be read.

    `kind` is "parse" (-32700), "invalid" (-32600) or "too_large" (`refusal` has the numbers).
    `answerable` is False for what looks like a response, which is never answered, and for a notification that a
    limit refuses; the notification's `id` is UNSET.
    `spoils` is the id of the call that a text would have answered, were it not for a value in it that cannot be read.
    """

    kind: Literal["parse", "invalid", "too_large"]
    reason: str
    id: Any = NULL
    answerable: bool = True
    version: Version = "2.0"
    refusal: Refusal | None = None
    spoils: Any = None


@final
class Batch(Struct, frozen=True, gc=False):
    """Several messages in one array (specification 6); never empty when decoded."""

    messages: tuple[Request | Notification | Result | Failure | Malformed, ...]


Response: TypeAlias = Result | Failure
"""Either kind of answer; works with isinstance."""
Single: TypeAlias = Request | Notification | Result | Failure | Malformed
Message: TypeAlias = Single | Batch
