"""How a channel ends: `Ended`, `Closed`, `Broken`, and the reason in a word. `channel` exports these names."""

from __future__ import annotations

from typing import Any, Literal, Self, TypeAlias, TypeVar

E = TypeVar("E", bound=Exception)

Reason: TypeAlias = Literal[
    "unresolved",
    "refused",
    "unreachable",
    "late",
    "no_socket",
    "denied",
    "not_tls",
    "untrusted",
    "wrong_name",
    "expired",
    "certificate_wanted",
    "tls",
    "reset",
    "hung_up",
    "not_websocket",
    "login",
    "other",
]
"""Why a connection failed, for programs. `hung_up`: the far end closed it without an answer; `login`: only a
person can go on, by logging in."""


class ChannelError(ConnectionError):
    """A channel is over, so nothing more can be sent; the text says why."""

    reason: Reason = "other"
    """The reason in a word, for programs; "other" where there is none."""

    def because(self, reason: Reason) -> Self:
        """Set the reason and return this error, to be raised."""
        self.reason = reason
        return self


class Ended(ChannelError):
    """The far end finished: end of file, a close frame, the child's exit."""


class EndedUnread(Ended):
    """The far end finished before it had read anything that we sent. Our message was not the cause, so it would not
    help to try again."""


class Closed(ChannelError):
    """We closed it ourselves."""


class Broken(ChannelError):
    """The wire failed: reset, refused, a stalled write, a failed handshake."""


def again(why: E) -> E:
    """Return a copy of an ending, to be raised: one instance that is raised again and again would collect tracebacks
    and contexts, and everything that their frames hold. The copy is not made by `__init__`, whose arguments need not be
    the exception's `args`."""
    arguments: Any = why.__reduce__()[1]  # `args`, and what OSError keeps beside them
    copied = type(why).__new__(type(why), *arguments)
    vars(copied).update(vars(why))
    return copied
