"""The changes and the topics' notifications for one session, read from the log that replicas share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...rpc.channel_peer import ChannelPeer
from ..protocol.uri_template import above
from .changes import ChangeEvent, ChangeHub, HubEvent, TopicEvent
from .record import SessionRecord, Snapshot
from .shared import Replica


class MissedChanges:
    """Finds the events that concern a session and that it has not got. `record`: returns the session's record; None:
    there is none now."""

    def __init__(
        self, shared: Replica, hub: ChangeHub, peer: ChannelPeer, record: Callable[[], SessionRecord | None]
    ) -> None:
        self._shared = shared
        self._hub = hub
        self._peer = peer
        self._record = record

    @property
    def latest(self) -> int:
        """The number of the last change that is known here."""
        return self._shared.events

    @property
    def restarts(self) -> int:
        """How often the numbers of changes have begun at 1 again."""
        return self._shared.restarts

    async def ready(self) -> None:
        """Wait until it is known which topics' notifications concern the session."""
        await self._hub.keys_known(self._peer)

    async def since(self, number: int) -> list[bytes]:
        """Read the notifications of the later events that concern the session, each change once. Raises BusLost."""
        record = self._record()
        if record is None or record.whole.initialized is None:
            return []
        number = max(number, record.whole.initialized)
        if self.latest <= number:
            return []
        found = await self._shared.past_events(number)
        # where changes are no longer kept, anything may have changed
        complete = bool(found) and found[0][0] == number + 1
        events = _concerning(record.whole, found) if complete else _all_changes(record.whole, found)
        messages: dict[bytes | TopicEvent, bytes] = {}
        for event in events:
            if self._hub.concerns(event, self._peer):
                message = self._hub.written(event)
                messages.setdefault(event if isinstance(event, TopicEvent) else message, message)
        return [*messages.values()]


def _concerning(whole: Snapshot, found: list[tuple[int, HubEvent]]) -> Iterator[HubEvent]:
    """Yield the events, without changes of resources to which the session subscribed only later."""
    for number, event in found:
        since = 0
        if isinstance(event, ChangeEvent) and event.kind == "updated":
            since = min((whole.uris[uri] for uri in above(event.uri) if uri in whole.uris), default=number)
        if number > since:
            yield event


def _all_changes(whole: Snapshot, found: list[tuple[int, HubEvent]]) -> Iterator[HubEvent]:
    yield from (ChangeEvent("tools"), ChangeEvent("prompts"), ChangeEvent("resources"))
    yield from (ChangeEvent("updated", uri) for uri in whole.uris)
    yield from (event for _, event in found if isinstance(event, TopicEvent))
