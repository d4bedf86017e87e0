"""Subscriptions of a client: changes of lists and of resources, as async iterators, in both eras.

Rules (basic/patterns/subscriptions; server/resources, Subscriptions, of the stateful revisions):

- In the stateless era a subscription is a long call, `subscriptions/listen`. Its first message states what the server
  will notify about; each notification carries the call's id. It ends by an answer, by the server's cancelling it, or
  with its stream.
- In the stateful era resources are subscribed to one by one, each once for all local subscriptions, and changes of
  lists go to all.
- Only the last state counts: a change that was not read yet is not reported twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...channel import ChannelError, again
from ...jsonrpc.errors import BadAnswer, CallTimeout, LocalError, RpcError
from ...net.reconnect import BackgroundTasks, backoff, reconnect
from ..protocol.encoding import decode
from ..protocol.params import SubscriptionFilter, SubscriptionsAcknowledgedNotificationParams
from ..protocol.types import SUBSCRIPTION_ID
from ..protocol.uri import normal
from ..protocol.uri_template import above
from .session import ENDLESS_CALL, ClientSession

logger: logging.Logger = logging.getLogger("dragoman.mcp")

Kind: TypeAlias = Literal["tools", "prompts", "resources", "resource", "again"]

LISTEN = "subscriptions/listen"
PAUSES = (0.1, 30.0)
"""The first and the longest pause before a lost subscription is renewed, in seconds."""
MOST_NEWS = 10_000
"""Changes of one subscription that wait for their reader. Beyond that they are one: anything may have changed."""
LONGEST_ASKED = 600.0
"""Seconds at most that a server's `retry_after` defers the next try: no server may put it off for good."""


class Changed(Struct, frozen=True):
    """A change. `kind`: the list of tools, prompts or resources; one "resource", which `uri` names; or "again": the
    subscription was lost and renewed, or more has changed than is kept for its reader: anything may have changed."""

    kind: Kind
    uri: str | None = None


class _Meta(Struct):
    id: int | str | UnsetType = msgspec.field(default=UNSET, name=SUBSCRIPTION_ID)


class _Told(Struct):
    """The params of any notification, as far as they are used here."""

    meta: _Meta | UnsetType = msgspec.field(default=UNSET, name="_meta")
    uri: str | UnsetType = UNSET
    request: int | str | UnsetType = msgspec.field(default=UNSET, name="requestId")


LISTS: dict[str, Kind] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CANCELLED = "notifications/cancelled"
_REFUSALS = (RpcError, CallTimeout, BadAnswer)
"""How a request ends at a server that is there."""


class SubscriptionManager:
    """All subscriptions of one client."""

    def __init__(self, far: ClientSession) -> None:
        self.far = far
        self.calls: dict[int, Subscription] = {}
        """Those of the stateless era, by the id of their call."""
        self._others: set[Subscription] = set()
        self._uris: Counter[str] = Counter()
        """Subscriptions of each resource, by the normal form of its URI."""
        self._spellings: dict[str, str] = {}
        """The URIs of these as the server was given them: it may compare texts."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._revivals = BackgroundTasks(LISTEN)
        self._reviving = False
        """Whether a task will see that the channel is over."""

    def heard(self, method: str, params: Raw | UnsetType) -> None:
        """A notification of the server has come."""
        try:
            told = decode(b"{}" if params is UNSET else params, _Told)
        except (msgspec.DecodeError, RecursionError) as error:
            logger.debug("%s: %s", method, error)
            return
        if method == CANCELLED:
            # "A server MUST send `notifications/cancelled` referencing a `subscriptions/listen` request ID when it
            # tears down that subscription stream" (basic/patterns/cancellation)
            found = self.calls.get(told.request) if isinstance(told.request, int) else None
            if found is not None:
                found._torn_down()
            return
        id = told.meta.id if told.meta is not UNSET else UNSET
        one = self.calls.get(id) if isinstance(id, int) else None
        if method == ACKNOWLEDGED:
            if one is not None and params is not UNSET:
                one._acknowledge(params)
            return
        kind: Kind = LISTS.get(method, "resource")
        uri = told.uri if isinstance(told.uri, str) else None
        if one is not None:
            one._changed(Changed(kind, uri))
        for other in self._others:
            if other._wants(kind, uri):
                other._changed(Changed(kind, uri))

    # -- the stateful era

    async def subscribe(self, one: Subscription) -> None:
        """Start a subscription, as far as the server supports it."""
        can = self.far.era.capabilities
        lists = {"tools": can.tools, "prompts": can.prompts, "resources": can.resources}
        told = {kind: what is not UNSET and what.list_changed is True for kind, what in lists.items()}
        # "Both `subscribe` and `listChanged` are optional" (server/resources)
        single = can.resources is not UNSET and can.resources.subscribe is True
        self._others.add(one)
        for uri, spelling in one._uris.items() if single else ():
            async with self._turn(uri):
                if not self._uris[uri]:
                    await self.far.call("resources/subscribe", msgspec.json.encode({"uri": spelling}))
                    self._spellings[uri] = spelling
                self._uris[uri] += 1
                one._held.append(uri)
        wanted = one._wanted
        one.granted = SubscriptionFilter(
            tools_list_changed=True if wanted.tools_list_changed is True and told["tools"] else UNSET,
            prompts_list_changed=True if wanted.prompts_list_changed is True and told["prompts"] else UNSET,
            resources_list_changed=True if wanted.resources_list_changed is True and told["resources"] else UNSET,
            resource_subscriptions=[one._uris[uri] for uri in one._held] or UNSET,
        )

    async def unsubscribe(self, one: Subscription) -> None:
        """End a subscription."""
        self._others.discard(one)
        held, one._held = one._held, []
        for uri in held:
            async with self._turn(uri):
                self._uris[uri] -= 1
                if self._uris[uri] <= 0:
                    del self._uris[uri]
                    spelling = self._spellings.pop(uri, uri)
                    with contextlib.suppress(ChannelError, *_REFUSALS):
                        await self.far.call("resources/unsubscribe", msgspec.json.encode({"uri": spelling}))

    def _turn(self, uri: str) -> asyncio.Lock:
        """What of one resource goes to the server goes one after the other: who shares a subscription shares its
        outcome."""
        return self._turns.setdefault(uri, asyncio.Lock())

    async def renewed(self) -> None:
        """The server was connected again and has no state for us."""
        if self.far.era.revision.stateful:
            for uri in tuple(self._uris):
                try:
                    spelling = self._spellings.get(uri, uri)
                    await self.far.once("resources/subscribe", msgspec.json.encode({"uri": spelling}))
                except _REFUSALS as error:
                    self._refused(uri, error)
        for one in tuple(self._others):
            one._changed(Changed("again"))

    def _refused(self, uri: str, why: Exception) -> None:
        """The server does not notify about a resource any more: end the subscriptions to it."""
        del self._uris[uri]
        self._spellings.pop(uri, None)
        for one in tuple(self._others):
            if uri in one._held:
                one._held.remove(uri)
                one._end(why)

    def lost(self, why: Exception | None) -> None:
        """The channel is over (None: closed by us), or the session, and there is no other."""
        for one in tuple(self._others):
            if why is None or not one._again or not self.far.comes_back:
                one._end(why)
        if self._lasting and not self._reviving:
            self._reviving = True
            self._revivals.begin(self._revive())

    @property
    def _lasting(self) -> list[Subscription]:
        """Those of the stateful era that outlive what they were made in."""
        return [one for one in self._others if one._again and not one._over]

    async def _revive(self) -> None:
        """Connect again for the subscriptions that last, as long as one of them is open."""

        async def attempt() -> None:
            if self._lasting:
                await self.far.revive()

        try:
            await reconnect(attempt, PAUSES, faults=(ChannelError, CallTimeout))
        except Exception as error:
            for one in self._lasting:
                one._end(error)
        finally:
            self._reviving = False


class Subscription:
    """As `Client.subscribe`: an async context manager, and an async iterator of `Changed`."""

    def __init__(
        self,
        listening: SubscriptionManager,
        *,
        uris: Iterable[str] = (),
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        again: bool = False,
    ) -> None:
        self._uris: dict[str, str] = {}
        """The resources whose changes are wanted, by the normal form of their URIs."""
        for uri in uris:
            self._uris.setdefault(normal(uri), uri)
        self._again = again
        """Whether it is renewed when the server or the wire ends it."""
        self._wanted: SubscriptionFilter = SubscriptionFilter(
            tools_list_changed=True if tools else UNSET,
            prompts_list_changed=True if prompts else UNSET,
            resources_list_changed=True if resources else UNSET,
            resource_subscriptions=list(self._uris.values()) if self._uris else UNSET,
        )
        """What was asked for, as the protocol has it."""
        if self._wanted == SubscriptionFilter():
            raise LocalError("subscribe to something: uris=[...], tools=True, prompts=True, resources=True")
        self.granted: SubscriptionFilter = SubscriptionFilter()
        """What the server will notify about: the acknowledged filter, or what its capabilities allow."""
        self._held: list[str] = []
        """The resources that this client is subscribed to at a server of the stateful era."""
        self._listening = listening
        self._news: dict[Changed, None] = {}
        self._renewing = False
        self._over = False
        self._why: Exception | None = None
        self._fault: Exception | None = None
        """Why the last try failed."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._call: asyncio.Future[Raw] | None = None
        """The call of the stateless era, while it lives."""
        self._acknowledged: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Subscription {', '.join((*self._uris.values(), *msgspec.to_builtins(self._wanted)))}>"

    # -- for the user

    async def __aenter__(self) -> Subscription:
        far = self._listening.far
        if far.era.revision.stateful:
            try:
                await self._listening.subscribe(self)
            except BaseException:
                await self._listening.unsubscribe(self)
                raise
            return self
        loop = asyncio.get_running_loop()
        self._acknowledged = loop.create_future()
        self._task = loop.create_task(self._listen())
        try:
            async with asyncio.timeout(far.timeout):
                await asyncio.wait([self._acknowledged, self._task], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self.close()
            why = "" if self._fault is None else f": {self._fault}"
            raise CallTimeout(f"{LISTEN}: not acknowledged within {far.timeout} s{why}") from self._fault
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
        """The next change. Ends when the server ends the subscription or it is closed; raises the loss of the
        channel."""
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
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._listening.far.entered:
            await self._listening.unsubscribe(self)

    # -- for SubscriptionManager

    def _wants(self, kind: Kind, uri: str | None) -> bool:
        """Whether a change belongs to this subscription."""
        wanted = self._wanted
        if kind == "resource":
            return uri is not None and any(one in self._uris for one in above(normal(uri)))
        lists = {
            "tools": wanted.tools_list_changed,
            "prompts": wanted.prompts_list_changed,
            "resources": wanted.resources_list_changed,
        }
        return lists[kind] is True

    def _acknowledge(self, params: Raw) -> None:
        """The server has stated what it will notify about."""
        try:
            self.granted = decode(params, SubscriptionsAcknowledgedNotificationParams).notifications
        except (msgspec.DecodeError, RecursionError) as error:
            self._end(BadAnswer(f"{ACKNOWLEDGED}: {error}"))
        if self._acknowledged is not None and not self._acknowledged.done():
            self._acknowledged.set_result(None)
        if self._renewing:
            self._renewing = False
            self._changed(Changed("again"))

    def _changed(self, change: Changed) -> None:
        """A change has come."""
        if self._over:
            return
        if len(self._news) >= MOST_NEWS:
            self._news.clear()
            change = Changed("again")
        self._news[change] = None
        self._wake.set()

    def _end(self, why: Exception | None) -> None:
        """No further change will come."""
        if self._over:
            return
        self._over = True
        self._why = why
        if self._acknowledged is not None and not self._acknowledged.done():
            self._acknowledged.set_result(None)
        self._wake.set()

    # -- the stateless era

    def _torn_down(self) -> None:
        """The server has ended it by a cancel, after which it sends no answer."""
        if not self._again:
            self._end(None)
        elif self._call is not None:
            self._call.cancel()

    async def _listen(self) -> None:
        pauses, far, clock = backoff(*PAUSES), self._listening.far, asyncio.get_running_loop().time
        in_order = False
        while True:
            since = clock()
            later: float | None = 0.0
            try:
                await self._once()
                # "the subscription closed cleanly" says nothing of why: a server that drains for another one to take
                # its place ends it so, too
                in_order = True
                if not self._again or self._over or not far.comes_back:
                    self._end(None)
                    return
                logger.debug("%s: ended by the server, and asked for again", LISTEN)
            except (ChannelError, CallTimeout, RpcError) as error:
                # "a transport that closes without it indicates an unexpected disconnect, which the client MAY treat
                # as a trigger to reconnect"; a server that is busy or closing says when to come back
                later = _retry_after(error) if isinstance(error, RpcError) else 0.0
                if not self._again or self._over or later is None or not far.comes_back:
                    over = in_order and isinstance(error, ChannelError)  # it ended it, and then the channel
                    self._end(None if over else error)
                    return
                logger.debug("%s: lost or refused, and asked for again: %s", LISTEN, error)
                self._fault = error
            except Exception as error:
                self._end(error)
                return
            if clock() - since > PAUSES[1]:  # it was well in between
                pauses, in_order = backoff(*PAUSES), False
            await asyncio.sleep(max(next(pauses), later or 0.0))
            self._renewing = self._acknowledged is not None and self._acknowledged.done()

    async def _once(self) -> None:
        """One call, as long as it lives."""
        far = self._listening.far
        calls = self._listening.calls
        body = msgspec.json.encode({"notifications": self._wanted})
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
    """Seconds until a server that refused a call for the moment (busy, draining) may take it; None if it has said
    nothing of that."""
    asked = error.data.get("retry_after") if isinstance(error.data, dict) else None
    if isinstance(asked, bool) or not isinstance(asked, int | float):
        return None
    return min(asked, LONGEST_ASKED)
