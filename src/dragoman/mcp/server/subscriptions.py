"""Notifies clients of changes and of extensions' topics: one hub for both eras.

Rules:

- Stateless (basic/patterns/subscriptions): `subscriptions/listen` is a long call. Its first message is the
  acknowledgment, which lists the changes of which it will notify; every message has the call's id; only requested
  changes are notified; when the server ends the call, it sends the result.
- Stateful: an initialized session is notified of changed lists, and of the resources to which it subscribed.
- A notification of a change only makes the client read again. So several equal changes in one turn of the loop are sent
  once, and for a slow reader each waits once (`held` counts that); a session that accepts none for long loses them
  (`dropped`). A reader that is far behind is notified of the resource to which it subscribed, instead of those below.
- A change of a list is sent only to those who may see the entry that changed.
- A subscription to a resource includes the resources below it (whose URI continues after a slash).
- A notification of a topic has content: each is sent, in order, to those who were granted its key. Those that wait for
  a slow reader are bounded (`WAITING`), and counted in the server's budget; the oldest are dropped.
- The keys of a subscription are granted with the call. Those of a session are granted once, when it is initialized (at
  each replica that it comes to), since otherwise each notification would cost as many grants as there are sessions.
- Every event comes in at `changed`, `updated` or `notify`, from any thread. With replicas (`spread`) it is sent to the
  others too, and their events come in at `take`. A session that several replicas know gets an event once, by its
  number."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from threading import Lock
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct

from ...channel import Caller
from ...jsonrpc.budget import Account, Budget, BudgetAdmission
from ...jsonrpc.call_limit import busy
from ...jsonrpc.codec import CallMessage
from ...jsonrpc.errors import InternalError, InvalidParams, Refusal, RpcError, too_large
from ...observer import Connection
from ...repeats import Repeats
from ...rpc.context import Context
from ..protocol.admission import Admitted, SessionState
from ..protocol.dialect import MCP
from ..protocol.extension import Topic
from ..protocol.params import SubscriptionFilter, SubscriptionsListenResult
from ..protocol.results import finish
from ..protocol.types import SUBSCRIPTION_ID
from ..protocol.uri_template import above
from ..session.changes import ChangeEvent, ChangeKind, Changes, EntryId, HubEvent, TopicEvent, Visible, sees
from .capabilities import Capabilities
from .extending.extension import ServerExtensions
from .extending.topics import GrantedTopics, TopicGrants, TopicKey, with_meta
from .registry import Registry

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

FIRST_DELAY = 0.05
LAST_DELAY = 2.0
"""Seconds between two tries to notify a slow reader: the first, and the longest."""
UNCOUNTED = 4 * 1024
"""Bytes of a session's subscriptions that the server's budget does not count; what has more is counted in whole."""
_OVERHEAD = 512
"""Bytes that a subscription takes beside the characters of its URI or key."""
WAITING: Final = 256
"""Topics' notifications that wait for one slow reader at most, as many as requests may wait on one channel; beyond that
the oldest are dropped."""
WAITING_SIZE: Final = 1024 * 1024
"""Bytes of those at most: 16 of the greatest size. Those of all readers count in the server's budget, too."""
TRIES = 10
"""Tries to notify a session, which may have no reader, before a notification is dropped. A `subscriptions/listen` is
tried as long as it lasts."""

_encode = msgspec.json.Encoder().encode
_METHODS: dict[ChangeKind, str] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
    "updated": "notifications/resources/updated",
}


class Subscriptions:
    """The hub of changes and topics: it finds the subscribers of each, and notifies them. `limit`: subscriptions in
    all; `per_peer`: those of one channel; `uris`: URIs and keys of one subscription or session; `size`: bytes of a
    subscription's params, and characters of its or a session's URIs and keys."""

    def __init__(
        self,
        registry: Registry,
        capabilities: Capabilities,
        *,
        extensions: ServerExtensions | None = None,
        limit: int = 10_000,
        per_peer: int = 64,
        uris: int = 1_000,
        size: int = 262_144,
    ) -> None:
        self._registry = registry
        self._capabilities = capabilities
        self._topics = TopicGrants(extensions)
        self.limit: int = limit
        self.per_peer: int = per_peer
        self.uris: int = uris
        self.size: int = size
        self.held = 0
        """How often a notification had to wait for a slow reader."""
        self.dropped = 0
        """Notifications that were dropped."""
        self._listeners: set[_Listener] = set()
        self._count_by_peer: Counter[Any] = Counter()
        """The number of subscriptions of each peer."""
        self._sessions: weakref.WeakKeyDictionary[Any, _SessionReader] = weakref.WeakKeyDictionary()
        self._by_kind: dict[ChangeKind, set[_Reader]] = {kind: set() for kind in _METHODS}
        self._by_uri: dict[str, set[_Reader]] = {}
        self._by_key: dict[TopicKey, set[_Reader]] = {}
        self._lock = Lock()
        self._changes = Changes()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = False
        self._spread: Callable[[HubEvent], None] | None = None

    def __len__(self) -> int:
        """Return the number of subscriptions and sessions."""
        return len(self._listeners) + len(self._sessions)

    def measures(self) -> dict[str, float]:
        """Return numbers for metrics: of subscribers, and how far they are behind."""
        listening = [one.reader for one in tuple(self._listeners)]
        readers = [*listening, *(one.reader for one in tuple(self._sessions.values()))]
        return {
            "subscribers": len(readers),
            "subscriber_lag": sum(len(one.pending) for one in readers),
            "subscriber_waits_total": self.held,
            "subscriber_drops_total": self.dropped,
        }

    def connections(self, service: str) -> list[Connection]:
        """Return the calls of `subscriptions/listen`; sessions that subscribe are listed as sessions."""
        found = []
        for one in tuple(self._listeners):
            caller = one.context.caller
            found.append(
                Connection(
                    id=f"s{id(one)}",
                    kind="subscription",
                    service=service,
                    wire=caller.scheme,
                    remote=caller.remote,
                    principal="" if caller.identity is None else caller.identity.subject,
                    about=", ".join(one.granted or ())[:100],
                    lag=len(one.reader.pending),
                    drops=one.reader.dropped,
                )
            )
        return found

    def end(self, id_: str) -> bool:
        """End a subscription that `connections` has listed. False if there is none with this id."""
        found = next((one for one in self._listeners if f"s{id(one)}" == id_), None)
        if found is not None:
            found.close()
        return found is not None

    def lag_of(self, peer: Any) -> int:
        """Return how many notifications wait for a session."""
        session_reader = self._sessions.get(peer)
        return 0 if session_reader is None else len(session_reader.reader.pending)

    # -- changes

    def changed(
        self,
        kind: Literal["tools", "prompts", "resources"],
        entry: EntryId | None = None,
        visible: Visible | None = None,
    ) -> None:
        """Notify of a list that has changed; safe in any thread. `visible`: decides who may see the `entry` that was
        added, removed or changed; None: every caller."""
        self._publish(lambda changes: changes.add(kind, "", entry, visible))

    def updated(self, uri: str) -> None:
        """Notify of a resource that has changed; safe in any thread."""
        self._publish(lambda changes: changes.add("updated", uri))

    def notify(self, topic: str, key: str, params: Mapping[str, Any] | Struct) -> None:
        """Notify those who were granted a key of a topic; safe in any thread. Raises LocalError for an unknown topic,
        for params that are no JSON object, and for too large ones (`topics.NOTIFICATION_SIZE`)."""
        event = self._topics.event(topic, key, params)

        def add(changes: Changes) -> None:
            self.dropped += not changes.add_topic_event(event)

        self._publish(add)

    def _publish(self, add: Callable[[Changes], None]) -> None:
        """Add an event by `add`, and send all that were added in the loop's next turn; a change that was added several
        times until then is sent once. Nothing is kept while nobody is subscribed."""
        with self._lock:
            loop = self._loop
            if loop is None or not (self._listeners or self._sessions or self._spread is not None):
                return
            add(self._changes)
            if self._awake:
                return
            self._awake = True
        try:
            loop.call_soon_threadsafe(self._send_changes)
        except RuntimeError:  # the loop is closed, and with it every reader
            self._awake = False

    def _send_changes(self) -> None:
        """Send the events that were added to this process's subscribers, and to the other replicas. The subscribers
        that several replicas know get them by `take`, when they come back with their number."""
        with self._lock:
            changes, self._changes = self._changes, Changes()
            self._awake = False
        for event, those in changes.events():
            if self._spread is not None:
                for part in event.parts():
                    self._spread(part)
            for reader in self._readers(event):
                if reader.hint is None and (not those or any(sees(one, reader.caller()) for one in those)):
                    reader.put(event.bare)

    # -- replicas

    def spread(self, tell: Callable[[HubEvent], None] | None) -> None:
        """Pass every event to `tell` from now on, which sends it to the other replicas; None: there are none."""
        self._spread = tell
        if tell is not None:
            self._use_this_loop()

    def take(self, event: HubEvent, number: int, *, own: bool) -> None:
        """Notify this process's subscribers of an event of any replica. `number`: the event's, 0 if events are not
        numbered; `own`: whether it began in this process."""
        message = b""
        for reader in self._readers(event):
            # those that only this process knows were notified of its own events when it sent these; the others are
            # notified of numbered events alone
            if (own if reader.hint is None else not number) or not self._concerns(event, reader):
                continue
            if reader.hint is None:
                reader.put(event.bare)
            else:
                message = message or self.written(event)
                reader.hint(message, number)

    async def keys_known(self, peer: Any) -> None:
        """Wait until it is known which keys a session is granted."""
        session_reader = self._sessions.get(peer)
        if session_reader is not None and session_reader.granting is not None:
            await asyncio.wait([session_reader.granting])

    def concerns(self, event: HubEvent, peer: Any) -> bool:
        """Return whether an earlier event is to be sent to a session that moved here."""
        session_reader = self._sessions.get(peer)
        return (
            session_reader is not None
            and session_reader.reader in self._readers(event)
            and self._concerns(event, session_reader.reader)
        )

    def _concerns(self, event: HubEvent, reader: _Reader) -> bool:
        """Return whether lists show this reader's caller any of the entries that an event names."""
        return (
            isinstance(event, TopicEvent) or not event.entries or self._registry.shows(event.entries, reader.caller())
        )

    def written(self, event: HubEvent) -> bytes:
        """Return the notification of an event for a session, as JSON."""
        if isinstance(event, TopicEvent):
            return _encode(CallMessage(self._topics.method(event), Raw(event.params)))
        return _encode(CallMessage(_METHODS[event.kind], {"uri": event.uri} if event.kind == "updated" else UNSET))

    def restore(self, peer: Any, session: SessionState) -> None:
        """Set the subscriptions of a session, made here or at another replica."""
        if not (session.initialized or session.subscriptions or peer in self._sessions):
            return
        reader = self._session(peer).reader
        for uri in reader.uris - session.subscriptions:
            self._forget(reader, uri)
        kinds: tuple[ChangeKind, ...] = ("tools", "prompts", "resources") if session.initialized else ()
        self._add(reader, kinds, session.subscriptions - reader.uris)
        if session.initialized:
            self._grant_to_session(peer, session)

    def _readers(self, event: HubEvent) -> set[_Reader]:
        """Return the subscribers of a list, of a resource or one above it, or of a key of a topic."""
        if isinstance(event, TopicEvent):
            return set(self._by_key.get((event.topic, event.key), ()))
        if event.kind != "updated":
            return set(self._by_kind[event.kind])
        found: set[_Reader] = set()
        for uri in above(event.uri):
            found |= self._by_uri.get(uri, set())
        hides = self._registry.hides
        # whether a reader may see a URI that it named was checked with its request; of one below it is not known yet
        return {one for one in found if event.uri in one.uris or not hides(event.uri, one.caller())}

    def _use_this_loop(self) -> None:
        """Send events on this loop from now on."""
        with self._lock:
            loop = asyncio.get_running_loop()
            if loop is not self._loop:
                self._loop, self._awake = loop, False

    def _add(
        self,
        reader: _Reader,
        kinds: Iterable[ChangeKind],
        uris: Iterable[str] = (),
        keys: frozenset[TopicKey] = frozenset(),
    ) -> None:
        """Notify a reader also of these lists, resources and keys from now on."""
        self._use_this_loop()
        for kind in kinds:
            self._by_kind[kind].add(reader)
        for uri in uris:
            reader.uris.add(uri)
            self._by_uri.setdefault(uri, set()).add(reader)
        reader.keys = reader.keys | keys
        for key in keys:
            self._by_key.setdefault(key, set()).add(reader)

    def drop(self, reader: _Reader) -> None:
        """Remove a reader, and send nothing more to it."""
        if reader.kept is not None:
            reader.kept.release()
            reader.kept = None
        for readers in self._by_kind.values():
            readers.discard(reader)
        for uri in tuple(reader.uris):
            self._forget(reader, uri)
        for key in reader.keys:
            _discard(self._by_key, key, reader)
        reader.keys = frozenset()
        reader.end()

    def _forget(self, reader: _Reader, uri: str) -> None:
        """Notify a reader no more of the resource at a URI."""
        reader.uris.discard(uri)
        _discard(self._by_uri, uri, reader)

    def _check_number(self, uris: int, keys: int) -> None:
        """Raise InvalidParams for too many URIs and keys of one subscriber."""
        if uris + keys > self.uris:
            raise InvalidParams(
                f"Too many resources and keys of topics are subscribed to: {self.uris} are allowed",
                {"limit": "uris", "allowed": self.uris},
            )

    def _check_size(self, size: int) -> None:
        """Raise RpcError for URIs and keys of one subscriber, or params, that are too long in all."""
        if size > self.size:
            raise MCP.error(too_large("subscription_size", self.size, size))

    # -- the stateless era

    async def listen(self, admitted: Admitted, context: Context) -> Raw:
        """Serve `subscriptions/listen` until the client cancels it (CancelledError) or `close`; return the result's
        JSON.

        Raises RpcError if the server is busy, for too many URIs and keys, for topics of an extension that the client
        has not declared, if a `grant` raises one, and on a wire without messages ahead of an answer.
        """
        granted = self._granted(admitted, context.caller)
        self._admit(context.peer)
        seen = getattr(context._site, "seen", None)
        if seen is not None:
            seen.seen.about = _describe(granted)
        listener = _Listener(self, context)
        self._listeners.add(listener)
        self._count_by_peer[context.peer] += 1
        try:
            topics = await self._topics.granted_to_call(admitted, context.caller)
            self._begin(listener, granted, topics)
            if context.peer is None and listener.reader.pending:
                raise InternalError("subscriptions/listen: this wire carries nothing ahead of an answer")
            await listener.over
        finally:
            self._listeners.discard(listener)
            self._count_by_peer[context.peer] -= 1
            if not self._count_by_peer[context.peer]:
                del self._count_by_peer[context.peer]
            self.drop(listener.reader)
            listener.gone.set_result(None)
        result = SubscriptionsListenResult(meta={SUBSCRIPTION_ID: context.id})
        return finish(result, admitted.revision, self._registry.surroundings.stamp)

    def _begin(self, listener: _Listener, granted: SubscriptionFilter, topics: GrantedTopics) -> None:
        """Acknowledge what is granted, and notify of it from now on, unless the server has ended the call meanwhile.
        Raises RpcError for too many URIs and keys, and for too large values of topics."""
        uris = () if granted.resource_subscriptions is UNSET else granted.resource_subscriptions
        self._check_number(len(uris), len(topics.keys))
        self._check_size(_length(uris, topics.keys))
        self._check_size(sum(map(len, topics.members.values())))
        if listener.over.done():
            return
        kinds: dict[ChangeKind, Any] = {
            "tools": granted.tools_list_changed,
            "prompts": granted.prompts_list_changed,
            "resources": granted.resources_list_changed,
        }
        self._add(listener.reader, [kind for kind, yes in kinds.items() if yes is True], uris, topics.keys)
        # "MUST NOT send any notification on the subscription before it" (basic/patterns/subscriptions)
        listener.granted = msgspec.to_builtins(granted) | topics.members
        listener.reader.put(_ACKNOWLEDGED)

    def _granted(self, admitted: Admitted, caller: Caller) -> SubscriptionFilter:
        """Return the requested changes, without those that this server does not have, or not for this caller. Raises
        RpcError for too many of them."""
        requested: SubscriptionFilter = admitted.params.notifications
        can = self._capabilities.stateful()
        uris = requested.resource_subscriptions
        self._check_number(0 if uris is UNSET else len(uris), 0)
        self._check_size(0 if admitted.raw is UNSET else len(admitted.raw))
        if uris is not UNSET:
            uris = [uri for uri in uris if not self._registry.hides(uri, caller)]
        return SubscriptionFilter(
            tools_list_changed=_agreed_to(requested.tools_list_changed, can.tools, "list_changed"),
            prompts_list_changed=_agreed_to(requested.prompts_list_changed, can.prompts, "list_changed"),
            resources_list_changed=_agreed_to(requested.resources_list_changed, can.resources, "list_changed"),
            resource_subscriptions=uris if _agreed_to(True, can.resources, "subscribe") is True else UNSET,
        )

    def _admit(self, peer: Any) -> None:
        """Raise RpcError (busy) if too many subscriptions are open, in all or on this channel."""
        mine = 0 if peer is None else self._count_by_peer[peer]
        for count, allowed, name in ((len(self._listeners), self.limit, "in all"), (mine, self.per_peer, "here")):
            if count >= allowed:
                data = {"limit": "subscriptions", "allowed": allowed, "retry_after": 60}
                raise MCP.error(Refusal("busy", f"Busy: {allowed} subscriptions are open {name}", data))

    async def close(self, calls: Container[Any] | None = None, timeout: float | None = None) -> None:
        """End all subscriptions, or those among these calls, with their results; return when these are being sent, or
        after `timeout` seconds: a `grant` may still be under way."""
        listeners = [one for one in self._listeners if calls is None or one.context._site in calls]
        for listener in listeners:
            listener.close()
        if listeners:
            await asyncio.wait([listener.gone for listener in listeners], timeout=timeout)

    # -- the stateful era

    def join(self, peer: Any) -> None:
        """Notify a peer of changed lists, and of the keys of topics that it is granted, from now on: its session is
        initialized."""
        self._add(self._session(peer).reader, ("tools", "prompts", "resources"))
        self._grant_to_session(peer, peer.state)

    def _grant_to_session(self, peer: Any, session: SessionState) -> None:
        """Begin to grant a session its keys, unless that has begun before."""
        session_reader = self._session(peer)
        if session_reader.granting is None and (topics := self._topics.of_session(session)):
            work = self._add_keys(session_reader, topics, peer.caller)
            session_reader.granting = asyncio.get_running_loop().create_task(work)

    async def _add_keys(self, session_reader: _SessionReader, topics: list[Topic], caller: Caller) -> None:
        """Notify a session of the keys that it is granted from now on; of none if they are too many."""
        try:
            keys = (await self._topics.granted_to_session(topics, caller)).keys
            reader, peer = session_reader.reader, session_reader.peer
            if peer is None or not keys:
                return
            uris: set[str] = peer.state.subscriptions
            self._check_number(len(uris), len(keys))
            self._check_size(_length(uris, keys))
            self._count(peer, peer.caller, _taken(uris, keys))
        except RpcError as error:
            repeats.warning("a session is notified of no topics: %s", error)
        else:
            self._add(reader, (), (), keys)

    def leave(self, peer: Any) -> None:
        """Remove a session that is over; one whose peer is garbage-collected is removed by itself."""
        session_reader = None if peer is None else self._sessions.pop(peer, None)
        if session_reader is not None:
            session_reader.end()

    def subscribe(self, admitted: Admitted, peer: Any, uri: str, caller: Caller) -> None:
        """Serve `resources/subscribe`. Raises RpcError for an unknown resource, for too many or too long URIs, and if
        the caller's share of the budget is used up."""
        session = _session_of(admitted)
        self._registry.resource(uri, admitted.revision, caller)
        if uri not in session.subscriptions:
            uris, keys = (*session.subscriptions, uri), self._session(peer).reader.keys
            self._check_number(len(uris), len(keys))
            self._check_size(_length(uris, keys))
            self._count(peer, caller, _taken(uris, keys))
        session.subscriptions.add(uri)
        self._add(self._session(peer).reader, (), (uri,))

    def _count(self, peer: Any, caller: Caller, size: int) -> None:
        """Count the bytes of all subscriptions of a session in its caller's share of the budget, in place of those
        counted before. Raises RpcError if the share is used up."""
        reader, budget = self._session(peer).reader, peer._runner.call_limit.budget
        if reader.kept is not None:
            room = reader.kept.resize(size)
        else:
            reader.kept = budget.admit(caller.owner, size) if size > UNCOUNTED else None
            room = reader.kept is not None or size <= UNCOUNTED
        if not room:
            raise MCP.error(busy("kept_bytes", budget.share))

    def unsubscribe(self, admitted: Admitted, peer: Any, uri: str) -> None:
        """Serve `resources/unsubscribe`, which has no effect without a subscription."""
        those = _session_of(admitted).subscriptions
        those.discard(uri)
        if (session_reader := self._sessions.get(peer)) is None:
            return
        self._forget(session_reader.reader, uri)
        if session_reader.reader.kept is not None:
            session_reader.reader.kept.resize(_taken(those, session_reader.reader.keys) or 1)

    def _session(self, peer: Any) -> _SessionReader:
        """Return the reader of a peer's session, made if there is none."""
        session_reader = self._sessions.get(peer)
        if session_reader is None:
            session_reader = self._sessions[peer] = _SessionReader(self, peer)
        return session_reader


def _describe(granted: SubscriptionFilter) -> str:
    """Return the members of a filter in a few words, for observers."""
    members = msgspec.to_builtins(granted)
    return ", ".join(f"{name} ({len(one)})" if isinstance(one, list) else name for name, one in members.items())


def _agreed_to(requested: Any, can: Any, name: str) -> Any:
    """Return True if a change was requested and the capability `can` has the member `name`; else UNSET."""
    return True if requested is True and can is not UNSET and getattr(can, name) is True else UNSET


def _length(uris: Collection[str], keys: Collection[TopicKey]) -> int:
    """Return the characters of URIs and keys."""
    return sum(map(len, uris)) + sum(len(key) for _, key in keys)


def _taken(uris: Collection[str], keys: Collection[TopicKey]) -> int:
    """Return the bytes that URIs and keys of a session take, about."""
    return _length(uris, keys) + _OVERHEAD * (len(uris) + len(keys))


def _discard(readers: dict[Any, set[_Reader]], about: Any, reader: _Reader) -> None:
    """Remove a reader from those of a URI or key."""
    if (found := readers.get(about)) is not None:
        found.discard(reader)
        if not found:
            del readers[about]


def _session_of(admitted: Admitted) -> SessionState:
    """Return the session of a call. Raises InvalidParams without one."""
    if admitted.session is None:
        raise InvalidParams("there is no session to subscribe in")
    return admitted.session


# -- readers --------------------------------------------------------------------------------------


class _Reader:
    """A subscriber. `pending`: notifications that were not sent yet, the oldest first; `send`: sends one, and returns
    False if it was not accepted; `hint`: called instead, with the message and the number of its event, for a session
    that several replicas know; `budget`: returns the server's, None once the subscriber is gone."""

    __slots__ = (
        "_account",
        "_budget",
        "_timer",
        "_waiting",
        "_waiting_size",
        "caller",
        "dropped",
        "hint",
        "hub",
        "kept",
        "keys",
        "loop",
        "pending",
        "send",
        "tries",
        "uris",
    )

    def __init__(
        self,
        hub: Subscriptions,
        send: Callable[[HubEvent], bool],
        caller: Callable[[], Caller],
        budget: Callable[[], Budget | None],
    ) -> None:
        self.hub: Subscriptions = hub
        self.send: Callable[[HubEvent], bool] = send
        self.caller: Callable[[], Caller] = caller
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.pending: dict[HubEvent, None] = {}
        self.uris: set[str] = set()
        self.keys: frozenset[TopicKey] = frozenset()
        self.tries: int = 0
        """How often the oldest pending notification was not accepted."""
        self.dropped: int = 0
        """Notifications that were dropped because it reads too slowly."""
        self.hint: Callable[[bytes, int], None] | None = None
        self.kept: BudgetAdmission | None = None
        """The part of the server's budget for its URIs and keys; None up to `UNCOUNTED` bytes."""
        self._timer: asyncio.TimerHandle | None = None
        self._budget = budget
        self._account: Account | None = None
        """The part of the server's budget for topics' notifications that wait; None: none has waited yet."""
        self._waiting: dict[TopicEvent, None] = {}
        """The topics' notifications among the pending ones."""
        self._waiting_size = 0
        """Their bytes, kept up to date: a sum for each notification would cost more than all else."""

    def put(self, event: HubEvent) -> None:
        """Send a notification, after those that wait."""
        if isinstance(event, TopicEvent):
            self._put_topic_event(event)
            return
        if len(self.pending) - len(self._waiting) >= self.hub.uris and event.kind == "updated":
            # so far behind, it is notified of the URI that it named, and not of each resource below that
            event = ChangeEvent("updated", next((uri for uri in above(event.uri) if uri in self.uris), event.uri))
        self.pending[event] = None
        if self._timer is None:
            self.flush()

    def _put_topic_event(self, event: TopicEvent) -> None:
        """Send a topic's notification after those that wait; if it has to wait too, drop the oldest beyond the
        bounds."""
        self.pending[event] = None
        if self._timer is None:
            self.flush()
        if event not in self.pending:
            return
        self._waiting[event] = None
        size = self._waiting_size + event.size
        while len(self._waiting) > WAITING or size > WAITING_SIZE:
            oldest = next(iter(self._waiting))
            size -= oldest.size
            del self._waiting[oldest], self.pending[oldest]
            self.hub.dropped += 1
            self.dropped += 1
        if self._account is None and (budget := self._budget()) is not None:
            self._account = budget.account(self.caller().owner, drop=self._drop_waiting)
        self._count_waiting(size)

    def _drop_waiting(self) -> None:
        """Drop all topics' notifications that wait: the server's budget is used up."""
        self.hub.dropped += len(self._waiting)
        self.dropped += len(self._waiting)
        for event in self._waiting:
            del self.pending[event]
        self._waiting.clear()
        self._count_waiting(0)

    def _count_waiting(self, size: int) -> None:
        """Set the bytes of the topics' notifications that wait."""
        self._waiting_size = size
        if self._account is not None:
            self._account.set(size)

    def flush(self) -> None:
        """Send pending notifications. If one is not accepted, try again later."""
        self._timer = None
        while self.pending:
            event = next(iter(self.pending))
            if not self.send(event):
                self.hub.held += not self.tries
                self._timer = self.loop.call_later(min(FIRST_DELAY * 2**self.tries, LAST_DELAY), self.flush)
                self.tries += 1
                return
            self.tries = 0
            self.pending.pop(event, None)
            if isinstance(event, TopicEvent) and event in self._waiting:
                del self._waiting[event]
                self._count_waiting(self._waiting_size - event.size)

    def end(self) -> None:
        """Drop pending notifications, and send no more."""
        self.pending.clear()
        self._waiting.clear()
        self._count_waiting(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_ACKNOWLEDGED = ChangeEvent("updated", "notifications/subscriptions/acknowledged")
"""Stands for the acknowledgment among the pending notifications."""


class _Listener:
    """A call of `subscriptions/listen`."""

    __slots__ = ("_meta", "_topics", "context", "gone", "granted", "over", "reader")

    def __init__(self, hub: Subscriptions, context: Context) -> None:
        site: Any = context._site
        self.reader = _Reader(hub, self._send_event, lambda: context.caller, lambda: site.runner.call_limit.budget)
        self._topics = hub._topics
        self.context = context
        self.over: asyncio.Future[None] = self.reader.loop.create_future()
        """Done when the server wants it to end."""
        self.gone: asyncio.Future[None] = self.reader.loop.create_future()
        """Done when it has ended, for any reason."""
        self.granted: dict[str, Any] | None = None
        """The filter of the acknowledgment; None before that."""
        self._meta = {SUBSCRIPTION_ID: context.id}

    def _send_event(self, event: HubEvent) -> bool:
        if isinstance(event, TopicEvent):
            return self._send(self._topics.method(event), with_meta(event.params, self._meta))
        if event is _ACKNOWLEDGED:
            return self._notify(event.uri, {"notifications": self.granted})
        return self._notify(_METHODS[event.kind], {"uri": event.uri} if event.kind == "updated" else {})

    def _notify(self, method: str, params: dict[str, Any]) -> bool:
        # "All notifications delivered on the stream carry [it] in `_meta`" (basic/patterns/subscriptions)
        return self._send(method, {"_meta": self._meta, **params})

    def _send(self, method: str, params: dict[str, Any]) -> bool:
        """Send a notification ahead of the call's answer; return False if it was not accepted."""
        return self.context.speak(_encode(CallMessage(method, params)), method)

    def close(self) -> None:
        """End the call with its result: the server ends the subscription."""
        if self.over.done():
            return
        if self.context.peer is not None and self.granted is not None:
            # "A server MUST send `notifications/cancelled` referencing a `subscriptions/listen` request ID when it
            # tears down that subscription stream" (basic/patterns/cancellation); over HTTP the stream itself ends
            self._notify("notifications/cancelled", {"requestId": self.context.id})
        self.over.set_result(None)


class _SessionReader:
    """A session of the stateful era as a subscriber. It refers to its peer only weakly."""

    __slots__ = ("_hub", "_peer", "granting", "reader")

    def __init__(self, hub: Subscriptions, peer: Any) -> None:
        self.reader = reader = _Reader(hub, self._send_event, self._caller, self._budget)
        self._hub = hub
        self._peer = weakref.ref(peer, lambda _: hub.drop(reader))
        self.granting: asyncio.Task[None] | None = None
        """The task that grants it its keys; None: there are none to grant, or it is not initialized."""
        reader.hint = getattr(getattr(peer, "_channel", None), "hint", None)

    @property
    def peer(self) -> Any:
        """The session's peer; None once it is gone."""
        return self._peer()

    def end(self) -> None:
        """Remove it: the session is over."""
        if self.granting is not None:
            self.granting.cancel()
        self._hub.drop(self.reader)

    def _caller(self) -> Caller:
        peer = self._peer()
        return Caller() if peer is None else peer.caller

    def _budget(self) -> Budget | None:
        peer = self._peer()
        return None if peer is None else peer._runner.call_limit.budget

    def _send_event(self, event: HubEvent) -> bool:
        """Send an event, or drop it after `TRIES`; return False if it was not accepted."""
        peer = self._peer()
        if peer is None or peer.closed or peer.lapsed:  # a caller whose token has expired gets no notifications either
            self._hub.leave(peer)
            return True
        method = self._hub._topics.method(event) if isinstance(event, TopicEvent) else _METHODS[event.kind]
        if peer.send_droppable(self._hub.written(event), method):
            return True
        if self.reader.tries < TRIES:
            return False
        self._hub.dropped += 1
        return True
