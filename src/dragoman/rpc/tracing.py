"""The trace: what every message of both directions became, for a file, a screen or a test. An `Observer` that gives a
hook an `Event` for each.

Rules:

- One `Event` when a call passes ("started") and one when its answer passes ("complete") or can no longer come
  ("failed"). A notification and an answer that no call waits for are "complete" at once; what is not a message is
  "failed".
- A batch is one message: it starts once, and is complete when none of its calls is open. Its elements are not reported.
- The hook runs on the event loop, in the order of the wire, and must be quick. One that raises is logged once and goes
  on being called: it never harms the wire.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from ..doors import public_dir
from ..jsonrpc.limits import KIB
from ..observer import Direction, Observation, Outcome, Rejection

__all__ = ["SECRETS", "Event", "Hook", "Trace", "json_lines"]
__dir__: Callable[[], list[str]] = public_dir(__name__)

_NO_MESSAGES: Final = frozenset({"detached", "stream"})
_NAMES: Final = 5
"""Methods of a batch that are named."""
_CANCELLED: Final = -32800
"""The code by which LSP's peers answer a call that was cancelled."""


class Event(Struct, frozen=True, kw_only=True):
    """Something happened to a message."""

    kind: Literal["started", "complete", "failed"]
    """"started" where an answer is owed, and then "complete" or "failed"."""
    time: float
    """Unix seconds, by the clock on the wall."""
    seconds: float | None = None
    """How long the call took, by the monotonic clock; None where nothing was waited for."""
    channel: str
    """Which channel, by a name that stays: wire, far end, number, as in "tcp:127.0.0.1:54321#3"."""
    direction: Direction
    """Which way `message` went: "in" to us, "out" from us; its answer goes the other way."""
    message: bytes
    """Its text as it passed; empty for what a framing threw away, and for an element of a batch within a session."""
    method: str | None = None
    """The method; of a batch: "batch(subtract, sum)"; of a response: None."""
    id: str | None = None
    """The id as JSON text; None where there is none, and for batches."""
    outcome: str | None = None
    """"answered", "error -32601", "cancelled", "notified", "ignored" (an answer that is not waited for); of what
    failed, the reason: "ended: ...", "failed: ...", or what is wrong with the text."""
    answer: bytes | None = None
    """The answer to `message`, as it passed."""
    status: Outcome | None = None
    """How it ended, in the word of `Observation.outcome`; None where it goes on."""
    code: int | None = None
    """The code of the error that answered it."""
    service: str = ""
    """The name of the service that it is for; on the way out that of the service at this end."""
    target: str = ""
    """The tool, prompt or resource of MCP that was found for it; known once it has ended."""
    session: str = ""
    """The name of the MCP session over HTTP that it belongs to, which is not its id."""
    principal: str = ""
    """The subject of the far end's identity; "" without one."""


Hook: TypeAlias = Callable[[Event], object]


class Trace:
    """An `Observer` that gives `hook` its events."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def __repr__(self) -> str:
        return f"Trace({self._hook!r})"

    def came_in(self, seen: Observation) -> None:
        """A call or a batch of some starts; a notification is done."""
        if seen.batch is not None:
            return
        if seen.kind == "request" or seen.calls:
            self._tell("started", seen)
        elif seen.kind == "notification":
            self._tell("complete", seen, "notified")

    def outbound(self, seen: Observation) -> None:
        """Nothing is added."""

    def started(self, seen: Observation) -> None:
        """Trace a message that goes out; one that came in was traced before."""
        if seen.direction == "out" and seen.batch is None and (seen.kind == "request" or seen.calls):
            self._tell("started", seen)

    def ended(self, seen: Observation) -> None:
        """All but what was reported at once."""
        if (
            seen.batch is not None
            or seen.kind in _NO_MESSAGES
            or (seen.kind == "notification" and seen.direction == "in")
        ):
            return
        if seen.direction == "out" and seen.started is None:
            return  # it never became a message
        failed = seen.outcome in ("lost", "failed", "dropped") or seen.kind == "malformed" or seen.answer is None
        done = seen.outcome in ("notified", "ignored")
        self._tell("failed" if failed and not done else "complete", seen, _outcome(seen))

    def rejected(self, seen: Rejection) -> None:
        """Trace something that is not a message."""

    def _tell(
        self, kind: Literal["started", "complete", "failed"], seen: Observation, outcome: str | None = None
    ) -> None:
        waited = kind != "started" and (seen.kind == "request" or seen.calls)
        identity = seen.caller.identity
        self._hook(
            Event(
                kind=kind,
                time=time.time(),
                seconds=seen.seconds if waited else None,
                channel=f"{seen.caller.scheme}:{seen.caller.remote}#{seen.channel}",
                direction=seen.direction,
                message=seen.message,
                method=_method(seen),
                id=_id(seen),
                outcome=outcome,
                answer=seen.answer,
                status="notified" if outcome == "notified" else seen.outcome,
                code=seen.code,
                service=seen.service,
                target=seen.target,
                session=seen.session,
                principal="" if identity is None else identity.subject,
            )
        )


def _method(seen: Observation) -> str | None:
    if seen.kind != "batch":
        return seen.method or None
    names = seen.methods
    more = [f"{len(names) - _NAMES} more"] if len(names) > _NAMES else []
    return f"batch({', '.join([*names[:_NAMES], *more])})" if names else None


def _id(seen: Observation) -> str | None:
    if seen.id is UNSET:
        return None
    return (
        bytes(seen.id).decode("utf-8", "replace") if isinstance(seen.id, Raw) else msgspec.json.encode(seen.id).decode()
    )


def _outcome(seen: Observation) -> str:
    """How it ended, in the words of `Event.outcome`."""
    if seen.kind == "malformed":
        return seen.reason
    match seen.outcome:
        case "lost":
            return f"ended: {seen.reason}"
        case "notified" | "ignored" | "dropped" | "cancelled":
            return seen.outcome
        case _ if seen.answer is None:
            return f"failed: {seen.reason}"
    codes = [one.code for one in seen.elements if one.kind == "request" and one.code is not None]
    if seen.calls > 1 and codes:
        return f"answered, {len(codes)} of {seen.calls} with errors"
    code = seen.code if seen.code is not None else codes[0] if codes else None
    if code is None:
        return "answered"
    return "cancelled" if code == _CANCELLED else f"error {code}"


# -- JSON Lines -----------------------------------------------------------------------------------

SECRETS = (
    "password",
    "passwd",
    "secret",
    "token",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "privatekey",
)
"""Parts of names whose values are not written down; case, "-" and "_" do not count."""
SHOWN = 4 * KIB
"""Characters of a message that are written down."""
_MOST: Final = 4 * SHOWN
"""Bytes that such text may take."""
_ESCAPED: Final = r"\\u00[4-7]"
"""How JSON may write an ASCII letter of a name, too."""


def json_lines(write: Callable[[str], object], *, mask: Iterable[str] = SECRETS) -> Hook:
    """A hook that gives `write` one line of JSON for each event, with its line end.

    Members: time, channel, direction, kind, method, id, bytes (of the message), message, answer, outcome, ms.
    What of a message is shown, `masking` says.
    """
    text = masking(mask)

    def hook(event: Event) -> None:
        line = {
            "time": round(event.time, 6),
            "channel": event.channel,
            "direction": event.direction,
            "kind": event.kind,
            "method": event.method,
            "id": None if event.id is None else Raw(event.id.encode()),
            "bytes": len(event.message),
            "message": text(event.message),
            "answer": None if event.answer is None else text(event.answer),
            "outcome": event.outcome,
            "ms": None if event.seconds is None else round(event.seconds * 1000, 3),
        }
        write(msgspec.json.encode(line).decode() + "\n")

    return hook


def masking(mask: Iterable[str] = SECRETS, *, whole: int | None = None) -> Callable[[bytes], str]:
    """Return the function that makes of a message the text that may be shown: `SHOWN` characters at most, and then
    that there are more.

    Values of members whose names hold a word of `mask` are written as "***", at any depth of params, results
    and error data; but a number under a name with "token" is a count or a progress token and is shown. Text
    that is not JSON is cut off after the first such word, or letter that is written as an escape: a name may be.
    Positional params have no names and are shown. `whole`: bytes of a message that is read as JSON; of a longer one
    what is shown is taken for text that is not. None: each is read.
    """
    words = tuple(flat for word in mask if (flat := _flat(word)))
    names = ["[-_]*".join(map(re.escape, word)) for word in words]
    likely = re.compile("|".join([*names, _ESCAPED] if names else [r"(?!)"]), re.IGNORECASE)

    def secret(name: str, value: object) -> bool:
        found = [word for word in words if word in _flat(name)]
        if isinstance(value, int | float):
            found = [word for word in found if word != "token"]
        return bool(found) and value is not None

    def cut(shown: str) -> str:
        first = likely.search(shown, 0, SHOWN)
        return shown[:SHOWN] if first is None else f"{shown[: first.end()]}***"

    def text(raw: bytes) -> str:
        if whole is not None and len(raw) > whole:
            return f"{cut(raw[:_MOST].decode('utf-8', 'replace'))}... ({len(raw)} bytes in all)"
        shown = raw.decode("utf-8", "replace")
        flat = _flat(shown)
        if "\\u" in shown or any(word in flat for word in words):
            try:
                value = msgspec.json.decode(raw)
                if _hide(value, secret):
                    shown = msgspec.json.encode(value).decode()
            except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
                if likely.search(shown, 0, SHOWN) is not None:
                    shown = cut(shown)
        return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}... ({len(raw)} bytes in all)"

    return text


def _flat(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _hide(value: object, secret: Callable[[str, object], bool]) -> bool:
    """Replace the secret values within `value`, also in texts that are JSON themselves, as tools of MCP return them;
    whether there were any. No recursion but for those, which halve with each level: depth is the sender's choice."""
    hidden = False
    pending = [value]
    while pending:
        item = pending.pop()
        if not isinstance(item, list | dict):
            continue
        members = list(item.items()) if isinstance(item, dict) else list(enumerate(item))
        for name, inner in members:
            if isinstance(name, str) and secret(name, inner):
                shown: object = "***"
            elif isinstance(inner, str):
                shown = _hide_in_text(inner, secret)
            else:
                pending.append(inner)
                continue
            if shown is not inner:
                item[name] = shown
                hidden = True
    return hidden


def _hide_in_text(text: str, secret: Callable[[str, object], bool]) -> str:
    """Return a text that is a JSON object or array with its secret values replaced; any other as it is."""
    if text[:1] not in ("{", "["):
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return text
    return msgspec.json.encode(value).decode() if _hide(value, secret) else text
