"""The wires, one a file, and the table that finds them by the scheme of a URL.

Rules:

- A wire's module is imported when its scheme is used, so that nobody pays for a wire he does not use.
- A third-party package that is missing is a `LocalError` that names the extra to install.
- Wires know `channel.Served`, never a service; they know `jsonrpc` and never `rpc`.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import cast

from ..channel import Channel, Dial, Listen, Listener, Options, Served
from ..jsonrpc.errors import LocalError
from .urls import masked, printable, scheme_of

SCHEMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "http": ("http_client", "http_server"),
        "https": ("http_client", "http_server"),
        "ws": ("websocket", "http_server"),
        "wss": ("websocket", "http_server"),
        "tcp": ("stream", "stream"),
        "tls": ("stream", "stream"),
        "unix": ("stream", "stream"),
        "udp": ("udp", "udp"),
        "memory": ("memory", "memory"),
        "stdio": ("stdio", "stdio"),
        "amqp": ("amqp", "amqp"),
        "amqps": ("amqp", "amqp"),
        "mqtt": ("mqtt", "mqtt"),
        "mqtts": ("mqtt", "mqtt"),
        "nats": ("nats", "nats"),
        "natss": ("nats", "nats"),
        "redis": ("redis", "redis"),
        "rediss": ("redis", "redis"),
    }
)
"""Scheme -> the modules that dial it and that listen on it."""

EXTRAS: Mapping[str, str] = MappingProxyType(
    {
        "httptools": "http",
        "websockets": "websocket",
        "aio_pika": "amqp",
        "aiormq": "amqp",
        "paho": "mqtt",
        "nats": "nats",
        "redis": "redis",
    }
)
"""Third-party package -> the extra of ours that brings it."""


async def dial(target: str | Sequence[str], options: Options) -> Channel:
    """A channel to a URL, or to a child process: a command as a list, or as a string without a scheme, split as the
    shell would. Broken when nobody answers; LocalError when `target` makes no sense."""
    if not isinstance(target, str) or not scheme_of(target):
        command = _command(target)
        start = import_module(".stdio", __name__).start
        return cast(Channel, await start(command, options))
    with _packages(target):
        reach = cast(Dial, _module(target, 0).dial)
        return await reach(target, options)


async def listen(url: str, served: Mapping[str, Served], options: Options) -> Listener:
    """An open door at a URL. LocalError, with one clear sentence, when it cannot be opened there."""
    if not scheme_of(url):
        raise LocalError(f"Cannot listen on {masked(url)!r}: a URL begins with a scheme: {', '.join(SCHEMES)}")
    with _packages(url):
        start = cast(Listen, _module(url, 1).listen)
        return await start(url, served, options)


def _module(url: str, side: int) -> ModuleType:
    scheme = scheme_of(url)
    if scheme not in SCHEMES:
        raise LocalError(_unknown(url, scheme))
    return import_module(f".{SCHEMES[scheme][side]}", __name__)


def _unknown(url: str, scheme: str) -> str:
    text = f"{masked(url)}: nothing is known of {printable(scheme)!r}; the schemes are {', '.join(SCHEMES)}"
    near = difflib.get_close_matches(scheme, SCHEMES, n=1, cutoff=0.5)
    port = url.partition(":")[2]
    if port.isascii() and port.isdigit():  # "localhost:9000"
        return f"{text}. Did you mean tcp://{masked(url)}?"
    return f"{text}. Did you mean {near[0]}:?" if near else text


def _command(target: str | Sequence[str]) -> list[str]:
    if isinstance(target, str):
        text = target
        try:
            target = shlex.split(text)
        except ValueError as fault:
            raise LocalError(f"{printable(text)!r} is neither a URL nor a command: {fault}") from None
    if not target or not all(isinstance(word, str) for word in target):
        raise LocalError(
            "A command is a list of strings that is not empty, and a URL begins with a scheme such as tcp://"
        )
    return list(target)


@contextmanager
def _packages(url: str) -> Iterator[None]:
    """Say which extra brings a package that is not there."""
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise LocalError(f"{scheme_of(url)}:// needs {package}: pip install 'dragoman[{EXTRAS[package]}]'") from missing
