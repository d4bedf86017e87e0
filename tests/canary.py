"""A canary in every token and secret of the run, and a test fails in which it turns up where it must not.

What is marked: secrets that tests make up begin with CANARY; of those that dragoman makes (codes, verifiers, refresh
tokens, clients' secrets, cookies, keys of a server) the first bytes of `os.urandom` are chosen so that their text does.
Signatures cannot be marked: a whole JWT and a private key are known by their shape, wherever they were made.

Where it is looked for: every record of every logger at every level, written down or not, with its traceback; warnings;
what a test and its children write to their standard output and error; spans; decisions of the audit; events of the
trace; our errors as they are made and all errors that a test expects; what our servers answer with an error; what our
clients send, but for the places in ALLOWED; and a token that is sent to two servers was passed on.
"""

from __future__ import annotations

import asyncio.subprocess
import io
import logging
import os
import re
import subprocess
import sys
import traceback
from base64 import b64decode, urlsafe_b64decode
from binascii import Error as NoBase64
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import parse_qsl

import pytest
from _pytest._code import ExceptionInfo
from _pytest.capture import CaptureFixture
from _pytest.recwarn import WarningsRecorder

CANARY: Final = "canary-7f3a"
"""What secrets that a test makes up begin with."""
_MARK: Final = f"{CANARY}-----"
_MARKED: Final = urlsafe_b64decode(_MARK)
"""Bytes whose base64url begins with the canary, and whatever follows them."""
_LONG: Final = 24
"""Bytes of a random value from which on it is a secret: names of keys, tokens and clients are shorter."""

ALLOWED: Final = {
    "authorization": "the field that carries a token, or a client's secret (RFC 6750 section 2.1, RFC 6749 section 2.3.1)",
    "dpop": "a proof is a JWT of its own, good once (RFC 9449 section 4)",
    "code": "form: what a token endpoint is asked with (RFC 6749 section 4.1.3)",
    "code_verifier": "form: proves who began the login (RFC 7636 section 4.5)",
    "refresh_token": "form: what is renewed (RFC 6749 section 6)",
    "device_code": "form: what a device waits for (RFC 8628 section 3.4)",
    "client_secret": "form: a client whose server wants its secret there (RFC 6749 section 2.3.1)",
    "client_assertion": "form: private_key_jwt (RFC 7523 section 2.2)",
    "assertion": "form: the grant of jwt-bearer (RFC 7523 section 2.1)",
    "subject_token": "form: what is exchanged (RFC 8693 section 2.1)",
    "actor_token": "form: on whose behalf it is exchanged (RFC 8693 section 2.1)",
    "token": "form: what is introspected or revoked (RFC 7662 section 2.1, RFC 7009 section 2.1)",
}
"""Fields of requests that may carry one, and why; header fields but where they say that they are a form's."""
FOREIGN_LOGS: Final = {
    "uvicorn": "an ASGI server's own log has URLs and, at level debug, header fields (docs/auth/threats.md says so)",
    "websockets": "the clients of tests: their library's own log",
}
"""Loggers of others that write down what they carry, and why they are let."""
FOREIGN_CHILDREN: Final = {
    "playwright": "the browser tells the test every request and answer, the callback's URL too",
}
"""Children whose output is not ours, and why they are let."""
_FORM: Final = frozenset(name for name, why in ALLOWED.items() if why.startswith("form:"))
_HEADERS: Final = frozenset(ALLOWED) - _FORM

_STATE: Final = re.compile(rf"([?&]|\b)state={_MARK}[\w-]+")
"""`state` tells a browser's answers apart, and stands in the URL that a person is shown: it opens nothing."""
_JWT: Final = re.compile(r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}")
_BASIC: Final = re.compile(r"\bBasic ([A-Za-z0-9+/]{8,}={0,2})")
_PRIVATE: Final = re.compile(r"""PRIVATE KEY-----|["']d["']: ?["'][\w-]{40,}["']""")


def found_in(text: str) -> str | None:
    """What of a secret stands in a text, in words that do not repeat it; None: nothing."""
    if CANARY in text and (marked := _STATE.sub("", text)).find(CANARY) >= 0:
        return f"a secret, after {marked[: marked.index(CANARY)][-60:]!r}"
    if "eyJ" in text and (jwt := _JWT.search(text)):
        return f"a JWT, after {text[: jwt.start()][-60:]!r}"
    if "Basic " in text and any(_decodes(one) for one in _BASIC.findall(text)):
        return "a client's secret in Basic"
    if ("PRIVATE KEY" in text or "kty" in text) and _PRIVATE.search(text):
        return "a private key"
    return None


def _decodes(text: str) -> bool:
    try:
        return CANARY.encode() in b64decode(text)
    except NoBase64:
        return False


class Watch:
    """Looks, and remembers what it found until the test that ran is judged. `install` and `remove`: once each."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._sent: dict[str, str] = {}
        """The server that each token of this test was sent to first."""
        self._undo: list[Callable[[], None]] = []

    def look(self, where: str, text: str) -> None:
        """Look at one text."""
        if (what := found_in(text)) is not None:
            self.found.append(f"{where}: {what}")

    # -- of pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        """Fail the test that ran if anything was found."""
        report: pytest.TestReport = yield
        for name, text in report.sections:
            if "log" not in name and name.endswith(report.when or ""):  # each record was looked at
                self.look(name, text)
        if self.found and report.outcome == "passed" and item.get_closest_marker("leaks") is None:
            report.outcome = "failed"
            lines = "\n".join(f"  {one}" for one in dict.fromkeys(self.found))
            report.longrepr = f"a canary turned up where it must not (tests/canary.py):\n{lines}"
        self.found.clear()
        if report.when == "teardown":
            self._sent.clear()
        return report

    def pytest_collection_finish(self) -> None:
        """Spans, where a test has them: their library is not loaded for those that have none."""
        if (kept := sys.modules.get("opentelemetry.sdk.trace.export.in_memory_span_exporter")) is not None:
            self._around(kept.InMemorySpanExporter, "export", self._spans)

    # -- the places

    def install(self) -> None:
        """Look at every place from now on."""
        from dragoman.auth.auditing import Audit
        from dragoman.auth.client.errors import AuthorizationFailed
        from dragoman.auth.errors import TokenRefused
        from dragoman.jsonrpc.errors import RpcError
        from dragoman.rpc.tracing import Trace
        from dragoman.transports.http.client.connection import ClientConnection
        from dragoman.transports.http.connection import ServerConnection

        self._put(os, "urandom", _urandom(os.urandom))
        for error in (AuthorizationFailed, TokenRefused, RpcError):
            self._around(error, "__init__", self._made)
        self._around(WarningsRecorder, "__exit__", self._warned)
        self._around(ExceptionInfo, "fill_unfilled", self._expected)
        self._around(CaptureFixture, "readouterr", None, self._read)
        self._put(logging.Logger, "handle", self._handling(logging.Logger.isEnabledFor, logging.Logger.handle))
        self._put(logging.Logger, "isEnabledFor", _enabling(logging.Logger.isEnabledFor))
        self._around(Audit, "_record", lambda _, decision: self.look("the audit", repr(decision)))
        self._around(Trace, "__init__", self._traced)
        self._around(ClientConnection, "ask", self._asked)
        self._around(ServerConnection, "_flush", self._answered)
        self._around(subprocess.Popen, "communicate", None, self._read)
        self._put(subprocess, "io", SimpleNamespace(**vars(io) | {"open": self._opened}))
        self._around(asyncio.subprocess.SubprocessStreamProtocol, "pipe_data_received", self._piped)

    def remove(self) -> None:
        """Look no more."""
        while self._undo:
            self._undo.pop()()

    def _put(self, owner: Any, name: str, new: Any) -> None:
        old = getattr(owner, name)
        setattr(owner, name, new)
        self._undo.append(lambda: setattr(owner, name, old))

    def _around(
        self, owner: Any, name: str, before: Callable[..., object] | None, after: Callable[[Any], object] | None = None
    ) -> None:
        """Have `before` see the arguments of a method, or `after` its result."""
        old = getattr(owner, name)

        @wraps(old)
        def new(*args: Any, **options: Any) -> Any:
            if before is not None:
                before(*args, **options)
            result = old(*args, **options)
            if after is not None:
                after(result)
            return result

        self._put(owner, name, new)

    def _made(self, _: object, *args: object, **options: object) -> None:
        for one in (*args, *options.values()):
            self.look("an error", one if isinstance(one, str) else repr(one))

    def _expected(self, _: object, found: tuple[type, BaseException, Any]) -> None:
        """An error that `pytest.raises` takes, and what led to it."""
        error: BaseException | None = found[1]
        seen = set[int]()
        while error is not None and id(error) not in seen:  # an error may be its own cause
            seen.add(id(error))
            self.look(f"a {type(error).__name__}", f"{error} {error!r} {getattr(error, '__notes__', '')}")
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)

    def _warned(self, taken: WarningsRecorder, *_: object) -> None:
        """Warnings that a test expects; all others are errors."""
        for one in taken.list:
            self.look("a warning", str(one.message))

    def _handling(self, enabled: Callable[..., bool], handle: Callable[..., None]) -> Callable[..., None]:
        """All records are made; the handlers get those that they would have got."""

        def handling(logger: logging.Logger, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += "".join(traceback.format_exception(record.exc_info[1]))
            if record.name.partition(".")[0] not in FOREIGN_LOGS:
                self.look(f"the log {record.name} ({record.levelname})", text)
            if enabled(logger, record.levelno):
                handle(logger, record)

        return handling

    def _spans(self, _: object, spans: Any) -> None:
        for span in spans:
            self.look("a span", span.to_json())

    def _traced(self, _: object, hook: Callable[[Any], object]) -> None:
        """Nothing of a message is secret to a trace but what is secret to its peer."""

    def _asked(self, connection: Any, head: bytes, body: bytes, timeout: float | None) -> None:
        """A request that one of our clients sends."""
        line, *fields = head.decode("latin-1").split("\r\n")
        self.look("the URL of a request", line)
        form = False
        for field in fields:
            name, _, value = field.partition(": ")
            if name.lower() not in _HEADERS:
                self.look(f"the field {name} of a request", value)
            elif name.lower() == "authorization" and found_in(value) is not None:
                token = value.partition(" ")[2]
                if self._sent.setdefault(token, connection.where) != connection.where:
                    self.found.append(f"a token of {self._sent[token]} was passed on to {connection.where}")
            form = form or (name.lower() == "content-type" and "form" in value)
        text = body.decode("latin-1")
        if form:
            pairs = parse_qsl(text, keep_blank_values=True)
            text = " ".join(f"{name}={value}" for name, value in pairs if name not in _FORM)
        self.look("the body of a request", text)

    def _answered(self, connection: Any) -> None:
        """What one of our servers answers: where it is an error, nothing of a secret belongs to it."""
        for out in connection._out:
            if out.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")) or b'"error":{' in out:
                self.look("an answer with an error", out.decode("latin-1"))

    def _read(self, result: Any) -> None:
        """The standard output and error of a test or a child."""
        for one in result:
            self.look("the output", one if isinstance(one, str) else (one or b"").decode("latin-1"))

    def _opened(self, file: int, mode: str, size: int = -1) -> Any:
        """A pipe of a child."""
        if mode != "rb":
            return open(file, mode, size)
        pipe = _Pipe(file, self.look)
        return pipe if size == 0 else io.BufferedReader(pipe, size if size > 1 else io.DEFAULT_BUFFER_SIZE)

    def _piped(self, protocol: Any, fd: int, data: bytes) -> None:
        if not any(name in str(protocol._transport._proc.args) for name in FOREIGN_CHILDREN):
            self.look("the output of a child", data.decode("latin-1"))


class _Pipe(io.FileIO):
    """A pipe of a child whose text is looked at as it is read."""

    def __init__(self, file: int, look: Callable[[str, str], None]) -> None:
        super().__init__(file, "rb")
        self._look = look
        self._last = b""

    def readinto(self, buffer: Any, /) -> int | None:
        count = super().readinto(buffer)
        self._seen(bytes(memoryview(buffer)[: count or 0]))
        return count

    def readall(self) -> bytes:
        data = super().readall()
        self._seen(data or b"")
        return data

    def _seen(self, data: bytes) -> None:
        whole = self._last + data
        self._look("the output of a child", whole.decode("latin-1"))
        self._last = whole[-len(_MARK) :]


def _urandom(real: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Random bytes; those of which dragoman makes a secret begin with the mark."""

    def urandom(size: int, /) -> bytes:
        caller = sys._getframe(1)
        made = real(size)
        family = caller.f_code.co_name == "new_id"  # of refresh tokens
        if (size >= _LONG or family) and caller.f_globals.get("__name__", "").startswith("dragoman.auth."):
            return _MARKED + made[len(_MARKED) :]
        return made

    return urandom


def _enabling(real: Callable[[logging.Logger, int], bool]) -> Callable[[logging.Logger, int], bool]:
    """All levels, but of a logger that was silenced for good, and of the audit: without a reader it makes no record of
    who is admitted, which a test measures."""

    def enabled(logger: logging.Logger, level: int) -> bool:
        silent = logger.level > logging.CRITICAL or logger.name == "dragoman.audit"
        return real(logger, level) if silent else True

    return enabled


def watch(config: pytest.Config) -> None:
    """Watch this run, in the process whose tests they are."""
    looking = Watch()
    looking.install()
    config.pluginmanager.register(looking, "canary")
    config.add_cleanup(looking.remove)
