"""Takeover: when a worker of a topic dies, another one takes over its requests.

Brokers go on queueing a dead worker's share of the requests until its session expires, and pass none of it to others.
So each worker has a will at `<topic>/fallen/<group>/<client>`. The others claim the dead worker's requests, and the
first claimant (by name) connects under its client id, publishes its requests again, and ends its session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from ...net.reconnect import RECONNECT_GRACE, BackgroundTasks
from .connection import MqttEndpoint, MqttLink
from .messages import MqttMessage
from .topics import OWN_NAME

log: logging.Logger = logging.getLogger("dragoman.wire")

SECONDS_TO_CLAIM, SECONDS_TO_INHERIT, SECONDS_TO_END = 0.5, 15.0, 5.0
"""How long workers wait for one another's claims; how long for the heir to report that it is done, before another
worker claims; and how long the heir waits while no queued message comes or goes."""


class TakeoverWorker(Protocol):
    """The members of a worker that its takeovers use. A Protocol, because the worker makes its takeovers."""

    topic: str
    shown: str
    endpoint: MqttEndpoint
    link: MqttLink | None
    working: list[str]
    closing: bool
    renewing: int
    background: BackgroundTasks

    def renewed(self) -> None:
        """Count one of `renewing` as done."""

    async def republish(self, link: MqttLink, message: MqttMessage, more: int) -> None:
        """Publish a request again for other workers, then acknowledge it."""

    async def mark_end(self, link: MqttLink, filters: list[str]) -> None:
        """Take no more, and send a message that comes after everything that the broker has queued."""


class Takeovers:
    """The takeovers of one worker. `fallen`: the topic above the wills of the worker's group."""

    def __init__(self, adapter: TakeoverWorker, fallen: str) -> None:
        self._adapter = adapter
        self._fallen = fallen
        self._claims: dict[str, set[str]] = {}
        self._turn = asyncio.Lock()  # one takeover at a time: two would wait for the same window of the broker

    def receive(self, link: MqttLink, client: str, message: MqttMessage) -> None:
        """Take a worker's will, another worker's claim, `<client> <heir>`, or an empty message: the worker has come
        back, or its heir is done. A retained will may be old, so its worker has the usual time to come back."""
        words = message.body.decode("latin-1").split()
        if not words:
            self._claims.pop(client, None)
        elif len(words) == 2 and client in self._claims:
            self._claims[client].add(words[1])
        elif (
            words == [client]
            and OWN_NAME.fullmatch(client)
            and self._adapter.working
            and client != self._adapter.endpoint.client
        ):
            claims = self._claims[client] = set()
            later = RECONNECT_GRACE if message.retained else 0.0
            asyncio.get_running_loop().call_later(later, self._claim, link, client, claims)

    def _claim(self, link: MqttLink, client: str, claims: set[str]) -> None:
        if self._claims.get(client) is claims and not link.why and not self._adapter.closing:
            self._adapter.background.begin(self._inherit(link, client, claims))

    def forget_will(self, link: MqttLink, client: str) -> None:
        """Have the broker drop the will of a worker that it retains."""
        link.publish_unconfirmed(MqttMessage(topic=f"{self._fallen}/{client}", body=b"", retained=True))

    async def _inherit(self, link: MqttLink, client: str, claims: set[str]) -> None:
        """Claim a dead worker's requests; as the first claimant, take them over. If this worker dies meanwhile, the
        will is published again."""
        mine = self._adapter.endpoint.client
        claims.add(mine)
        if not link.why:
            link.publish_unconfirmed(MqttMessage(topic=f"{self._fallen}/{client}", body=f"{client} {mine}".encode()))
        await asyncio.sleep(SECONDS_TO_CLAIM)
        if self._claims.get(client) is not claims or link.why:  # the worker is back; or the broker died, not the worker
            return
        if min(claims) != mine:
            claims.clear()
            asyncio.get_running_loop().call_later(SECONDS_TO_INHERIT, self._claim, link, client, claims)
            return
        del self._claims[client]
        async with self._turn:
            self._adapter.renewing += 1
            try:
                await self._take_over(client)
            finally:
                self._adapter.renewed()

    async def _take_over(self, client: str) -> None:
        """Publish a dead worker's requests again, and end its session; if that fails, its will is published again."""
        end, republished = asyncio.Event(), list[asyncio.Task[None]]()

        def take(inherited: MqttLink, one: MqttMessage) -> None:
            if one.topic == self._adapter.topic or one.topic.startswith(f"{self._adapter.topic}/request/"):
                republished.append(
                    self._adapter.background.begin(self._adapter.republish(inherited, one, int(one.again)))
                )
            else:
                inherited.acknowledge(one)
                if one.topic.startswith(f"{self._adapter.topic}/reply/"):
                    end.set()

        will = f"{self._fallen}/{client}", client.encode()
        inherited = MqttLink(
            replace(self._adapter.endpoint, client=client, will=will), take, lambda link, why: end.set()
        )
        done = False
        try:
            await inherited.open()
            if inherited.resumed:
                log.warning(
                    "%s: a worker of %s died; what it had goes to the others", self._adapter.shown, self._adapter.topic
                )
                await self._adapter.mark_end(inherited, self._adapter.working)
                await self._wait_republished(end, republished)
            done = not inherited.why and not inherited.owes
        except (OSError, ValueError) as why:  # it lives after all and has reconnected, or the broker is lost
            log.info("%s: what a dead worker had is not ours: %s", self._adapter.shown, why)
        finally:
            # what is not sent yet would delay the next try; its original stays in the dead worker's session
            for task in republished:
                task.cancel()
            await inherited.close(forget=done)
        if done and self._adapter.link is not None and not self._adapter.link.why:
            self.forget_will(self._adapter.link, client)

    async def _wait_republished(self, end: asyncio.Event, republished: Sequence[asyncio.Task[None]]) -> None:
        """Wait until everything is published again, as long as there is some progress every few seconds: our own link
        may have a queue of its own. Starting again because a machine is slow would publish requests twice, and count
        each as one more delivery. Raises TimeoutError."""

        def headway() -> tuple[int, int, int]:
            link = self._adapter.link
            return len(republished), sum(task.done() for task in republished), 0 if link is None else link.confirmed

        while not end.is_set():
            before = headway()
            try:
                await asyncio.wait_for(end.wait(), SECONDS_TO_END)
            except TimeoutError:
                if before == headway():
                    raise
        await asyncio.gather(*republished)
