"""The options that a process changes while it serves: what is logged and how, `debug`, and the time of the drain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...jsonrpc.limits import SERVER
from ...rpc.service import Service
from ...serving import Serving
from ...telemetry.access_log import AccessLog
from ...telemetry.log_line import LogLevel
from ..lines import lines, log_as
from ..options import WireOptions
from ..target import Target
from .announce import as_mcp
from .settings import ServeOptions

NAMES: Final = frozenset(("debug", "drain", "log_format", "log_level"))
"""All of them."""


def log_level(options: ServeOptions, verbose: bool) -> LogLevel:
    """The level of the log. Sets it, and that of what the command says itself."""
    level: LogLevel = options.log_level or ("debug" if verbose else "warning")
    log_as(options.log_format, level, options.log_level or "info")
    return level


class Live:
    """Sets them for what is served, at the beginning and again. `debug` of the program itself stays."""

    def __init__(self, served: Target, options: ServeOptions, wire: WireOptions, *, verbose: bool) -> None:
        self._served = served if isinstance(served, Service) else as_mcp(served)
        self._debug = self._served is not None and self._served.debug
        self._wire = wire
        self._verbose = verbose
        self._serving: Serving | None = None
        self._access: AccessLog | None = None
        self._silence: Callable[[], None] = lambda: None
        self.drain: float = SERVER.drain_timeout
        """Seconds."""
        self.set(options)

    def begin(self, serving: Serving, options: ServeOptions) -> None:
        """This is what serves, from before it listens."""
        self._serving = serving
        self.set(options)

    def set(self, options: ServeOptions) -> None:
        """Set them from options that are in order."""
        limits = options.limits(self._wire)
        self.drain = (limits or SERVER).drain_timeout
        if self._served is not None:
            self._served.debug = self._debug or options.debug
        level = log_level(options, self._verbose)
        self.end()
        if level in ("debug", "info") and self._serving is not None:
            self._access = AccessLog(lines.put, format=options.log_format)
            self._silence = self._serving.observe(self._access)

    def end(self) -> None:
        """Write what the access log has left."""
        self._silence()
        self._silence = lambda: None
        if self._access is not None:
            self._access.flush()
            self._access = None
