"""Two callers that share a broker, with the access rules that the pages show: what both do, whatever the broker.

`docs/snippets/wires/*_tenants*` are the rules; a test starts a broker with them, and tries what its protocol has for
reading and forging what is another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote

from dragoman import Context, Peer, Service, connect, serve
from tests.snippets import SNIPPETS

from .wires import PATIENCE

WHO = ("worker", "alice", "mallory")
PASSWORDS = {"worker": "of-the-worker", "alice": "of-alice", "mallory": "of-mallory"}


def rules(name: str) -> str:
    """What a page shows."""
    return (SNIPPETS / "wires" / name).read_text()


def url_of(base: str, who: str, path: str, *query: str) -> str:
    """The URL of a tenant; `base`: scheme, host and port."""
    scheme, _, place = base.partition("://")
    said = "&".join((*query, f"mailbox={who}"))
    return f"{scheme}://{who}:{quote(PASSWORDS[who])}@{place.rpartition('@')[2]}/{path}?{said}"


class Bank:
    """A service that says what it saw: the mailboxes of its callers, and the calls that were cancelled."""

    def __init__(self) -> None:
        self.mailboxes: dict[str, str] = {}
        self.cancelled: list[str] = []
        self.waiting = asyncio.Event()
        self.service = Service("bank")
        self.service.method(self.pay)
        self.service.method(self.wait)

    async def pay(self, who: str, context: Context) -> str:
        self.mailboxes[who] = context.caller.remote
        await context.progress(1)
        return f"{who} paid"

    async def wait(self, who: str) -> None:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(who)
            raise


@asynccontextmanager
async def tenants(base: str, path: str, *query: str) -> AsyncIterator[tuple[Bank, Peer, Peer]]:
    """The worker, and both callers, each of which has called, been told of progress, and cancelled."""
    bank = Bank()
    urls = {who: url_of(base, who, path, *query) for who in WHO}
    async with (
        serve(bank.service, urls=urls["worker"]),
        connect(urls["alice"], timeout=PATIENCE) as alice,
        connect(urls["mallory"], timeout=PATIENCE) as mallory,
    ):
        for who, peer in (("alice", alice), ("mallory", mallory)):
            told: list[object] = []
            assert await peer.call("pay", [who], on_progress=told.append) == f"{who} paid"
            assert f"{who}" in bank.mailboxes[who]
            bank.waiting.clear()
            waiting = asyncio.create_task(peer.call("wait", [who]))
            async with asyncio.timeout(PATIENCE):
                await bank.waiting.wait()
            waiting.cancel()
            async with asyncio.timeout(PATIENCE):
                while who not in bank.cancelled:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        yield bank, alice, mallory


async def pays(peer: Peer, who: str, times: int = 5) -> Sequence[str]:
    """Calls whose requests and answers another could read or forge."""
    return [await peer.call("pay", [who]) for _ in range(times)]


__all__ = ["PASSWORDS", "WHO", "Bank", "pays", "rules", "tenants", "url_of"]
