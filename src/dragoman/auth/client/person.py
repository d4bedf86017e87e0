"""How a person logs in: the URL is printed and opened in a browser; the answer comes to a listener on loopback, or is
pasted where the browser cannot reach that."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from ...net.urls import printable
from ...system.terminal import wait_for_line
from ..urls import split
from .errors import LoginFailed
from .listener import CallbackListener

OnUrl: TypeAlias = Callable[[str], "str | Awaitable[str | None] | None"]

LOGIN_TIMEOUT = 300.0
"""Seconds for a person to log in: with a second factor on a phone it may take two minutes."""
LONGEST_PASTE = 16 * 1024


def print_line(text: str) -> None:
    """Print a line on the standard error, with nothing in it that moves a terminal's cursor."""
    print(printable(text, 4000), file=sys.stderr, flush=True)  # noqa: T201  (it is for the person who logs in)


class DeviceCode(Struct, frozen=True, kw_only=True):
    """A code that the user enters elsewhere (RFC 8628 section 3.3)."""

    uri: str
    code: str
    complete: str | None = None
    """The URL with the code in it."""
    expires_in: float = 600.0


class Person:
    """A person who logs in. `on_url`: called with the URL instead of printing and opening it; the text that it returns,
    if any, is the answer, as a person would paste it. `say`: called with messages for the person. `timeout`: seconds
    for the person."""

    def __init__(
        self,
        *,
        on_url: OnUrl | None = None,
        say: Callable[[str], object] = print_line,
        browser: bool = True,
        timeout: float = LOGIN_TIMEOUT,
    ) -> None:
        self.say = say
        self._on_url = on_url
        self._browser = browser
        self._timeout = timeout
        self._listener: CallbackListener | None = None

    async def listen(self, port: int, exact: bool) -> str:
        """Listen for the answer, and return the redirect URI. Raises LoginFailed if an exact port is in use."""
        await self.close()
        self._listener = CallbackListener()
        return await self._listener.open(port, exact)

    async def browse(self, url: str, state: str) -> str:
        """Return the query of the answer. Raises LoginFailed if none comes in time."""
        assert self._listener is not None, "listen comes before browse"
        loop = asyncio.get_running_loop()
        answers = [loop.create_task(self._listener.answer(state))]
        try:
            async with asyncio.timeout(self._timeout):
                # the listener waits before anything is opened
                await asyncio.sleep(0)
                if self._on_url is not None:
                    given = self._on_url(url)
                    text = await given if inspect.isawaitable(given) else given
                    if text is not None:
                        return query_of(text)
                else:
                    self._show(url)
                    if sys.stdin is not None and sys.stdin.isatty():
                        answers.append(loop.create_task(_read_paste()))
                done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
                return done.pop().result()
        except TimeoutError:
            raise LoginFailed(
                f"no one answered within {self._timeout:g} s. If the page showed an error instead of a login, this "
                "client may be unknown there by now: `dragoman logout --forget URL`, then log in again"
            ) from None
        finally:
            for task in answers:
                task.cancel()
            await asyncio.wait(answers)
            await self.close()

    async def show(self, code: DeviceCode) -> None:
        """Show a code, and where to enter it."""
        url = code.complete or code.uri
        if self._on_url is not None:
            given = self._on_url(url)
            if inspect.isawaitable(given):
                await given
            return
        self.say(f"To log in, open {code.uri} on any device and enter the code {code.code}")
        if code.complete:
            self.say(f"or open {code.complete}")

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    def _show(self, url: str) -> None:
        self.say("To log in, open this URL in a browser:")
        self.say(url)
        if sys.stdin is not None and sys.stdin.isatty():
            self.say("If the browser is on another machine, paste the URL at which it ends here, and press Enter.")
        # "MUST NOT use a shell": webbrowser starts a program with the URL as one argument; it may wait for that program
        if self._browser and has_browser() and urlsplit(url).scheme in ("https", "http"):
            threading.Thread(target=_open_browser, args=(url,), daemon=True).start()


def has_browser() -> bool:
    """Return whether the person who runs this would see a browser that is opened on this machine."""
    if "SSH_CONNECTION" in os.environ and "DISPLAY" not in os.environ:
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def query_of(text: str) -> str:
    """Return the query of a pasted answer, which is a whole URL or the query itself. Raises LoginFailed for any other
    text."""
    text = text.strip()[:LONGEST_PASTE]
    parts = split(text)
    query = text.removeprefix("?") if "://" not in text else "" if parts is None else parts.query
    if "=" not in query:
        raise LoginFailed("what was pasted is not the URL at which the browser ended: it has no ?code=...&state=...")
    return query


def _open_browser(url: str) -> None:
    import webbrowser  # noqa: PLC0415  (for those who log in)

    webbrowser.open(url)


async def _read_paste() -> str:
    """Return the query in the next line of the standard input. A call that is cancelled reads nothing: what is typed
    later is for somebody else. (On Windows one cannot wait for a terminal; there the thread reads one more line.)"""
    loop = asyncio.get_running_loop()
    ended, end = socket.socketpair()
    line: asyncio.Future[str] = loop.create_future()

    def arrived(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def read() -> None:
        with ended:
            while wait_for_line(ended) and (text := sys.stdin.readline(LONGEST_PASTE)):
                if text.strip():
                    with contextlib.suppress(RuntimeError):  # the loop was closed
                        loop.call_soon_threadsafe(arrived, text)
                    return

    threading.Thread(target=read, daemon=True).start()
    with end:
        return query_of(await line)
