"""The doctor names each faulty peer, calls no healthy one faulty, and tells slowness and silence as that."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.cli.doctor.doctor import run_examination
from dragoman.cli.options import WireOptions

from .peers import FAULTY, HEALTHY, SLOW, Peer
from .test_faults import link, listening

AMPLE = 30.0
"""Seconds of patience where nothing is slow."""


@contextlib.asynccontextmanager
async def url_of(place: str, peer: Peer, folder: Path) -> AsyncIterator[str]:
    """The URL of a peer that listens as `place` says."""
    scheme, _, path = place.partition(":")
    at = f"{folder}/far.sock" if scheme == "unix" else None
    async with listening(peer, path=at) as port:
        yield f"unix:{at}" if at is not None else f"{scheme}://127.0.0.1:{port}{path}"


@pytest.mark.parametrize(("place", "what", "peer", "kind", "fix"), FAULTY, ids=[f"{one[0]} {one[1]}" for one in FAULTY])
async def test_a_faulty_peer_is_named(place: str, what: str, peer: Peer, kind: str, fix: str, tmp_path: Path) -> None:
    patience = 1.0 if "lines" in what and place != "redis:/calc" else AMPLE  # it is silent before the last look
    async with url_of(place, peer, tmp_path) as url:
        record = await run_examination(url, link(timeout=patience), WireOptions())
    assert record.fault is not None, record
    assert (record.verdict, record.fault.kind) == ("faulty", kind), record
    assert fix in record.fault.fix


@pytest.mark.parametrize(("place", "what", "peer"), HEALTHY, ids=[f"{one[0]} {one[1]}" for one in HEALTHY])
async def test_a_healthy_peer_has_no_fault(place: str, what: str, peer: Peer, tmp_path: Path) -> None:
    async with url_of(place, peer, tmp_path) as url:
        record = await run_examination(url, link(timeout=AMPLE), WireOptions())
    assert record.fault is None, record


@pytest.mark.parametrize(("place", "what", "peer", "patience"), SLOW, ids=[f"{one[0]} {one[1]}" for one in SLOW])
async def test_a_slow_peer_is_not_faulty(place: str, what: str, peer: Peer, patience: float, tmp_path: Path) -> None:
    async with url_of(place, peer, tmp_path) as url:
        record = await run_examination(url, link(timeout=patience), WireOptions())
        await asyncio.sleep(0)
    assert record.verdict != "faulty", record
    if "never answers" in what:
        assert record.verdict == "silent", record
    if record.fault is not None:
        assert "--timeout" in record.fault.fix
