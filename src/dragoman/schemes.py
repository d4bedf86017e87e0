"""Finds the wire for a URL in the table of schemes (`net.scheme`): `dial` and `listen`.

Rules:

- A wire's module is imported when its scheme is used.
- A missing third-party package is a `LocalError` that names the extra to install.
- Wires know `channel.Servable`, never a service; they know `jsonrpc` and never `rpc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .channel import Channel, Dial, Listen, Listener, Options, Servable
from .jsonrpc.errors import LocalError
from .jsonrpc.options import nearest_name
from .net.scheme import SCHEMES, load, missing_package_error
from .net.urls import mask_url, printable, scheme_of
from .system.sockets import NO_UNIX, UNIX

_ADDRESS = r"(?:[a-z]+//)?(?P<at>(?:\[[0-9a-fA-F:.]+\]|[\w-]+(?:\.[\w-]+)*):\d+(?:/\S*)?|(?<=//)\S+)"
"""A host and port without a scheme, or with one that lacks its colon."""


async def dial(target: str | Sequence[str], options: Options) -> Channel:
    """A channel to a URL, or to a child process: a command as a list, or as a string without a scheme, split as the
    shell would. Raises Broken when nothing answers, LocalError when `target` is invalid."""
    if not isinstance(target, str) or not scheme_of(target):
        started: Any = load("stdio", "transports.stream.stdio.start")
        _require_scheme(target)
        channel: Channel = await started(_command(target), options)
        return channel
    scheme = known(target)
    with _naming_extras(scheme):
        reach: Dial = load(scheme, SCHEMES[scheme].dial)
        return await reach(target, options)


async def listen(url: str, served: Mapping[str, Servable], options: Options) -> Listener:
    """Listen at a URL. Raises LocalError, in one sentence, when that is not possible."""
    if not scheme_of(url):
        bare = re.fullmatch(r":?(\d+)", url)
        at = f"127.0.0.1:{bare[1]}" if bare else address["at"] if (address := re.fullmatch(_ADDRESS, url)) else ""
        write = f"; write http://{at}, ws://{at} or tcp://{at}" if at else ""
        raise LocalError(f"Cannot listen on {mask_url(url)!r}: a URL begins with a scheme: {', '.join(SCHEMES)}{write}")
    scheme = known(url)
    if options.guard is not None and (why := SCHEMES[scheme].unguarded):
        raise LocalError(f"{mask_url(url)}: guard= cannot be used here: {why}")
    with _naming_extras(scheme):
        start: Listen = load(scheme, SCHEMES[scheme].listen)
        return await start(url, served, options)


def _require_scheme(target: str | Sequence[str]) -> None:
    """Raise LocalError for a URL whose scheme or its colon is missing, which would be taken for a command."""
    if isinstance(target, str) and (address := re.fullmatch(_ADDRESS, target)):
        raise LocalError(
            f"{mask_url(target)} lacks its scheme: write tcp://{address['at']}, http://{address['at']} or ws://..."
        )


def known(url: str) -> str:
    """Return the scheme of a URL. Raises LocalError, which lists the schemes of the table, for another one."""
    scheme = scheme_of(url)
    if scheme not in SCHEMES:
        raise LocalError(_unknown(url, scheme))
    if scheme == "unix" and not UNIX:
        raise LocalError(f"{mask_url(url)}: {NO_UNIX}")
    return scheme


def _unknown(url: str, scheme: str) -> str:
    text = f"{mask_url(url)}: unknown scheme {printable(scheme)!r}; the schemes are {', '.join(SCHEMES)}"
    near = nearest_name(scheme, SCHEMES, 0.5)
    port = url.partition(":")[2]
    if port.isascii() and port.isdigit():  # "localhost:9000"
        return f"{text}. Did you mean tcp://{mask_url(url)}?"
    return f"{text}. Did you mean {near}:?" if near else text


def _command(target: str | Sequence[str]) -> list[str]:
    if isinstance(target, str):
        from .system.words import split_command  # noqa: PLC0415  (start-up: for a command)

        text = target
        try:
            target = split_command(text)
        except ValueError as fault:
            raise LocalError(f"{printable(text)!r} is neither a URL nor a command: {fault}") from None
    if not target or not all(isinstance(word, str) for word in target):
        raise LocalError(
            "A command is a list of strings that is not empty, and a URL begins with a scheme such as tcp://"
        )
    return list(target)


@contextmanager
def _naming_extras(scheme: str) -> Iterator[None]:
    """Raise a LocalError that names the extra for a package that a wire imports and does not find when it is used."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise missing_package_error(scheme, missing) from missing
