"""What the wires on sockets share: opening listening sockets, and error messages in one sentence.

Rules:

- A socket is bound and listening when it is returned, so the first connection is never refused.
- A socket file left behind by a dead process is replaced; a live one, and any other file, never.
- A socket file has its permissions from the first moment.
- A socket that other processes share (`Options.sockets`) is used as it is; its file stays when we close it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import socket
import ssl
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from ..channel import Broken, Options, Reason, Servable
from ..jsonrpc.errors import LocalError
from ..system.files import lock
from ..system.sockets import AF_UNIX, LONGEST_PATH, NO_UNIX, REUSE, UNIX, number_of
from .activation import activation, serves
from .urls import Url, mask_url, printable

BACKLOG = 1024
TLS_GOODBYE = 2.0
"""Seconds for the far end to answer our TLS close_notify."""
_NEXT_ADDRESS = 0.25
"""Seconds until the next address of a host is tried as well."""
_RESOLVE_TIME = 1.0
"""Seconds for the resolver to name this machine."""
_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "UNEXPECTED_MESSAGE",
    "PACKET_LENGTH_TOO_LONG",
)
"""OpenSSL's reasons for a first answer that is not TLS."""
_CERTIFICATE_WANTED = (
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "SSLV3_ALERT_HANDSHAKE_FAILURE",
    "SSLV3_ALERT_BAD_CERTIFICATE",
)
_OTHER_NAME = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_EXPIRED = 10
"""X509_V_ERR_CERT_HAS_EXPIRED."""

P = TypeVar("P", bound=asyncio.BaseProtocol)


class CannotListen(LocalError, OSError):
    """A socket could not be opened; the text says where and why. `errno` is the system's, if there is one."""


def in_words(fault: BaseException) -> str:
    """Why a connection failed, in one line for people, without numbers and Python names."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return printable(f"the certificate is not trusted: {fault.verify_message}; {_trust_advice(fault)}")
    if isinstance(fault, ssl.SSLError):
        if fault.reason in _NO_TLS:
            return "it does not speak TLS"
        if _wants_certificate(fault):
            return "it asks for a client certificate: tls= with one, on the command --cert FILE"
        return printable(f"TLS failed: {(fault.reason or str(fault)).replace('_', ' ').lower()}")
    if isinstance(fault, socket.gaierror):
        return "its name cannot be resolved"
    number = _number(fault)
    known = {
        errno.ECONNREFUSED: "connection refused",
        errno.ECONNRESET: "connection reset by the far end",
        errno.EPIPE: "the far end reads no more",
        errno.EADDRINUSE: "the address is in use",
        errno.EADDRNOTAVAIL: "that is not an address of this machine",
        errno.ENOENT: "there is no such file",
        errno.EACCES: "permission denied",
    }
    if number is not None:
        words = fault.strerror if isinstance(fault, OSError) and hasattr(fault, "winerror") else os.strerror(number)
        return known.get(number) or printable((words or os.strerror(number)).lower())
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    return printable(str(fault) or type(fault).__name__)


_NUMBERS: Mapping[int, Reason] = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.ENETUNREACH: "unreachable",
    errno.EHOSTUNREACH: "unreachable",
    errno.ETIMEDOUT: "late",
    errno.ENOENT: "no_socket",
    errno.ENOTSOCK: "no_socket",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
}


def reason_of(fault: BaseException) -> Reason:
    """Why a connection failed, in a word; `in_words` is the same for people."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return _untrusted(fault)
    if isinstance(fault, ssl.SSLError):
        return "not_tls" if fault.reason in _NO_TLS else "certificate_wanted" if _wants_certificate(fault) else "tls"
    if isinstance(fault, socket.gaierror):
        return "unresolved"
    if (number := _number(fault)) is not None:
        return _NUMBERS.get(number, "other")
    return "late" if isinstance(fault, TimeoutError) else "other"


def _untrusted(fault: ssl.SSLCertVerificationError) -> Reason:
    if fault.verify_code in _OTHER_NAME:
        return "wrong_name"
    return "expired" if fault.verify_code == _EXPIRED else "untrusted"


def _wants_certificate(fault: ssl.SSLError) -> bool:
    return fault.reason in _CERTIFICATE_WANTED


def _number(fault: BaseException) -> int | None:
    """The system's number of a failure, if it has one."""
    number = fault.errno if isinstance(fault, OSError) else None
    if (system := getattr(fault, "winerror", None)) is not None:
        number = number_of(system) or number
    if number is None:  # of several addresses asyncio gives only the texts of the errors
        found = re.findall(r"\[(Errno|WinError) (\d+)\]", str(fault))
        numbers = {number_of(int(text)) if kind == "WinError" else int(text) for kind, text in found}
        number = numbers.pop() if len(numbers) == 1 else None
    if number is None and isinstance(fault, ConnectionResetError | ConnectionAbortedError):
        number = errno.ECONNRESET
    return number


def _trust_advice(fault: ssl.SSLCertVerificationError) -> str:
    """What to do about a certificate that is not trusted."""
    if (reason := _untrusted(fault)) == "wrong_name":
        return "use the name that is in the certificate"
    if reason == "expired":
        return "the server needs a new one"
    return "tls= with its authority, ssl.create_default_context(cafile=...); on the command --ca FILE"


async def open_connection(
    make: Callable[[], P], url: Url, tls: ssl.SSLContext | None, address: str = ""
) -> tuple[asyncio.Transport, P]:
    """Connect to the host of a URL, or to `address`, one of its IP addresses. A URL with TLS is connected by `tls`, by
    default with the system's authorities; the certificate is checked for the host's name. Raises OSError."""
    loop = asyncio.get_running_loop()
    host = url.host or "localhost"
    more: dict[str, Any] = {}
    if url.tls:
        more |= {"ssl": tls or ssl.create_default_context(), "server_hostname": host}
        more["ssl_shutdown_timeout"] = TLS_GOODBYE
    # for one address there is nothing to race, and asyncio's race forgets a socket if it is cancelled at its end
    if isinstance(loop, asyncio.BaseEventLoop) and not _is_address(address or host):  # no uvloop
        more["happy_eyeballs_delay"] = _NEXT_ADDRESS
    transport, made = await loop.create_connection(make, address or host, url.port, **more)
    keep_alive(transport.get_extra_info("socket"))  # a channel may be silent for hours
    return transport, made


def _is_address(host: str) -> bool:
    """Whether a host is an IP address and no name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return True
    return False


def cannot_dial(url: Url, fault: BaseException) -> Broken:
    """The ending of a channel that could not be opened."""
    advice = ""
    if url.tls and isinstance(fault, ssl.SSLError) and fault.reason in _NO_TLS:
        advice = f"; write {url.plain}:// for {url.scheme}://"
    return Broken(f"Cannot connect to {url.shown}: {in_words(fault)}{advice}").because(reason_of(fault))


_ADVICE: Mapping[int | None, str] = {
    errno.EADDRINUSE: "; end what listens there, or take another port (0: any that is free)",
    errno.EADDRNOTAVAIL: "; take 127.0.0.1 for callers here, or 0.0.0.0 for every address of it",
}


def cannot_listen(url: Url, why: BaseException | str) -> CannotListen:
    """The error of a socket that cannot be opened."""
    words = why if isinstance(why, str) else in_words(why)
    if url.port is not None and isinstance(why, OSError):
        number = _number(why)
        words += _ADVICE.get(number, "")
        if number == errno.EADDRINUSE and url.plain == "ws":
            words += f"; if it is this server's own http://, leave {url.scheme}:// out: that takes WebSocket, too"
    error = CannotListen(f"Cannot listen on {url.shown}: {words}")
    error.errno = why.errno if isinstance(why, OSError) else None
    return error


def sole_service(url: Url, served: Mapping[str, Servable]) -> Servable:
    """Return the one served object of a wire without paths. Raises LocalError for several, and for none."""
    if len(served) != 1:
        names = ", ".join(served) or "none"
        raise LocalError(f"{url.shown}: this wire has no paths, so it serves one object, not {len(served)} ({names})")
    return next(iter(served.values()))


def _numeric(host: str, port: int, kind: socket.SocketKind) -> list[Any]:
    """Return the socket addresses of a host that is an IP address, or empty; none for a name. The resolver is not
    asked, so no thread waits for it, and the codec for names, which is slow to import, is not needed."""
    if not host.isascii():
        return []
    flags = socket.AI_PASSIVE | socket.AI_NUMERICHOST
    try:
        return socket.getaddrinfo(host.encode() or None, port, type=kind, flags=flags)
    except socket.gaierror:
        return []


async def bind(url: Url, kind: socket.SocketKind) -> list[socket.socket]:
    """The bound sockets (TCP: listening) for a URL's host, one for each of its addresses, all on the same port. Port 0
    is any free port. Raises CannotListen."""
    loop = asyncio.get_running_loop()
    bound: list[socket.socket] = []
    port = url.port
    try:
        found = _numeric(url.host, port, kind) or await loop.getaddrinfo(
            url.host or None, port, type=kind, flags=socket.AI_PASSIVE
        )
        for family, _, protocol, _, address in sorted(set(found), key=lambda row: row[0]):
            wanted = (address[0], port, *address[2:])
            if any(serves(one, family, wanted) for one in bound):  # a service manager's, for IPv6 and IPv4 alike
                continue
            try:
                bound.append(_bind_one(family, kind, protocol, wanted))
            except OSError as fault:
                absent = fault.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
                if not (absent and (bound or len(found) > 1)):  # "localhost" may name an address that is disabled
                    raise
            else:
                port = bound[0].getsockname()[1]
        if not bound:
            raise OSError(errno.EADDRNOTAVAIL, "")
    except (OSError, UnicodeError) as fault:
        for one in bound:
            one.close()
        held = activation().holder(port, kind) if _number(fault) == errno.EADDRINUSE else ""
        why = f"the service manager's socket is at {held}; write that address" if held else fault
        raise cannot_listen(url, why) from fault
    return bound


async def names_of_this_machine() -> frozenset[str]:
    """The names of this machine: its own and those of the resolver, if that answers within `_RESOLVE_TIME` seconds."""
    name = socket.gethostname()
    loop = asyncio.get_running_loop()
    found = {name}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_RESOLVE_TIME):
            found.add(await loop.run_in_executor(None, socket.getfqdn, name))
    short = name.partition(".")[0]
    return frozenset(one for one in (*found, short, f"{short}.local") if one)


def listening_address(url: str) -> str:
    """The part of a URL that identifies its socket: without path and query if it has a host."""
    head, mark, rest = url.partition("://")
    if not mark or not rest or rest.startswith("/"):
        return url.partition("?")[0]
    return f"{head}://{rest.partition('?')[0].partition('/')[0]}"


def inherited_sockets(url: str, options: Options) -> list[socket.socket]:
    """The already bound sockets for a URL; empty if there are none. Raises LocalError when they are gone."""
    taken: list[socket.socket] = []
    try:
        for number in options.sockets.get(listening_address(url), ()):
            taken.append(socket.socket(fileno=number))
            taken[-1].setblocking(False)
    except OSError as fault:
        for one in taken:
            one.detach()
        raise CannotListen(f"Cannot listen on {mask_url(url)}: the socket that was handed down is gone") from fault
    return taken


def _bind_one(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    if (given := activation().take(family, kind, address)) is not None:
        return given
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind == socket.SOCK_STREAM:
            if REUSE is not None:
                listening.setsockopt(socket.SOL_SOCKET, REUSE, 1)
            keep_alive(listening)  # accepted connections inherit it
        listening.bind(address)
        if kind == socket.SOCK_STREAM:
            listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def keep_alive(sock: socket.socket) -> None:
    """Detect within about two minutes that the far end's machine is gone (the system's default is two hours)."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def remote_name(name: object) -> str:
    """A peer's address as text, from the socket."""
    if isinstance(name, tuple) and len(name) >= 2:
        host = str(name[0])
        return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"
    return str(name) if name else "an unknown peer"


def bound_url(url: Url, bound: Sequence[socket.socket]) -> str:
    """The URL with the address at which the sockets really listen."""
    host = f"[{url.host}]" if ":" in url.host else url.host or "0.0.0.0"
    at = f"{url.scheme}://{host}:{bound[0].getsockname()[1]}"
    if not url.query:
        return at
    from urllib.parse import urlencode  # noqa: PLC0415  (start-up: for a query)

    return f"{at}?{urlencode(url.query)}"


def bind_unix(url: Url, mode: int) -> tuple[socket.socket, Callable[[], None]]:
    """Return the listening socket at a path, and a function that removes its file if it is still the same one. `mode`:
    the permissions of the file. Raises CannotListen."""
    if not UNIX:
        raise cannot_listen(url, NO_UNIX)
    path = os.path.abspath(url.path)
    size = len(os.fsencode(url.path))
    if size > LONGEST_PATH:
        raise cannot_listen(url, f"a socket's path may be {LONGEST_PATH} bytes long, this one is {size}")
    if (given := activation().take(AF_UNIX, socket.SOCK_STREAM, path)) is not None:
        return given, lambda: None
    listening = socket.socket(AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        with _locked(os.path.dirname(path)):
            _clear(url, url.path)
            before = os.umask(0o777 & ~mode)
            try:
                listening.bind(url.path)
            finally:
                os.umask(before)
            listening.listen(BACKLOG)
    except CannotListen:
        listening.close()
        raise
    except OSError as fault:
        listening.close()
        raise cannot_listen(url, "there is no such folder" if fault.errno == errno.ENOENT else fault) from fault
    ours = _identity(path)

    def remove() -> None:
        if ours is not None and _identity(path) == ours:
            with contextlib.suppress(OSError):
                os.unlink(path)

    return listening, remove


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold the lock of the folder if possible, so that two processes never both replace one stale file."""
    try:
        held = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        yield  # bind will report what is wrong, if anything
        return
    try:
        for _ in range(50):  # ours is held for microseconds; do not wait for a foreign lock on the folder
            try:
                if lock(held):
                    break
                time.sleep(0.01)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(held)


def _clear(url: Url, path: str) -> None:
    """Remove a socket file on which no process listens any more. Raises CannotListen for any other file."""
    found = clear_socket(path)
    if found == "no socket":
        raise cannot_listen(url, "a file is there that is not a socket")
    if found == "in use":
        raise _in_use(url)


def clear_socket(path: str) -> Literal["free", "no socket", "in use"]:
    """Remove a socket file on which no process listens any more; returns what is at the path then."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return "no socket"
    except FileNotFoundError:
        return "free"
    with socket.socket(AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except BlockingIOError:  # its queue is full: a process listens
            return "in use"
        else:
            return "in use"
    return "free"


def _in_use(url: Url) -> CannotListen:
    error = cannot_listen(url, "the socket is in use")
    error.errno = errno.EADDRINUSE
    return error


def _identity(path: str) -> tuple[int, int] | None:
    """Identifies the file at a path, to compare it later; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
