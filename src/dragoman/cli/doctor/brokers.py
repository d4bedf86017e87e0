"""The step at a broker: what answers to the beginning of its protocol, before the library speaks it.

The libraries of brokers wait long for a far end that speaks something else, and say little of it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

from msgspec import Struct

from ...net.replies import excerpt
from ...net.strangers import recognise_stranger
from ...net.urls import Url, credentials
from ..faults import diagnose_silence, diagnose_stranger, log_in_at_broker
from ..options import AccessOptions
from .record import Diagnosis, Examination, FaultFound, Patience


class Greeting(Struct, frozen=True):
    """How a broker's protocol begins."""

    hello: bytes
    """What a client sends first."""
    welcome: tuple[bytes, ...]
    """How the answers of such a broker begin."""
    unless: bytes = b"\x00never"
    """What an answer has that wants a password first."""


GREETINGS: Mapping[str, Greeting] = {
    "amqp": Greeting(b"AMQP\x00\x00\x09\x01", (b"\x01\x00\x00",)),
    "mqtt": Greeting(b"\x10\x14\x00\x04MQTT\x04\x02\x00\x05\x00\x08dragoman", (b"\x20\x02", b"\x20\x03")),
    "nats": Greeting(b"PING\r\n", (b"INFO ", b"PONG"), b'"auth_required":true'),
    "redis": Greeting(b"PING\r\n", (b"+PONG", b"-"), b"-NOAUTH"),
}


async def greet(url: Url, access: AccessOptions, record: Examination, patience: Patience) -> None:
    """The step that says the first words of a broker's protocol and looks at the answer. Raises FaultFound."""
    greeting = GREETINGS[url.plain]
    with record.step("broker") as step:
        said = await _said(url, access, greeting, patience)
        if said.startswith(greeting.welcome):
            if greeting.unless in said and credentials(url) is None and not url.query:
                raise FaultFound(log_in_at_broker(url, "it asks for a login, and none was given"))
            step.said = f"speaks {url.plain.upper()}"
        elif (words := recognise_stranger(said, url.scheme)) is not None:
            raise FaultFound(diagnose_stranger(words, url.shown))
        elif said:
            fix = "check host and port: another protocol is there"
            raise FaultFound(
                Diagnosis("other_protocol", f"{url.shown} speaks no {url.plain.upper()}: {excerpt(said)}", fix)
            )
        else:
            raise FaultFound(await _silent(url, patience))


async def _silent(url: Url, patience: Patience) -> Diagnosis:
    found = diagnose_silence(url.shown, patience.total, request=f"the beginning of {url.plain.upper()}")
    return Diagnosis("silent", found.what, f"check host and port; {found.fix.partition('; else')[0]}", False)


async def _said(url: Url, access: AccessOptions, greeting: Greeting, patience: Patience) -> bytes:
    """The first bytes of the answer; b"" where none came in time. Raises FaultFound for a far end that hung up."""
    tls = (access.tls() or ssl.create_default_context()) if url.tls else None
    said = b""
    try:
        async with asyncio.timeout(patience.left):
            reader, writer = await asyncio.open_connection(url.host or "localhost", url.port, ssl=tls)
            try:
                writer.write(greeting.hello)
                said = await reader.read(4096)
            finally:
                writer.transport.abort()
    except TimeoutError:
        return b""
    except OSError:
        said = b""
    if not said:
        fix = f"check host and port: another protocol may be there, or {url.scheme}s:// is wanted"
        if url.tls:
            fix = "check host and port: another protocol may be there"
        raise FaultFound(
            Diagnosis("hung_up", f"{url.shown} closes the connection at the beginning of {url.plain.upper()}", fix)
        )
    return said
