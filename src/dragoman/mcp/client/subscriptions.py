"""Subscriptions of a client: changes of lists and of resources, as async iterators, in both eras.

Rules (basic/patterns/subscriptions; server/resources, Subscriptions, of the stateful revisions):

- In the stateless era a subscription is a long call, `subscriptions/listen`. Its first message states the changes of
  which the server will notify; each notification has the call's id. It ends with an answer, with a cancel by the
  server, or with its stream.
- In the stateful era the client subscribes to resources one by one, once for all its subscriptions, and changes of
  lists concern all of them.
- Only the last state counts: a change that was not read yet is not reported twice.

A `Subscription` is the user's object: a feed of changes with an end. A strategy fills it: a `ListenCall` of its own in
the stateless era, the client's `SessionSubscriptions` in the stateful one. `ClientSubscriptions` passes notifications
to both."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...channel import ChannelError, again
from ...jsonrpc.errors import BadAnswer, CallTimeout, LocalError, RpcError
from ...net.reconnect import BackgroundTasks, backoff, reconnect
from ...rpc.binding.results import to_json
from ..protocol.encoding import decode
from ..protocol.params import SubscriptionFilter, SubscriptionsAcknowledgedNotificationParams
from ..protocol.types import SUBSCRIPTION_ID
from ..protocol.uri import normal
from ..protocol.uri_template import above
from .session import ENDLESS_CALL, ClientSession

logger: logging.Logger = logging.getLogger("dragoman.mcp")

SubscribedKind: TypeAlias = Literal["tools", "prompts", "resources", "resource", "again"]

LISTEN = "subscriptions/listen"
PAUSES = (0.1, 30.0)
"""The first and the longest pause before a lost subscription is renewed, in seconds."""
MOST_NEWS = 10_000
"""Changes of one subscription that wait for their reader. Beyond that they become one: anything may have changed."""
LONGEST_RETRY = 600.0
"""Seconds by which a server's `retry_after` can defer the next try at most."""


class Changed(Struct, frozen=True):
    """A change. `kind`: "tools", "prompts", "resources": that list; "resource": the one at `uri`; "again": anything may
    have changed, because the subscription was lost and renewed, or more has changed than is kept for its reader."""

    kind: SubscribedKind
    uri: str | None = None


class _Meta(Struct):
    id: int | str | UnsetType = msgspec.field(default=UNSET, name=SUBSCRIPTION_ID)


class _Notification(Struct):
    """The members of any notification's params that are used here."""

    meta: _Meta | UnsetType = msgspec.field(default=UNSET, name="_meta")
    uri: str | UnsetType = UNSET
    request: int | str | UnsetType = msgspec.field(default=UNSET, name="requestId")


class _Acknowledged(Struct):
    notifications: dict[str, Raw]


LISTS: dict[str, SubscribedKind] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CANCELLED = "notifications/cancelled"
_REFUSALS = (RpcError, CallTimeout, BadAnswer)
"""The errors of a request while the channel is there."""


class Subscription:
    """The changes that a client subscribed to: an async context manager, and an async iterator of `Changed`. Made by
    `Client.subscribe`, which has the options."""

    def __init__(
        self,
        all: ClientSubscriptions,
        *,
        uris: Iterable[str] = (),
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        topics: Mapping[str, Any] | None = None,
        again: bool = False,
    ) -> None:
        self._uris: dict[str, str] = {}
        """The URIs of the subscribed resources, by their normal form."""
        for uri in uris:
            self._uris.setdefault(normal(uri), uri)
        self._again = again
        """Whether it is renewed if the server ends it or the channel is lost."""
        self._wanted: SubscriptionFilter = SubscriptionFilter(
            tools_list_changed=True if tools else UNSET,
            prompts_list_changed=True if prompts else UNSET,
            resources_list_changed=True if resources else UNSET,
            resource_subscriptions=list(self._uris.values()) if self._uris else UNSET,
        )
        """The subscribed changes, as the protocol writes them."""
        self._topics: dict[str, Raw] = {member: Raw(to_json(value)) for member, value in (topics or {}).items()}
        """The requested values of topics of extensions, by their members of the filter."""
        if self._wanted == SubscriptionFilter() and not self._topics:
            raise LocalError(
                "subscribe to something: uris=[...], tools=True, prompts=True, resources=True, topics={...}"
            )
        self.granted: SubscriptionFilter = SubscriptionFilter()
        """The changes of which the server will notify: the acknowledged filter, or those that its capabilities
        allow."""
        self.granted_topics: Mapping[str, Any] = {}
        """The values of the requested topics that the server acknowledged, as JSON values by their members of the
        filter; empty in stateful revisions, in which nothing is acknowledged."""
        self._all = all
        self._strategy: ListenCall | SessionSubscriptions | None = None
        self._news: dict[Changed, None] = {}
        self._over = False
        self._why: Exception | None = None
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Subscription {', '.join((*self._uris.values(), *msgspec.to_builtins(self._wanted), *self._topics))}>"

    # -- for the user

    async def __aenter__(self) -> Subscription:
        all = self._all
        self._strategy = all.in_session if all.far.era.revision.stateful else ListenCall(all, self)
        try:
            await self._strategy.begin(self)
        except BaseException:
            await self.close()
            raise
        if self._over and self._why is not None:
            raise again(self._why)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Changed]:
        return self

    async def __anext__(self) -> Changed:
        """Return the next change. The iteration ends when the server ends the subscription, or it is closed. Raises
        ChannelError when the channel is lost."""
        while not self._news:
            if self._over:
                if self._why is not None:
                    raise again(self._why)
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        found = next(iter(self._news))
        del self._news[found]
        return found

    async def close(self) -> None:
        """Unsubscribe; a task that waits for the next change gets the end of the iteration."""
        self._end(None)
        if self._strategy is not None:
            await self._strategy.end(self)

    # -- for its strategy

    @property
    def _body(self) -> bytes:
        """The params of `subscriptions/listen`."""
        return to_json({"notifications": {**self._topics, **msgspec.to_builtins(self._wanted)}})

    def _acknowledge(self, params: Raw) -> None:
        """Store what the server acknowledged. Raises msgspec.DecodeError or RecursionError."""
        self.granted = decode(params, SubscriptionsAcknowledgedNotificationParams).notifications
        if self._topics:
            members = decode(params, _Acknowledged).notifications
            granted = {name: members[name] for name in self._topics if name in members}
            self.granted_topics = {name: msgspec.json.decode(value) for name, value in granted.items()}

    def _wants(self, kind: SubscribedKind, uri: str | None) -> bool:
        """Return whether a change belongs to this subscription."""
        wanted = self._wanted
        if kind == "resource":
            return uri is not None and any(one in self._uris for one in above(normal(uri)))
        lists = {
            "tools": wanted.tools_list_changed,
            "prompts": wanted.prompts_list_changed,
            "resources": wanted.resources_list_changed,
        }
        return lists[kind] is True

    def _add(self, change: Changed) -> None:
        """Add a change for the reader."""
        if self._over:
            return
        if len(self._news) >= MOST_NEWS:
            self._news.clear()
            change = Changed("again")
        self._news[change] = None
        self._wake.set()

    def _end(self, why: Exception | None) -> None:
        """End the iteration, or let it raise `why`."""
        if not self._over:
            self._over = True
            self._why = why
            self._wake.set()


class ClientSubscriptions:
    """All subscriptions of one client."""

    def __init__(self, far: ClientSession) -> None:
        self.far = far
        self.calls: dict[int, ListenCall] = {}
        """The subscriptions of the stateless era, by the id of their call."""
        self.in_session: SessionSubscriptions = SessionSubscriptions(far)

    def take(self, method: str, params: Raw | UnsetType) -> None:
        """Pass a notification of the server to the subscriptions that it concerns."""
        try:
            found = decode(b"{}" if params is UNSET else params, _Notification)
        except (msgspec.DecodeError, RecursionError) as error:
            logger.debug("%s: %s", method, error)
            return
        if method == CANCELLED:
            # "A server MUST send `notifications/cancelled` referencing a `subscriptions/listen` request ID when it
            # tears down that subscription stream" (basic/patterns/cancellation)
            call = self.calls.get(found.request) if isinstance(found.request, int) else None
            if call is not None:
                call.cancelled()
            return
        id = found.meta.id if found.meta is not UNSET else UNSET
        call = self.calls.get(id) if isinstance(id, int) else None
        if method == ACKNOWLEDGED:
            if call is not None and params is not UNSET:
                call.acknowledge(params)
            return
        change = Changed(LISTS.get(method, "resource"), found.uri if isinstance(found.uri, str) else None)
        if call is not None:
            call.subscription._add(change)
        self.in_session.take(change)

    async def close(self) -> None:
        """End all subscriptions."""
        self.in_session.lost(None)
        for call in tuple(self.calls.values()):
            await call.subscription.close()


class SessionSubscriptions:
    """The strategy of the stateful era: each resource is subscribed to once for all subscriptions of the client."""

    def __init__(self, far: ClientSession) -> None:
        self._session = far
        self._open: set[Subscription] = set()
        self._held: dict[Subscription, list[str]] = {}
        """The resources of each subscription that are subscribed to at the server."""
        self._uris: Counter[str] = Counter()
        """The number of subscriptions to each resource, by the normal form of its URI."""
        self._spellings: dict[str, str] = {}
        """The URIs of these as they were sent to the server, which may compare them as texts."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._revivals = BackgroundTasks(LISTEN)
        self._reviving = False
        """Whether a task connects again already."""

    def take(self, change: Changed) -> None:
        """Add a change to the subscriptions that want it."""
        for one in self._open:
            if one._wants(change.kind, change.uri):
                one._add(change)

    async def begin(self, one: Subscription) -> None:
        """Begin a subscription, as far as the server supports it. Raises what `ClientSession.call` raises."""
        can = self._session.era.capabilities
        lists = {"tools": can.tools, "prompts": can.prompts, "resources": can.resources}
        notifies = {kind: what is not UNSET and what.list_changed is True for kind, what in lists.items()}
        # "Both `subscribe` and `listChanged` are optional" (server/resources)
        single = can.resources is not UNSET and can.resources.subscribe is True
        self._open.add(one)
        held = self._held[one] = []
        for uri, spelling in one._uris.items() if single else ():
            async with self._turn(uri):
                if not self._uris[uri]:
                    await self._session.call("resources/subscribe", msgspec.json.encode({"uri": spelling}))
                    self._spellings[uri] = spelling
                self._uris[uri] += 1
                held.append(uri)
        wanted = one._wanted
        one.granted = SubscriptionFilter(
            tools_list_changed=True if wanted.tools_list_changed is True and notifies["tools"] else UNSET,
            prompts_list_changed=True if wanted.prompts_list_changed is True and notifies["prompts"] else UNSET,
            resources_list_changed=True if wanted.resources_list_changed is True and notifies["resources"] else UNSET,
            resource_subscriptions=[one._uris[uri] for uri in held] or UNSET,
        )

    async def end(self, one: Subscription) -> None:
        """End a subscription."""
        if not self._session.entered:
            return
        self._open.discard(one)
        for uri in self._held.pop(one, ()):
            async with self._turn(uri):
                self._uris[uri] -= 1
                if self._uris[uri] <= 0:
                    del self._uris[uri]
                    spelling = self._spellings.pop(uri, uri)
                    with contextlib.suppress(ChannelError, *_REFUSALS):
                        await self._session.call("resources/unsubscribe", msgspec.json.encode({"uri": spelling}))

    def _turn(self, uri: str) -> asyncio.Lock:
        """Return the lock of a resource: requests about it are sent one after the other, so that subscriptions that
        share one share its outcome."""
        return self._turns.setdefault(uri, asyncio.Lock())

    async def renewed(self) -> None:
        """Subscribe again, because the server was connected again and has no state for us."""
        if self._session.era.revision.stateful:
            for uri in tuple(self._uris):
                try:
                    spelling = self._spellings.get(uri, uri)
                    await self._session.once("resources/subscribe", msgspec.json.encode({"uri": spelling}))
                except _REFUSALS as error:
                    self._refused(uri, error)
        for one in tuple(self._open):
            one._add(Changed("again"))

    def _refused(self, uri: str, why: Exception) -> None:
        """End the subscriptions to a resource of which the server does not notify any more."""
        del self._uris[uri]
        self._spellings.pop(uri, None)
        for one, held in tuple(self._held.items()):
            if uri in held:
                held.remove(uri)
                one._end(why)

    def lost(self, why: Exception | None) -> None:
        """End the subscriptions, or begin to connect again: the channel is over (None: we closed it), or the session,
        and there is no other."""
        for one in tuple(self._open):
            if why is None or not one._again or not self._session.comes_back:
                one._end(why)
        if self._renewable and not self._reviving:
            self._reviving = True
            self._revivals.begin(self._revive())

    @property
    def _renewable(self) -> list[Subscription]:
        """The open subscriptions that are renewed after a loss."""
        return [one for one in self._open if one._again and not one._over]

    async def _revive(self) -> None:
        """Connect again for the subscriptions that are renewed, as long as one of them is open."""

        async def attempt() -> None:
            if self._renewable:
                await self._session.revive()

        try:
            await reconnect(attempt, PAUSES, faults=(ChannelError, CallTimeout))
        except Exception as error:
            for one in self._renewable:
                one._end(error)
        finally:
            self._reviving = False


class ListenCall:
    """The strategy of the stateless era: one long call for one subscription, and another one when it has ended."""

    def __init__(self, all: ClientSubscriptions, subscription: Subscription) -> None:
        self.subscription = subscription
        self._session = all.far
        self._calls = all.calls
        self._acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._renewing = False
        self._fault: Exception | None = None
        """Why the last try failed."""
        self._task: asyncio.Task[None] | None = None
        self._call: asyncio.Future[Raw] | None = None
        """The call, while it runs."""

    async def begin(self, one: Subscription) -> None:
        """Make the call, and wait for the acknowledgment. Raises CallTimeout."""
        self._task = asyncio.get_running_loop().create_task(self._listen())
        timeout = self._session.timeout
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wait([self._acknowledged, self._task], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            why = "" if self._fault is None else f": {self._fault}"
            raise CallTimeout(f"{LISTEN}: not acknowledged within {timeout} s{why}") from self._fault

    async def end(self, one: Subscription) -> None:
        """Cancel the call."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def acknowledge(self, params: Raw) -> None:
        """Store the changes of which the server will notify."""
        one = self.subscription
        try:
            one._acknowledge(params)
        except (msgspec.DecodeError, RecursionError) as error:
            one._end(BadAnswer(f"{ACKNOWLEDGED}: {error}"))
        if not self._acknowledged.done():
            self._acknowledged.set_result(None)
        if self._renewing:
            self._renewing = False
            one._add(Changed("again"))

    def cancelled(self) -> None:
        """End the subscription, or call again: the server has cancelled the call, and sends no answer."""
        if not self.subscription._again:
            self.subscription._end(None)
        elif self._call is not None:
            self._call.cancel()

    async def _listen(self) -> None:
        pauses, far, clock = backoff(*PAUSES), self._session, asyncio.get_running_loop().time
        one, in_order = self.subscription, False
        while True:
            since = clock()
            later: float | None = 0.0
            try:
                await self._once()
                # "the subscription closed cleanly" may have any reason: a server that drains, so that another one takes
                # over, ends it in this way, too
                in_order = True
                if not one._again or one._over or not far.comes_back:
                    one._end(None)
                    return
                logger.debug("%s: ended by the server, and called again", LISTEN)
            except (ChannelError, CallTimeout, RpcError) as error:
                # "a transport that closes without it indicates an unexpected disconnect, which the client MAY treat
                # as a trigger to reconnect"; a server that is busy or closing says when to come back
                later = _retry_after(error) if isinstance(error, RpcError) else 0.0
                if not one._again or one._over or later is None or not far.comes_back:
                    over = in_order and isinstance(error, ChannelError)  # the server ended it, and then the channel
                    one._end(None if over else error)
                    return
                logger.debug("%s: lost or refused, and called again: %s", LISTEN, error)
                self._fault = error
            except Exception as error:
                one._end(error)
                return
            if clock() - since > PAUSES[1]:  # the call ran well meanwhile
                pauses, in_order = backoff(*PAUSES), False
            await asyncio.sleep(max(next(pauses), later or 0.0))
            self._renewing = self._acknowledged.done()

    async def _once(self) -> None:
        """Make one call, and wait for its end. Raises what it raises."""
        far, calls = self._session, self._calls
        body = self.subscription._body
        mine: list[int] = []

        def begun(id: int) -> None:
            mine.append(id)
            calls[id] = self

        self._call = call = asyncio.ensure_future(far.call(LISTEN, body, plan=ENDLESS_CALL, begun=begun))
        try:
            await asyncio.wait([call])
            if not call.cancelled():
                call.result()
        finally:
            self._call = None
            if not call.done():
                call.cancel()
                await asyncio.wait([call])
            for id in mine:
                calls.pop(id, None)


def _retry_after(error: RpcError) -> float | None:
    """Return the seconds after which a server that is busy or draining may accept the call; None if the error does not
    say."""
    seconds = error.data.get("retry_after") if isinstance(error.data, dict) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return min(seconds, LONGEST_RETRY)
