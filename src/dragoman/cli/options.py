"""The options that commands share, and their values for `connect` and `serve`.

Dataclasses, because cyclopts reads them; each field's docstring is its help.
"""

from __future__ import annotations

import math
import os
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Group, Parameter

from ..jsonrpc.limits import CLIENT, Limits
from ..private_files import open_private
from ..system.files import reason_of
from .arguments import utf8
from .exit_status import Usage, suggest_name
from .terminal import compact, say

LINK_GROUP = Group("Connection", sort_key=20)
WIRE_GROUP = Group("Wire", sort_key=30)
OUTPUT_GROUP = Group("Output", sort_key=40)

UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "k": 1000, "M": 1000**2}


@Parameter(name="*", group=OUTPUT_GROUP, show_default=False)
@dataclass(frozen=True, kw_only=True)
class Output:
    """Options of the output."""

    json: bool = False
    """Write JSON for programs on stdout; a failure is {"error": ...}. The same as --output json."""
    output: Annotated[Literal["table", "json", "ndjson"] | None, Parameter(metavar="FORM")] = None
    """How results are written: table for people, json, or ndjson: a line for each entry of a list."""
    color: Annotated[Literal["auto", "always", "never"], Parameter(metavar="WHEN")] = "auto"
    """Colours: auto is on a terminal, unless NO_COLOR is set; always; never."""
    verbose: Annotated[bool, Parameter(alias="-v")] = False
    """Show every message, laid out, and log what happens, on stderr; show tracebacks."""

    def __post_init__(self) -> None:
        if self.json and self.output == "table":
            raise Usage("--json and --output table exclude each other")
        object.__setattr__(self, "json", self.json or self.output in ("json", "ndjson"))

    def write(self, value: Mapping[str, Any], *lists: str) -> None:
        """Write a value as JSON on one line; with `ndjson` the entries of the lists under these names, a line each."""
        if self.output == "ndjson" and lists:
            for one in (entry for name in lists for entry in value[name]):
                print(compact(one))
        else:
            print(compact(value))


@Parameter(name="*", group=WIRE_GROUP, show_default=False)
@dataclass(frozen=True, kw_only=True)
class WireOptions:
    """Options of both ends of a wire."""

    framing: Literal["newline", "content-length", "json"] | None = None
    """How messages are separated on tcp, tls, unix and stdio; default: newline."""
    trace: Annotated[str | None, Parameter(metavar="FILE", allow_leading_hyphen=True)] = None
    """Write every message in both directions to FILE as JSON Lines, secrets masked; - is stderr."""
    limit: Annotated[list[str], Parameter(metavar="NAME=VALUE")] = field(default_factory=list)
    """Change a limit, as in --limit message_size=16MiB; any number of times."""
    lenient: bool = False
    """Accept JSON-RPC 1.0, null for what is absent, strings as error codes, and arguments as text."""

    def limits(self, standard: Limits) -> Limits | None:
        """The limits with the changes of `--limit`; None without any."""
        return limits_of(self.limit, standard) if self.limit else None


@Parameter(name="*", group=LINK_GROUP, show_default=False)
@dataclass(frozen=True, kw_only=True)
class AccessOptions:
    """How to reach the far end, and be let in."""

    timeout: Annotated[float, Parameter(alias="-t", metavar="SECONDS", show_default=True)] = 30.0
    """Wait this long for the connection, and for the answer; inf waits for ever."""
    header: Annotated[list[str], Parameter(alias="-H", metavar="'NAME: VALUE'")] = field(default_factory=list)
    """A header for http and ws; any number of times."""
    user: Annotated[str | None, Parameter(metavar="NAME:PASSWORD", env_var="DRAGOMAN_USER")] = None
    """Basic authorization."""
    bearer: Annotated[str | None, Parameter(metavar="TOKEN", env_var="DRAGOMAN_BEARER")] = None
    """Bearer authorization."""
    account: Annotated[str | None, Parameter(metavar="NAME")] = None
    """Call as this login, of several at one server; see dragoman login."""
    ca: Annotated[str | None, Parameter(metavar="FILE")] = None
    """Trust the certificates in FILE (tls, https, wss)."""
    cert: Annotated[str | None, Parameter(metavar="FILE")] = None
    """Your own certificate, as PEM, for servers that ask for one."""
    cert_key: Annotated[str | None, Parameter(metavar="FILE")] = None
    """The private key of --cert, if it is not in the same file."""
    insecure: bool = False
    """Trust any certificate."""
    env: Annotated[list[str], Parameter(metavar="NAME[=VALUE]")] = field(default_factory=list)
    """A variable for a command that is started; NAME alone passes yours on. By default it gets HOME, LANG, LOGNAME,
    PATH, SHELL, TERM and USER. Any number of times."""
    env_inherit: bool = False
    """Pass your whole environment on to a command, secrets included, but for DRAGOMAN_*."""

    def seconds(self) -> float | None:
        """The time-out in seconds; None for ever."""
        if math.isnan(self.timeout) or self.timeout <= 0:
            raise Usage(f"--timeout {self.timeout:g}: a time-out is above 0; inf waits for ever")
        return None if math.isinf(self.timeout) else self.timeout

    def headers(self) -> dict[str, str]:
        """The headers by name."""
        found: dict[str, str] = {}
        for line in self.header:
            name, colon, value = line.partition(":")
            if not colon or not name.strip():
                raise Usage(f"--header {line!r}: write 'Name: value'")
            found[name.strip()] = value.strip()
        return found

    def environment(self) -> dict[str, str]:
        """The variables for a command that is started."""
        found: dict[str, str] = {}
        for word in self.env:
            name, equals, value = word.partition("=")
            if not name:
                raise Usage(f"--env {word!r}: write NAME=VALUE, or NAME to pass on your own")
            if not equals and name not in os.environ:
                raise Usage(f"--env {name}: there is no such variable in the environment; write {name}=VALUE")
            found[name] = value if equals else os.environ[name]
        return found

    def auth(self) -> tuple[str, str] | str | None:
        """Basic or bearer authorization, as `channel.Options.auth` takes it."""
        if self.account is not None and (self.user is not None or self.bearer is not None):
            raise Usage("--account and --user or --bearer exclude each other")
        if self.user is None:
            return self.bearer
        if self.bearer is not None:
            raise Usage("--user and --bearer exclude each other")
        utf8(self.user, "--user")
        name, colon, password = self.user.partition(":")
        if not colon:
            raise Usage(
                "--user: write name:password (or set DRAGOMAN_USER, which other users of the machine cannot see)"
            )
        return name, password

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context, if one of the options asks for it."""
        if self.cert is None and self.cert_key is not None:
            raise Usage("--cert-key needs --cert")
        if self.ca is None and self.cert is None and not self.insecure:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as fault:
            raise _unusable(fault, "PEM certificates", {"--ca": self.ca}) from None
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.cert_key)
            except OSError as fault:
                raise _unusable(fault, CHAIN, {"--cert": self.cert, "--cert-key": self.cert_key}) from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


CHAIN = "a PEM certificate and its private key (or give the key apart)"


def server_tls(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """The TLS context of a server, from --tls-cert and --tls-key; None without a certificate. Raises Usage."""
    if cert is None:
        if key is not None:
            raise Usage("--tls-key needs --tls-cert")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except OSError as fault:
        raise _unusable(fault, CHAIN, {"--tls-cert": cert, "--tls-key": key}) from None
    return context


def _unusable(fault: OSError, wanted: str, files: dict[str, str | None]) -> Usage:
    """The error for files of certificates, by option, of which the first must hold `wanted`. OpenSSL does not say which
    of them could not be read."""
    option, path = next(iter(files.items()))
    if isinstance(fault, ssl.SSLError):
        if fault.reason == "KEY_VALUES_MISMATCH":
            return Usage(f"{option} {path}: the private key belongs to another certificate")
        return Usage(f"{option} {path}: it must hold {wanted}")
    for each, file in files.items():
        try:
            if file is not None:
                open(file, "rb").close()
        except OSError as why:
            return Usage(f"{each} {file}: {reason_of(why)}")
    return Usage(f"{option} {path}: {reason_of(fault)}")


ACCESS = AccessOptions()


@Parameter(name="*", group=LINK_GROUP, show_default=False)
@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """Options of the calling end."""

    access: AccessOptions = ACCESS
    v1: Annotated[bool, Parameter(name=["--v1", "--1.0"])] = False
    """Speak JSON-RPC 1.0, as Bitcoin Core and many devices do."""


LINK, WIRE, OUTPUT = LinkOptions(), WireOptions(), Output()
"""The default options."""


def limits_of(words: list[str], standard: Limits = CLIENT) -> Limits:
    """`standard` with every NAME=VALUE of `words`. Raises Usage for an unknown name or a value that does not fit."""
    changes: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        name = name.strip().replace("-", "_")
        if name not in Limits.__struct_fields__:
            known = suggest_name(name, Limits.__struct_fields__, "there are " + ", ".join(Limits.__struct_fields__))
            raise Usage(f"--limit {word}: there is no limit {name!r}; {known}")
        changes[name] = _number(word, value.strip())
    try:
        return msgspec.convert(msgspec.structs.asdict(standard) | changes, Limits)
    except msgspec.ValidationError as fault:
        raise Usage(f"--limit {' '.join(words)}: {fault}") from None


def _number(word: str, value: str) -> float | int | None:
    if value.lower() in ("none", "null"):
        return None
    for unit, factor in UNITS.items():
        if value.endswith(unit) and value.removesuffix(unit).strip().isdigit():
            return int(value.removesuffix(unit)) * factor
    try:
        number = msgspec.json.decode(value.replace("_", ""), type=float | int)
    except msgspec.DecodeError:
        raise Usage(f"--limit {word}: write NAME=NUMBER (16MiB is a number here, none means no limit)") from None
    if number < 0:
        raise Usage(f"--limit {word}: a limit is not negative")
    return number


@contextmanager
def trace_to(target: str | None) -> Iterator[Callable[[str], object] | None]:
    """The function that writes trace lines, or None. Raises Usage when the file cannot be opened."""
    if target is None:
        yield None
        return
    if target == "-":
        yield sys.stderr.write
        return
    try:
        file = open(open_private(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", buffering=0)  # noqa: SIM115
    except OSError as fault:
        raise Usage(f"--trace {target}: {reason_of(fault)}") from None
    failed = False

    def write(text: str) -> None:
        """A full disk is reported once, and messages go on."""
        nonlocal failed
        try:
            file.write(text.encode())
        except OSError as fault:
            if not failed:
                say(f"--trace {target}: {reason_of(fault)}; messages go on without a trace", "yellow")
            failed = True

    with file:
        yield write
