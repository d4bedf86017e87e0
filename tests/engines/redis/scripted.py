"""A Redis that does what a test says: commands in, replies out, and connections that are cut when a test wants it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from dragoman.engines.redis import scripts
from dragoman.engines.redis.connection import Script
from tests.engines.scripted_server import ScriptedServer, listening

_NAMES = {
    hashlib.sha1(script._source.encode(), usedforsecurity=False).hexdigest(): name
    for name, script in vars(scripts).items()
    if isinstance(script, Script)
}


def bulk(*parts: Any) -> bytes:
    """A reply in RESP2: texts, numbers, None, and lists of them."""
    out = []
    for part in parts:
        if part is None:
            out.append(b"*-1\r\n")
        elif isinstance(part, int):
            out.append(b":%d\r\n" % part)
        elif isinstance(part, list):
            out.append(b"*%d\r\n" % len(part) + bulk(*part))
        else:
            data = part if isinstance(part, bytes) else str(part).encode()
            out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)


OK = b"+OK\r\n"
Reply = Callable[[list[str]], bytes | None]
"""Words of a command -> the reply; None: there is none yet."""


class Link:
    """One connection: what came over it, and a way to cut it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.names: list[str] = []
        self.ended = asyncio.Event()

    def cut(self) -> None:
        self.writer.transport.abort()


class Scripted(ScriptedServer[Link]):
    """The server. `replies`: by the name of a command, or of a script of ours; `seen`: every command, a script by its
    name."""

    patience = 20.0

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[str]] = []
        self.replies: dict[str, Reply | bytes | None] = {
            "PING": b"+PONG\r\n",
            "CONFIG": bulk([]),
            "CLIENT": lambda words: bulk(7) if words[1] == "ID" else OK,
            "PEXPIRE": lambda words: bulk(int(any(sent[0] == words[1] for sent in self.sent("XADD")))),
            "XADD": bulk("1-0"),
            "XREAD": None,
            "XREADGROUP": None,
            "SUBSCRIBE": lambda words: b"".join(bulk(["subscribe", one, 1]) for one in words[1:]),
            "XACK": bulk(1),
            "XDEL": bulk(1),
            "DEL": bulk(1),
            "REQUEST": bulk(1),
            "AGAIN": bulk(1),
            "KEEP": bulk([]),
            "LEAVE": bulk(0),
            "RECOVER": bulk(["", [], []]),
            "TAKE_OVER": bulk(["0-0", [], []]),
            "REQUEUE": bulk(1),
            "REJECT": bulk(1),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(writer)
        self.links.append(link)
        try:
            while True:
                count = int((await reader.readline())[1:])
                words = []
                for _ in range(count):
                    size = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(size + 2))[:-2].decode())
                name = _NAMES.get(words[1], words[1]) if words[0] == "EVALSHA" else words[0]
                link.names.append(name)
                self.seen.append([name, *words[1:]])
                reply = self.replies.get(name, OK)
                found = reply([name, *words[1:]]) if callable(reply) else reply
                self.changed.set()
                if found is not None:
                    writer.write(found)
        except (ValueError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            link.ended.set()
            self.links.remove(link)
            writer.transport.abort()
            self.changed.set()

    def over(self, name: str) -> Link:
        """The connection over which this command came last."""
        return next(link for link in reversed(self.links) if name in link.names)

    def sent(self, name: str) -> list[list[str]]:
        """The words of every such command."""
        return [words[1:] for words in self.seen if words[0] == name]


def scripted() -> AbstractAsyncContextManager[Scripted]:
    """One that listens, for the length of the block."""
    return listening(Scripted(), "redis")
