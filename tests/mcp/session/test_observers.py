"""What observers are told of sessions over HTTP."""

from __future__ import annotations

from typing import Any

from dragoman.mcp.protocol.revisions import R2025_03
from dragoman.observer import Observation, Rejection
from tests.behind import behind

from ..http_wire import body
from ..replicas import KINDS, accepted, sessions


class Told:
    """An observer that remembers what came in."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, str, str]] = []

    def came_in(self, seen: Observation) -> None: ...

    def outbound(self, seen: Observation) -> None: ...

    def started(self, seen: Observation) -> None: ...

    def ended(self, seen: Observation) -> None:
        if seen.direction == "in":
            self.ends.append((seen.kind, seen.method, seen.caller.scheme))

    def rejected(self, seen: Rejection) -> None: ...


@KINDS
async def test_a_batch_of_calls_is_told_and_one_of_answers_belongs_to_their_calls(kind: str) -> None:
    async with sessions(kind) as place:
        here: Any = place.at(0, await place.begin(R2025_03, {"roots": {}}))
        told = Told()
        place.servers[0].observe(told)
        assert (await here.post(b"[%b,%b]" % (accepted(1), accepted(2)))).status == 202
        assert [one for one in told.ends if one[0] == "batch"] == []
        told.ends.clear()
        assert (await here.post(b"[%b,%b]" % (accepted(1), body("ping", id=5)))).status == 200
        assert ("batch", "", "http") in told.ends
        assert ("request", "ping", "http") in told.ends


@KINDS
async def test_a_session_has_the_wire_that_it_began_on(kind: str) -> None:
    async with sessions(kind) as place:
        await place.begin()
        (peer, *_) = behind(place.servers[0]).host.peers
        caller = peer._channel.caller
        assert (caller.scheme, caller.path, caller.tls, caller.remote.startswith("127.0.0.1")) == (
            "http",
            "/mcp",
            False,
            True,
        )
