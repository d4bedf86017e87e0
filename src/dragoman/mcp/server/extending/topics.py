"""Topics of extensions: what a subscriber is granted of them, and how their notifications are written.

An extension declares its topics (`protocol.extension.Topic`); its `ServerExtension.grant` decides for each caller. Who
gets a notification is decided by `subscriptions`, from the keys that were granted.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct, UnsetType

from ....channel import Caller
from ....jsonrpc.errors import InvalidParams, LocalError, RpcError
from ....repeats import Repeats
from ...protocol.admission import UNREADABLE, Admitted, SessionState
from ...protocol.encoding import decode
from ...protocol.extension import Topic
from ...session.changes import TopicEvent
from ..outcomes import check_declared
from .extension import ServerExtensions, TopicGrant

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

NOTIFICATION_SIZE: Final = 64 * 1024
"""Bytes of a topic's notification at most, its key included: the replicas' log of changes has room for 64 of them, and
a notification that needs more can name what the client is to read."""
GRANT_TIME: Final = 5.0
"""Seconds that an asynchronous `grant` may take: until it ends, its subscription counts among those that are open."""

TopicKey: TypeAlias = tuple[str, str]
"""The name of a topic, and one of its keys; keys are compared exactly."""

_encode = msgspec.json.Encoder().encode


class _ListenParams(Struct):
    """The params of `subscriptions/listen`, with all members of the filter as they came."""

    notifications: dict[str, Raw]


class _NotificationParams(Struct):
    """The member of a notification's params that is checked here, because `with_meta` adds to it."""

    meta: dict[str, Raw] | UnsetType = msgspec.field(default=msgspec.UNSET, name="_meta")


class GrantedTopics(Struct, frozen=True):
    """What a subscriber is granted of the topics."""

    members: dict[str, Raw]
    """The members of the acknowledgment."""
    keys: frozenset[TopicKey]
    """The keys whose notifications the subscriber gets."""


NOTHING: Final = GrantedTopics({}, frozenset())
"""Nothing of any topic is granted."""


class TopicGrants:
    """The topics of a server's extensions."""

    def __init__(self, extensions: ServerExtensions | None) -> None:
        self._extensions = ServerExtensions(()) if extensions is None else extensions
        self._by_name = self._extensions.declarations.topics
        self._by_member = {one.member: one for one in self._by_name.values()}
        self._of_sessions = [one for one in self._by_name.values() if one.sessions]

    # -- grants

    async def granted_to_call(self, admitted: Admitted, caller: Caller) -> GrantedTopics:
        """Return what a call of `subscriptions/listen` is granted of the topics in its filter. Raises RpcError for a
        topic of an extension that the client has not declared (-32021), for a null, and if a `grant` raises one."""
        if not self._by_member or isinstance(admitted.raw, UnsetType):
            return NOTHING
        filter = decode(admitted.raw, _ListenParams).notifications
        wanted = [(topic, filter[member]) for member, topic in self._by_member.items() if member in filter]
        for topic, _ in wanted:
            check_declared(admitted, self._extensions.declarations.of_topic(topic.name))
        return await self._granted([(topic, _value(topic, raw)) for topic, raw in wanted], caller)

    def of_session(self, session: SessionState) -> list[Topic]:
        """Return the topics that may notify a session: those with `sessions` whose extensions its client declared."""
        of_topic = self._extensions.declarations.of_topic
        return [one for one in self._of_sessions if session.capabilities.declares(of_topic(one.name).name)]

    async def granted_to_session(self, topics: list[Topic], caller: Caller) -> GrantedTopics:
        """Return what a session is granted of these topics. Raises RpcError if a `grant` raises one."""
        return await self._granted([(topic, None) for topic in topics], caller)

    async def _granted(self, wanted: list[tuple[Topic, Any]], caller: Caller) -> GrantedTopics:
        """Return what a caller is granted of these topics, each with the requested value. A `grant` that fails is
        logged, and grants nothing; one that raises RpcError refuses the subscription."""
        members: dict[str, Raw] = {}
        keys: set[TopicKey] = set()
        for topic, value in wanted:
            try:
                grant = await self._grant(topic, caller, value)
                if grant is not None:
                    members[topic.member] = Raw(_encode(grant.value))
                    keys.update((topic.name, key) for key in grant.keys)
            except RpcError:
                raise
            except Exception:
                repeats.error("nothing of the topic %s is granted: `grant` failed", topic.name, exc_info=True)
        return GrantedTopics(members, frozenset(keys))

    async def _grant(self, topic: Topic, caller: Caller, value: Any) -> TopicGrant | None:
        """Return what the extension of a topic grants. Raises what its `grant` raises, TimeoutError after `GRANT_TIME`,
        and TypeError if it returns neither a TopicGrant nor None."""
        extension = self._extensions.granting(topic.name)
        if extension is None:
            return None
        found: Any = extension.grant(topic.name, caller, value)
        if inspect.isawaitable(found):
            async with asyncio.timeout(GRANT_TIME):
                found = await found
        if found is None:
            return None
        if not isinstance(found, TopicGrant):
            raise TypeError(
                f"{type(extension).__name__}.grant returns TopicGrant(value, keys) or None, not {found!r:.100}"
            )
        if not (isinstance(found.keys, set | frozenset) and all(isinstance(key, str) for key in found.keys)):
            raise TypeError(f"{type(extension).__name__}.grant: keys is a set of texts, and not {found.keys!r:.100}")
        return found

    # -- notifications

    def event(self, topic: str, key: str, params: Mapping[str, Any] | Struct) -> TopicEvent:
        """Return the notification for those who were granted a key of a topic. Raises LocalError for a topic that no
        extension declares, for a key that is no text, for params that are no JSON object, and for more than
        `NOTIFICATION_SIZE` bytes."""
        if topic not in self._by_name:
            known = ", ".join(map(repr, self._by_name)) or "none"
            raise LocalError(f"notify: no extension of this server declares the topic {topic!r:.100}; there is {known}")
        where = f"notify({topic!r}, ...)"
        if not isinstance(key, str):
            raise LocalError(f"{where}: the key is a str, and not {key!r:.100}")
        try:
            length = len(key.encode())
            body = _encode(dict(params) if isinstance(params, Mapping) else params)
            decode(body, _NotificationParams)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise LocalError(
                f"{where}: key and params are sent as JSON, the params an object, its `_meta` too: {error}"
            ) from error
        if length + len(body) > NOTIFICATION_SIZE:
            raise LocalError(
                f"{where}: {length + len(body)} bytes, and {NOTIFICATION_SIZE} may be sent: "
                "name what the client is to read"
            )
        return TopicEvent(topic, key, body)

    def method(self, event: TopicEvent) -> str:
        """Return the method of a topic's notification."""
        return self._by_name[event.topic].method


def with_meta(params: bytes, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of a notification, with these members added to its `_meta`."""
    members: dict[str, Any] = decode(params, dict[str, Raw])
    own = decode(members["_meta"], dict[str, Raw]) if "_meta" in members else {}
    return members | {"_meta": own | dict(meta)}


def _value(topic: Topic, raw: Raw) -> Any:
    """Return the value of a topic's member of the filter. Raises InvalidParams if it cannot be read, or is null."""
    where = f"Invalid params: `notifications.{topic.member}`"
    try:
        value = decode(raw, Any)
    except UNREADABLE as error:
        raise InvalidParams(f"{where}: {error}") from None
    if value is None:  # to `grant` None means a session
        raise InvalidParams(f"{where} is null: leave it out to subscribe to nothing of it")
    return value
