"""SIGHUP: the certificate and the file of `--config` are read again.

Rules: what is faulty changes nothing, and is logged. Certificates count for handshakes from then on; connections live.
With `--workers` each worker is replaced by one that reads everything anew, so only what the supervisor does itself
needs a restart; without workers the certificate and the options of `live` change, and what else has changed is named.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias

from cyclopts import App, CycloptsError

from ...net.service_manager import notify, notify_reloading
from ..exit_status import Usage
from ..lines import tell
from ..options import Output, WireOptions
from .check import faults_of
from .live import NAMES, Live
from .settings import ServeOptions, named, sources

Settings: TypeAlias = tuple[str, tuple[str, ...], ServeOptions, WireOptions, Output]
"""Target, URLs and the options."""
OF_SUPERVISOR = frozenset(("urls", "workers", "bus", "metrics", "admin", "quiet", "no_uvloop", "reload"))
"""What the supervisor does itself."""
CERTIFICATE = frozenset(("tls_cert", "tls_key"))
WITHOUT_EFFECT = frozenset(("quiet", "output", "json", "color", "verbose"))
"""What counts at the start alone."""


class Rereading:
    """What a process was started with, and what it reads now. `app` reads `arguments`, the command line after
    `serve`."""

    def __init__(
        self,
        app: App,
        arguments: Sequence[str],
        settings: Settings,
        tls: ssl.SSLContext | None = None,
        live: Live | None = None,
    ) -> None:
        self._app = app
        self._arguments = list(arguments)
        self._settings = settings
        self._tls = tls
        self._live = live

    @property
    def live(self) -> Live:
        """The options that change; of a process that serves."""
        assert self._live is not None
        return self._live

    def of_server(self) -> None:
        """Read everything again, in a process that serves by itself."""
        notified = notify_reloading()
        try:
            self._reread()
        finally:
            if notified:
                notify("READY=1")

    def _reread(self) -> None:
        found = self._read()
        if found is None:
            return
        options = found[2]
        renewed = CERTIFICATE if self._tls is not None and options.tls_cert is not None else frozenset()
        try:
            if self._tls is not None and options.tls_cert is not None:  # it was read into a context of its own first,
                self._tls.load_cert_chain(options.tls_cert, options.tls_key)  # as a faulty one would spoil this
        except OSError as fault:
            tell(f"SIGHUP: nothing is changed: {fault}", "error")
            return
        new = changed_names(self._settings, found) - WITHOUT_EFFECT
        taken, fixed = new & NAMES, new - NAMES - renewed
        mine = replace(self._settings[2], **{name: getattr(options, name) for name in taken | renewed})
        if taken:
            self.live.set(mine)
        self._settings = (*self._settings[:2], mine, *self._settings[3:])
        if renewed:
            tell("SIGHUP: the certificate is read again", "info")
        if taken:
            tell(f"SIGHUP: changed: {_join_names(taken)}", "info")
        if fixed:
            tell(f"SIGHUP: this needs a restart: {_join_names(fixed)}", "warning")
        if not renewed | new:
            tell("SIGHUP: nothing has changed", "info")

    def of_supervisor(self) -> bool:
        """Whether the workers may be replaced: what they would read is in order."""
        found = self._read()
        if found is None:
            return False
        if fixed := changed_names(self._settings, found) & OF_SUPERVISOR:
            tell(f"this needs a restart: {_join_names(fixed)}", "warning")
        return True

    def _read(self) -> Settings | None:
        found: Settings | None = None
        try:
            self._app.config = sources(self._arguments)
            _, bound, _ = self._app.parse_args(self._arguments, print_error=False, exit_on_error=False)
            target, *urls = (*bound.args, None)[:1] + bound.args[1:]
            options, wire, output = _options(bound.kwargs)
            found = *named(target, tuple(urls), options), options, wire, output
            faults = faults_of(options, wire)
        except (CycloptsError, Usage) as fault:
            faults = str(fault).splitlines() or [type(fault).__name__]
        for line in faults:
            tell(f"SIGHUP: nothing is changed: {line}", "error")
        return None if faults else found


def _options(given: dict[str, Any]) -> tuple[ServeOptions, WireOptions, Output]:
    return given.get("options", ServeOptions()), given.get("wire", WireOptions()), given.get("output", Output())


def changed_names(before: Settings, after: Settings) -> frozenset[str]:
    """The names of what is not as it was."""
    names = {name for name, old, new in zip(("target", "urls"), before, after, strict=False) if old != new}
    for old, new in zip(before[2:], after[2:], strict=True):
        names |= {one.name for one in fields(old) if getattr(old, one.name) != getattr(new, one.name)}  # type: ignore[arg-type]
    return frozenset(names)


def _join_names(names: frozenset[str]) -> str:
    return ", ".join(name.replace("_", "-") for name in sorted(names))
