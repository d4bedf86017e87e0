"""Plays the server to a receiver of webhooks, for whoever writes one: a challenge, and then one event."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec
from msgspec import Struct, field

from ....events.outbox import KeptEvent
from ....jsonrpc.errors import LocalError
from .challenging import ask_challenge
from .delivery import message_id
from .model import SUBSCRIPTION_HEADER
from .occurrences import occurrence_of
from .receiver import is_id
from .sender import Outcome, Resolve, WebhookSender, look_up
from .signing import MAX_ID, sign_headers

CURSOR = "trial.0000000000001"
"""The position after the event, which a receiver only keeps."""


class TrialEvent(Struct, frozen=True, kw_only=True):
    """An event that is posted, and the subscription that it belongs to. `data`: JSON text of an object; `timestamp`:
    Unix seconds."""

    subscription: str
    id: str
    name: str
    data: bytes
    timestamp: float
    profile: Literal["sep", "chatgpt"] = "sep"

    @property
    def body(self) -> bytes:
        """The body of its post."""
        return msgspec.json.encode(occurrence_of(self.name, KeptEvent(1, self.id, self.timestamp, self.data), CURSOR))


class TrialReport(Struct, frozen=True):
    """What came back. `event`: None if the challenge was not returned, so that no event was sent."""

    challenge: Outcome
    event: Outcome | None = None


class LookedUp(Struct):
    """Looks a receiver's name up as `look`, and keeps what was found: why there is nothing is no part of an outcome."""

    look: Resolve = look_up
    addresses: list[str] = field(default_factory=list)
    error: OSError | UnicodeError | None = None

    async def resolve(self, host: str, port: int) -> Collection[str]:
        """Return the addresses of a host. Raises OSError."""
        try:
            self.addresses = list(await self.look(host, port))
        except (OSError, UnicodeError) as error:
            self.error = error
            raise
        return self.addresses


async def try_receiver(sender: WebhookSender, url: str, secret: str, event: TrialEvent) -> TrialReport:
    """Challenge the receiver at a URL as a server does when somebody subscribes, then post the event once. Raises
    LocalError for a URL that may not be posted to, and for an invalid secret or id."""
    for id in (event.id, event.subscription):
        if not is_id(id):
            raise LocalError(f"an id has 1 to {MAX_ID} visible ASCII characters, and not {id[:80]!r}")
    body = event.body
    id = message_id(event.subscription, event.id, declared=event.profile == "sep")
    headers = sign_headers(secret, id, int(event.timestamp), body) | {SUBSCRIPTION_HEADER: event.subscription}
    connection = sender.connect(sender.read_url(url))
    try:
        challenge = await ask_challenge(connection, secret, event.subscription, event.timestamp)
        if challenge.reason is not None:
            return TrialReport(challenge)
        return TrialReport(challenge, await connection.post(body, headers))
    finally:
        await connection.close()
