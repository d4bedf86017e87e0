"""The messages of JSON-RPC as frozen values.

Decoded messages keep `params`, `id`, `result` and `error.data` as `msgspec.Raw`: JSON text that
is checked but not yet turned into objects. So an id is sent back as it came, and params
are decoded once, straight into the types of a method. Messages that you build may hold any JSON value.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, final

from msgspec import UNSET, Raw, Struct

from .condensed import Condensed
from .errors import Refusal

Version: TypeAlias = Literal["2.0", "1.0"]

NULL = Raw(b"null")


@final
class Request(Struct, frozen=True):  # no gc=False: params may refer to their call
    """A call with an answer (specification 4). `id`: string, number or null; `params`: array, object or UNSET."""

    method: str
    """The name of the method."""
    params: Any = UNSET
    id: Any = NULL
    version: Version = "2.0"
    """"1.0" for a message of JSON-RPC 1.0, which `Leniency.accept_v1` accepts."""
    condensed: Condensed | None = None
    """Its long params, as `codec.read` condenses them for the decoder of its method."""

    @property
    def is_notification(self) -> bool:
        """False: a request has an id."""
        return False

    @property
    def is_internal(self) -> bool:
        """True for a name that begins with `rpc.`, which the specification reserves (4.3)."""
        return self.method.startswith("rpc.")


@final
class Notification(Struct, frozen=True):  # no gc=False, as for Request
    """A call without an answer (specification 4.1): it has no id."""

    method: str
    """The name of the method."""
    params: Any = UNSET
    """An array, an object or UNSET."""
    version: Version = "2.0"
    """"1.0" for a message of JSON-RPC 1.0, which `Leniency.accept_v1` accepts."""

    @property
    def is_notification(self) -> bool:
        """True: it gets no answer."""
        return True

    @property
    def is_internal(self) -> bool:
        """True for a name that begins with `rpc.`, which the specification reserves (4.3)."""
        return self.method.startswith("rpc.")


class ErrorObject(Struct, frozen=True, gc=False):
    """The `error` member of a response (specification 5.1). `name`: the code as a string, if the peer sent one."""

    code: int
    """An integer; -32768 to -32000 are reserved by the specification."""
    message: str
    """One sentence."""
    data: Any = UNSET
    """Any JSON value, or UNSET."""
    name: str | None = None


@final
class Result(Struct, frozen=True, gc=False):
    """A response to a call that succeeded (specification 5)."""

    result: Any
    """Any JSON value."""
    id: Any
    """The id of the request."""
    version: Version = "2.0"
    """"1.0" for a message of JSON-RPC 1.0, which `Leniency.accept_v1` accepts."""


@final
class Failure(Struct, frozen=True, gc=False):
    """A response to a call that failed (specification 5.1). `id` is null if the request's id could not be read."""

    error: ErrorObject
    """Its code, message and data."""
    id: Any = NULL
    version: Version = "2.0"
    """"1.0" for a message of JSON-RPC 1.0, which `Leniency.accept_v1` accepts."""


@final
class Malformed(Struct, frozen=True, gc=False):
    """Bytes that are not a message: why, and the id if one could be read.

    `kind` is "parse" (-32700), "invalid" (-32600) or "too_large" (`refusal` has the numbers). `answerable` is False for
    text that looks like a response, which is never answered, and for a notification that a limit refuses; the
    notification's `id` is UNSET. `spoils` is the id of the call that a response would have answered, if all its values
    could be read.
    """

    kind: Literal["parse", "invalid", "too_large"]
    reason: str
    """Why, in words, with the position."""
    id: Any = NULL
    answerable: bool = True
    version: Version = "2.0"
    """The version of the message that it seems to be."""
    refusal: Refusal | None = None
    spoils: Any = None
    batch: bool = False
    """It looks like the answer to a batch, of which it shows this id: it spoils all of that batch."""


@final
class Batch(Struct, frozen=True, gc=False):
    """Several messages in one array (specification 6); never empty when decoded."""

    messages: tuple[Request | Notification | Result | Failure | Malformed, ...]
    """In the order of the array; an element that is not a message is `Malformed`."""


Response: TypeAlias = Result | Failure
"""Either kind of answer; works with isinstance."""
Single: TypeAlias = Request | Notification | Result | Failure | Malformed
Message: TypeAlias = Single | Batch
