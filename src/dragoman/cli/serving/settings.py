"""The options of `dragoman serve`, and what it serves where: from the command line, the environment and a file."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from ...jsonrpc.limits import SERVER, Limits
from ...net.scheme import SCHEMES
from ...net.urls import printable, scheme_of
from ...tasks.own_file import own_url
from ..exit_status import MissingArgument, Usage
from ..options import Output, WireOptions, server_tls
from ..programs import FILE
from . import config
from .authorizing import by_introspection, by_signature
from .config import OptionTable, Source
from .exporting import Collector, collector_of

if TYPE_CHECKING:
    from ...access import Verifiers

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_MCP_URL = DEFAULT_URL + "/mcp"
SERVING = Group("Serving", sort_key=10)


@Parameter(name="*", group=SERVING, show_default=False)
@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of serving."""

    reload: bool = False
    """Start again whenever a Python file in the target's folder changes."""
    workers: Annotated[int | None, Parameter(metavar="N")] = None
    """Serve from N processes that share the sockets; one that dies is replaced, SIGHUP reloads them."""
    bus: Annotated[str | None, Parameter(metavar="URL")] = None
    """The bus that several processes or machines share: redis, nats or amqp; workers have one of their own."""
    store: Annotated[str | None, Parameter(metavar="STORE")] = None
    """What keeps ctx.store: memory:, sqlite:FILE or bus; default: memory, of each process."""
    tasks: Annotated[str | None, Parameter(metavar="FILE|memory:|bus")] = None
    """Where tools and methods that go on as tasks are kept; default: a file of this program, in your state folder."""
    drain: Annotated[float | None, Parameter(metavar="SECONDS")] = None
    """Wait this long for calls in flight after a signal; default 30."""
    debug: bool = False
    """Send callers the reason of an internal error, which is masked otherwise."""
    tls_cert: Annotated[str | None, Parameter(metavar="FILE")] = None
    """The certificate chain for tls, https and wss, as PEM."""
    tls_key: Annotated[str | None, Parameter(metavar="FILE")] = None
    """The private key, if it is not in the same file."""
    host_allowed: Annotated[list[str], Parameter(metavar="NAME")] = field(default_factory=list)
    """Host names that http and ws callers may use; default: addresses and this machine's own names."""
    origin_allowed: Annotated[list[str], Parameter(metavar="ORIGIN")] = field(default_factory=list)
    """Origins of web pages that may call."""
    cors: Annotated[list[str], Parameter(metavar="ORIGIN")] = field(default_factory=list)
    """Origins that get CORS headers; default: none."""
    trusted_proxies: Annotated[list[str], Parameter(metavar="NETWORK")] = field(default_factory=list)
    """Reverse proxies, as 10.0.0.0/8, whose Forwarded and X-Forwarded-* headers say who calls; default: none."""
    auth_issuer: Annotated[list[str], Parameter(metavar="URL")] = field(default_factory=list)
    """Let in callers with a token of this issuer; needs --auth-resource."""
    auth_resource: Annotated[str | None, Parameter(metavar="URL")] = None
    """The URL of this server as clients write it: tokens are for it alone."""
    auth_public_key: Annotated[str | None, Parameter(metavar="FILE")] = None
    """That issuer's public key as PEM, where it publishes none."""
    auth_introspection: Annotated[str | None, Parameter(metavar="URL")] = None
    """Ask the issuer at this endpoint about each token (RFC 7662), for tokens without a signature."""
    auth_client_id: Annotated[str | None, Parameter(metavar="ID")] = None
    """This server as a client of the issuer, for --auth-introspection."""
    auth_client_secret_file: Annotated[str | None, Parameter(metavar="FILE")] = None
    """That client's secret; default: DRAGOMAN_CLIENT_SECRET in the environment."""
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    """What is logged on stderr; info has a line for every call and refusal. Default: warning, with -v debug."""
    log_format: Literal["text", "json"] = "text"
    """How log lines are written."""
    metrics: Annotated[str | None, Parameter(metavar="[HOST]:PORT", allow_leading_hyphen=False)] = None
    """Serve metrics for Prometheus at this address, path /metrics; :9090 is loopback alone."""
    otlp: Annotated[str | None, Parameter(metavar="URL")] = None
    """Send traces and metrics to this collector by OTLP over HTTP, as in http://127.0.0.1:4318."""
    traces: Annotated[str | None, Parameter(metavar="URL")] = None
    """Send spans of calls alone to this collector."""
    admin: Annotated[str | None, Parameter(metavar="PATH|[HOST]:PORT", allow_leading_hyphen=False)] = None
    """List and end calls in flight at this Unix socket, in a folder of mode 0700, or on loopback; see dragoman top."""
    console: Annotated[str | None, Parameter(metavar="[HOST:]PORT", allow_leading_hyphen=False)] = None
    """Show what goes on, and stop it, on a page at this address; see dragoman console."""
    console_messages: bool = False
    """Show there the last messages, too, with secrets masked."""
    docs: bool | None = None
    """Show browsers a page, at /docs, that describes and calls what is served; default: those on this machine alone."""
    quiet: Annotated[bool, Parameter(alias="-q")] = False
    """Do not print what is served and where."""
    no_uvloop: bool = False
    """Run on asyncio's own loop even when uvloop is installed."""
    config: Annotated[str | None, Parameter(metavar="FILE")] = None
    """Read options from a TOML file; an option or a variable DRAGOMAN_SERVE_... overrides it."""
    check: bool = False
    """Serve nothing: report every fault of the options, the file, the certificate and the target."""

    def tasks_url(self, program: str) -> str | None:
        """Return the URL of the store of tasks of a program that is served; None where the user has no folder for
        it."""
        given = self.tasks
        if given is None:
            return own_url(program)
        return given if given == "bus" or given.startswith(("memory:", "sqlite:")) else f"sqlite:{given}"

    def tls(self) -> ssl.SSLContext | None:
        """The server's TLS context, if there is a certificate."""
        return server_tls(self.tls_cert, self.tls_key)

    def auth(self) -> Verifiers | None:
        """The verifier of callers; None where callers need no token. Raises Usage."""
        asking = {
            "--auth-introspection": self.auth_introspection,
            "--auth-client-id": self.auth_client_id,
            "--auth-client-secret-file": self.auth_client_secret_file,
        }
        given = [name for name, value in asking.items() if value is not None]
        if not self.auth_issuer and self.auth_resource is None and self.auth_public_key is None and not given:
            return None
        if not self.auth_issuer or self.auth_resource is None:
            raise Usage("--auth-issuer and --auth-resource go together: whose tokens, and for which URL")
        if self.auth_public_key is not None and given:
            raise Usage(
                f"--auth-public-key verifies tokens here, and {given[0]} asks about them: leave one of the two out"
            )
        if self.auth_introspection is not None:
            credentials = self.auth_client_id, self.auth_client_secret_file
            return by_introspection(self.auth_introspection, self.auth_issuer, self.auth_resource, *credentials)
        if given:
            raise Usage(f"{given[0]} goes with --auth-introspection URL")
        return by_signature(self.auth_issuer, self.auth_resource, self.auth_public_key)

    def collector(self) -> Collector | None:
        """The collector that gets traces, or traces and metrics. Raises Usage."""
        return collector_of(self.traces, self.otlp)

    def limits(self, wire: WireOptions) -> Limits | None:
        """The server's limits with the changes of `--limit`; None without any. Raises Usage."""
        limits = wire.limits(SERVER)
        if self.drain is None:
            return limits
        if self.drain < 0:
            raise Usage(f"--drain {self.drain:g}: a time is not negative")
        return (limits or SERVER).but(drain_timeout=self.drain)


SERVE_OPTIONS = ServeOptions()
TABLE = OptionTable(ServeOptions, WireOptions, Output)


def sources(arguments: Sequence[str]) -> list[Source]:
    """Where options come from besides the command line. Raises FaultyOptions, unless `--check` is to tell the
    faults."""
    checks = "--check" in arguments or f"{config.PREFIX}CHECK" in os.environ
    read = config.read_sources if checks else config.sources
    return read(config.path_of(arguments), TABLE)[0]


def named(target: str | None, urls: tuple[str, ...], options: ServeOptions) -> tuple[str, tuple[str, ...]]:
    """What to serve and where, with what the file says where the command line says nothing. Raises Usage."""
    return complete_options(target, urls, config.sources(options.config, TABLE)[1])


def complete_options(target: str | None, urls: tuple[str, ...], data: config.Data) -> tuple[str, tuple[str, ...]]:
    """The target and the URLs, from the command line, the environment or the file. Raises Usage."""
    if target is not None and "target" in data and scheme_of(target) in SCHEMES:
        urls, target = (target, *urls), None
    target = target or data.get("target")
    if target is None:
        raise MissingArgument('say what to serve: a target, here or in a file of --config: target = "calculator:api"')
    if misused := _misused(target):
        raise Usage(misused)
    for second in urls:
        if second.endswith(".py") or FILE.fullmatch(second) or (Path(f"{second}.py").is_file() and "/" not in second):
            raise Usage(
                f"{printable(second)} is a second target, and serve takes one, {target}, and then URLs: start it once for "
                "each, or include the other in a service, api.include(other)"
            )
    return target, urls or tuple(data.get("urls", ()))


def _misused(target: str) -> str:
    """What to write instead of a target that is a URL, or a file that is no Python; "" for others."""
    if "://" in target or target.startswith(("stdio:", "unix:")):
        return (
            f"{printable(target)} is a URL, and serve takes first what to serve: dragoman serve module:attribute "
            f"{printable(target)}; what another server offers cannot be served again, and is called at its own URL"
        )
    if target.endswith((".json", ".jsonc")):
        return (
            f"{target} names servers for hosts and is no Python file; dragoman tools --config NAME --config-file "
            f"{target} uses one of them, and dragoman serve takes module:attribute or file.py"
        )
    if target.endswith(".toml"):
        return f"{target} is a file of options: dragoman serve --config {target}"
    return ""
