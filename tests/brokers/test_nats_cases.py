"""The table of wire cases over NATS, at most once and at least once."""

from __future__ import annotations

import pytest

from dragoman.channel import Options
from dragoman.transports.nats import post_at
from dragoman.transports.urls import parse

from .engines import Engine, name
from .wire_table import every_case


@pytest.mark.parametrize("stream", [False, True], ids=["core", "stream"])
async def test_every_case_has_its_answer(nats: Engine, stream: bool) -> None:
    url = f"{nats.url}/{name()}" + (f"?stream={name('work')}" if stream else "")
    post, line = post_at(parse(url), Options())
    await line.open()
    await every_case(url, post)
