"""The subscriptions of webhooks: `events/subscribe` makes and refreshes them, `events/unsubscribe` ends them.

Rules:

- A webhook belongs to a caller with an identity.
- Its receiver proves that it wants the events before a subscription is kept, and again once a day.
- To refresh a subscription is to make it again; a new secret signs beside the old one for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hmac import compare_digest
from typing import Final

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from ....access import identity_of
from ....buckets import Buckets
from ....channel import Caller, Identity
from ....events.catalog import EventArguments, EventDefinition
from ....events.outbox import SubscriptionRecord
from ....events.publisher import EventPublisher
from ....jsonrpc.errors import InvalidParams, LocalError, RpcError
from ....kept_identity import keep_identity
from ....net.urls import Url
from ...protocol.params import EmptyResult
from ...protocol.times import to_iso
from ...server.context import Context
from . import model
from .admission import Admission
from .challenging import ask_challenge
from .delivery import status_of
from .model import EventCodes, Profile, SubscribeEventsParams, SubscribeEventsResult, UnsubscribeEventsParams
from .sealing import Unreadable, seal, unseal
from .sender import WebhookSender
from .signing import read_secret

ROTATION: Final = 300.0
"""Seconds for which a secret that was replaced signs, too: as long as a signature is valid."""


class Webhooks:
    """The webhook subscriptions of one `Events`. `keys`: seal secrets; `ttl`: seconds that a subscription lives unless
    its client wants otherwise."""

    def __init__(
        self,
        publisher: EventPublisher,
        admission: Admission,
        sender: WebhookSender,
        *,
        profile: Profile,
        codes: EventCodes,
        keys: Sequence[bytes],
        ttl: float,
    ) -> None:
        limits = publisher.limits
        self._publisher = publisher
        self._admission = admission
        self._box = publisher.box
        self._sender = sender
        self._clock = publisher.clock
        self._profile = profile
        self._limits = limits
        self._codes = codes
        self._keys = keys
        self._ttl = ttl
        self._verifying: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._challenges = Buckets(limits.verifications / 60, limits.verifications, 10_000)
        """By host."""
        self._challengers = Buckets(limits.verifications_each / 60, limits.verifications_each, 10_000)
        """By account."""

    async def subscribe(self, params: SubscribeEventsParams, ctx: Context) -> SubscribeEventsResult:
        """Answer `events/subscribe`: make a subscription, or refresh it."""
        if params.delivery.mode != "webhook":
            raise self._admission.unsupported(params.delivery.mode)
        definition = self._admission.find(params.name, "webhook")
        identity = self._subscriber(ctx.caller)
        arguments = self._admission.arguments(definition, params.arguments, identity)
        secret = params.delivery.secret
        try:
            url = self._sender.read_url(params.delivery.url)
            read_secret(secret)  # type: ignore[arg-type]  # what is no text is no secret
        except LocalError as error:
            raise InvalidParams(f"Invalid params: {error}") from None
        assert isinstance(secret, str)
        principal = identity.principal
        id = model.subscription_id(principal, params.delivery.url, params.name, Raw(arguments.text))
        await self._admit(id, identity, params.delivery.url, url, secret)
        start = self._admission.start(params.name, params.cursor, params.max_age_ms)
        record, before = await self._keep(params, ctx, definition, arguments, identity, url, id, start[0])
        self._publisher.wake()
        state = self._box().state(params.name)
        return SubscribeEventsResult(
            id=id,
            refresh_before=to_iso(record.expires),
            cursor=self._box().cursor(params.name, record.position),
            truncated=start[1] if before is None else record.position < state.gone,
            delivery_status=UNSET if before is None else status_of(before),
        )

    def _subscriber(self, caller: Caller) -> Identity:
        """Return who subscribes. "Servers MUST reject calls without an authorized principal with `Forbidden`"."""
        identity = identity_of(caller)
        if identity is None:
            text = "Forbidden: a webhook belongs to a caller, and this one is anonymous: the server needs auth="
            raise RpcError.of(self._codes.forbidden, text, {"error": "access_denied"})
        return identity

    async def _admit(self, id: str, identity: Identity, url_text: str, url: Url, secret: str) -> None:
        """Let a subscription be made or refreshed: there is room for it, and its receiver has proved itself."""
        outbox, now = self._box(), self._clock.now()
        if outbox.subscription(id) is None:
            with self._admission.limited():
                outbox.check_room(identity.account, now)
        if outbox.is_verified(identity.principal, url_text, now):
            return
        key = identity.principal, url_text
        verifying = self._verifying.get(key)
        if verifying is None:
            if self._challengers.take(identity.account, now):
                raise self._admission.exhausted("verifications_each", self._limits.verifications_each)
            if self._challenges.take(url.host.lower(), now):
                raise self._admission.exhausted("verifications", self._limits.verifications)
            verifying = asyncio.create_task(self._verify(id, key, url, secret))
            self._verifying[key] = verifying
            verifying.add_done_callback(lambda _: self._verifying.pop(key, None))
        await asyncio.shield(verifying)

    async def _verify(self, id: str, key: tuple[str, str], url: Url, secret: str) -> None:
        """Ask a receiver for a challenge that is used once. Raises RpcError if it does not return it."""
        connection = self._sender.connect(url)
        try:
            reason = (await ask_challenge(connection, secret, id, self._clock.now())).reason
        finally:
            await connection.close()
        if reason is not None:
            text = f"CallbackEndpointError: the receiver of the webhook did not prove itself ({reason})"
            raise RpcError.of(self._codes.callback, text, {"reason": reason})
        with self._admission.limited():
            await self._box().keep_verified(*key, self._clock.now())

    async def _keep(
        self,
        params: SubscribeEventsParams,
        ctx: Context,
        definition: EventDefinition,
        arguments: EventArguments,
        identity: Identity,
        url: Url,
        id: str,
        start: int,
    ) -> tuple[SubscriptionRecord, SubscriptionRecord | None]:
        """Make or refresh a subscription; return it, and what it was before."""
        now, before = self._clock.now(), None
        secret = str(params.delivery.secret)
        access = definition.access
        allowing = access is not None and access.allow is not None  # only that looks at claims
        fresh = SubscriptionRecord(
            id=id,
            account=identity.account,
            principal=identity.principal,
            name=params.name,
            arguments=arguments.text,
            url=params.delivery.url,
            origin=f"{url.scheme}://{url.address.lower()}",
            declared=self._profile == "sep" or (self._profile == "both" and ctx.capabilities.declares(model.NAME)),
            secret=seal(self._keys, secret.encode(), id),
            identity=seal(self._keys, bytes(keep_identity(identity if allowing else replace(identity, claims={}))), id),
            expires=now + self._life(params.ttl_ms),
            position=start,
        )

        def edit(found: SubscriptionRecord | None) -> SubscriptionRecord:
            nonlocal before
            before = found if found is not None and found.expires > now else None
            return fresh if before is None else self._refreshed(before, fresh, secret, now)

        with self._admission.limited():
            record = await self._box().put(id, identity.account, edit, now)
        assert record is not None
        return record, before

    def _refreshed(
        self, found: SubscriptionRecord, fresh: SubscriptionRecord, secret: str, now: float
    ) -> SubscriptionRecord:
        """Return a subscription that its client has refreshed."""
        try:
            same = compare_digest(unseal(self._keys, found.secret, found.id), secret.encode())
            old, until = (found.old_secret, found.old_until) if same else (found.secret, now + ROTATION)
        except Unreadable:
            old, until = b"", 0.0
        resumed = not found.active
        return replace(
            fresh,
            old_secret=old,
            old_until=until,
            position=found.position,
            attempts=0 if resumed else found.attempts,
            due=0.0 if resumed else found.due,
            delivered=found.delivered,
            failed=found.failed,
            error=found.error,
        )

    def _life(self, ttl: model.Milliseconds) -> float:
        """Return the seconds that a subscription lives: as long as its client wants, within the bounds."""
        wanted = self._ttl if isinstance(ttl, UnsetType) else self._limits.ttl_most if ttl is None else ttl / 1000
        return min(max(wanted, self._limits.ttl_least), self._limits.ttl_most)

    async def unsubscribe(self, params: UnsubscribeEventsParams, ctx: Context) -> EmptyResult:
        """Answer `events/unsubscribe`."""
        identity = self._subscriber(ctx.caller)
        definition = self._admission.definition(params.name)
        arguments = definition.arguments_of(params.arguments, self._limits.arguments_size)
        id = model.subscription_id(identity.principal, params.delivery.url, params.name, Raw(arguments.text))
        if not await self._box().remove(id) and (self._profile == "sep" or ctx.capabilities.declares(model.NAME)):
            text = "NotFound: there is no such subscription"
            raise RpcError.of(self._codes.not_found, text, {"kind": "subscription"})
        return EmptyResult()
