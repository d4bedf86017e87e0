"""The console's page: its files, for every caller. What it shows comes from the API, with what its reader shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..channel import Servable
from ..transports.http.messages import Answer, Lines
from ..web import read_console_files
from .endpoint import HEADERS


class ConsolePage:
    """The page at the address of a console, as `transports.http.app.Page` has it."""

    catalog: str = ""
    """It has no list of its own."""
    lines: Lines = HEADERS
    """What every answer at its address forbids."""
    endpoints: Collection[str] = ("/",)
    """Where it is shown."""

    def __init__(self, served: Mapping[str, Servable], listed: Collection[str]) -> None:
        """Take what is served there, which the page asks for by the API."""

    def find(self, path: str, headers: Mapping[bytes, bytes], *, loopback: bool) -> Answer | None:
        """Return the answer with the file at a path; None if there is none, or a page of another site asks."""
        if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
            return None
        file = read_console_files().get(path)
        if file is None:
            return None
        accepted, known = (headers.get(name, b"").decode("latin-1") for name in (b"accept-encoding", b"if-none-match"))
        return file.answer(accepted, known)
