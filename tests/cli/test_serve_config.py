"""`dragoman serve --config`: what the file, the environment and the command line say, `--check`, and SIGHUP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme

from dragoman import RpcError, connect
from dragoman.cli.options import Output, WireOptions
from dragoman.cli.serving.config import LONGEST
from dragoman.cli.serving.settings import TABLE, ServeOptions
from dragoman.system.sockets import UNIX

from .conftest import PATIENCE, Command
from .test_serve import until

FAULTS: list[tuple[str, list[str]]] = [
    ('log-levle = "info"', ["log-levle: there is no such option; did you mean log-level?"]),
    ("frobnicate = 1", ["frobnicate: there is no such option; there are admin, "]),
    ('config = "x"', ["config: there is no such option"]),
    ('log_format = "xml"', ["log-format: 'xml': write one of 'text', 'json'"]),
    ('log-level = 3\ndrain = "5"', ["log-level: 3: write one of", "drain: expected a number, got text in quotes"]),
    ('workers = "2"', ["workers: expected a whole number, got text in quotes"]),
    ("workers = 0", ["0 workers cannot serve: at least 1, at most 1024"]),
    ('cors = "https://a.example"', ["cors: expected a list in brackets, got text in quotes"]),
    ("cors = [1]", ["cors: expected text in quotes, got a whole number"]),
    ('debug = "yes"', ["debug: expected true or false, got text in quotes"]),
    ("drain = -1", ["--drain -1: a time is not negative"]),
    ("[limit]\ncals = 1", ["there is no limit 'cals'; did you mean calls?"]),
    ('limit = ["calls=many"]', ["calls"]),
    ('tls-cert = "none.pem"', ["--tls-cert none.pem: No such file"]),
    ('tls-key = "own.pem"', ["--tls-key needs --tls-cert"]),
    ('urls = ["htp://127.0.0.1:0", "https://127.0.0.1:0"]', ["Did you mean http:?", "needs a certificate: --tls-cert"]),
    ('urls = ["tcp:"]', ["tcp:"]),
    ('target = "calculator:apu"', ["calculator has no 'apu'; did you mean calculator:api?"]),
    ('bus = "kafka://127.0.0.1"', ["--bus kafka://127.0.0.1: there are "]),
    ('metrics = "9090"', ["--metrics 9090: write :9090 for loopback"]),
    ('admin = "none/x.sock"', ["there is no folder"]),
    ('admin = "0.0.0.0:9091"', ["0.0.0.0 is not loopback"]),
    ("x =", ["invalid value (at "]),
]


@pytest.mark.parametrize(("text", "told"), FAULTS, ids=[text.partition("\n")[0] for text, _ in FAULTS])
def test_every_fault_is_told_at_once(command: Command, text: str, told: list[str]) -> None:
    beginning = "" if "target" in text or "x =" in text else 'target = "calculator:api"\n'
    (command.folder / "some.toml").write_text(beginning + text)
    done = command.run("serve", "--config", "some.toml", "--check", "--json")
    assert done.status == 2
    assert len(done.json["faults"]) == len(told) + ("x =" in text)  # a file that cannot be read names no target
    for sentence, expected in zip(done.json["faults"], told, strict=False):
        assert expected in sentence


def test_a_file_with_a_fault_is_not_served(command: Command) -> None:
    (command.folder / "some.toml").write_text('target = "calculator:api"\ndrian = 1\nquite = true\n')
    done = command.run("serve", "--config", "some.toml")
    assert done.status == 2
    assert "drian: there is no such option; did you mean drain?" in done.err
    assert "quite: there is no such option; did you mean quiet?" in done.err


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "No such file"), (b"\xff", "byte 0 is not UTF-8"), (b"#" * (LONGEST + 1), "more than 1048576 bytes")],
)
def test_a_file_that_cannot_be_read(command: Command, content: bytes | None, told: str) -> None:
    if content is not None:
        (command.folder / "some.toml").write_bytes(content)
    for words in ((), ("--check",)):
        done = command.run("serve", "calculator:api", "--config", "some.toml", *words)
        assert done.status == 2
        assert told in done.err


def test_what_is_in_order(command: Command) -> None:
    (command.folder / "some.toml").write_text('target = "calculator:api"\nurls = ["tcp://127.0.0.1:0"]\n')
    done = command.run("serve", "--config", "some.toml", "--check")
    assert (done.status, done.out, done.err) == (0, "in order: tcp://127.0.0.1:0\n", "")
    assert command.run("serve", "calculator:api", "--check").out == "in order: http://127.0.0.1:8000\n"


def test_the_file_of_the_manual_is_in_order(command: Command) -> None:
    text = (Path(__file__).parents[2] / "docs" / "snippets" / "dragoman.toml").read_text()
    (command.folder / "dragoman.toml").write_text(text)
    done = command.run("serve", "--config", "dragoman.toml", "--check")
    assert (done.status, done.err) == (0, "")
    assert "tcp://127.0.0.1:9000" in done.out


def test_every_option_of_serve_can_stand_in_the_file() -> None:
    """One table for all: nothing is listed a second time."""
    names = {name.replace("_", "-") for one in (ServeOptions, WireOptions, Output) for name in one.__dataclass_fields__}
    assert set(TABLE.types) == (names | {"target", "urls"}) - {"config", "check"}


def _drain(command: Command, *words: str, **env: str) -> str:
    """Where it says what the drain time is: in the refusal of it."""
    done = command.run(
        "serve", "calculator:api", *words, "--check", env={f"DRAGOMAN_SERVE_{k}": v for k, v in env.items()}
    )
    return done.err


def test_an_option_goes_before_a_variable_and_a_variable_before_the_file(command: Command) -> None:
    (command.folder / "some.toml").write_text("drain = -3\n")
    assert "--drain -3:" in _drain(command, "--config", "some.toml")
    assert "--drain -2:" in _drain(command, "--config", "some.toml", DRAIN="-2")
    assert "--drain -1:" in _drain(command, "--config", "some.toml", "--drain=-1", DRAIN="-2")
    assert "--drain -3:" in _drain(command, CONFIG="some.toml")
    assert "--drain -2:" in _drain(command, DRAIN="-2")
    assert "DRAGOMAN_SERVE_DRIAN is not an option of serve; did you mean DRAGOMAN_SERVE_DRAIN?" in _drain(
        command, DRIAN="2"
    )


async def test_target_urls_and_limits_of_the_file(command: Command) -> None:
    (command.folder / "some.toml").write_text(
        'target = "calculator:api"\nurls = ["tcp://127.0.0.1:0"]\njson = true\nlimit = {message_size = 1000}\n'
    )
    places = [((), "tcp"), (("http://127.0.0.1:0",), "http"), (("calculator:api", "unix:here"), "unix")]
    for words, scheme in places if UNIX else places[:2]:
        process = command.start("serve", *words, "--config", "some.toml")
        assert process.stdout is not None
        (url,) = _urls(process.stdout.readline())
        assert url.startswith(f"{scheme}:")
        if scheme == "tcp":
            async with connect(url) as peer:
                assert await peer.call("echo", ["x" * 500]) == "x" * 500
                with pytest.raises(Exception, match="1000"):
                    await peer.call("echo", ["x" * 2000])
        process.terminate()
        assert await asyncio.to_thread(process.wait, 20) == 0


def _urls(line: str) -> list[str]:
    import msgspec

    found: dict[str, Any] = msgspec.json.decode(line)
    return list(found["urls"])


# -- SIGHUP ---------------------------------------------------------------------------------------


class Certificates:
    """A certificate file that can be renewed."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.path = folder / "own.pem"
        self.renew()

    def renew(self) -> bytes:
        """Another certificate; as it is sent."""
        new = self.path.with_suffix(".new")
        cert = self.authority.issue_cert("127.0.0.1")
        cert.private_key_and_cert_chain_pem.write_to_path(str(new))
        os.replace(new, self.path)
        return ssl.PEM_cert_to_DER_cert(cert.cert_chain_pems[0].bytes().decode())

    def context(self) -> ssl.SSLContext:
        """A client's that trusts them."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


async def _shown(url: str, trusted: ssl.SSLContext) -> bytes:
    """The certificate that a new connection is shown."""
    host, _, port = url.partition("://")[2].rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=trusted)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return bytes(shown)


async def test_sighup_reads_the_certificate_again_and_connections_live(command: Command) -> None:
    certificates = Certificates(command.folder)
    first = certificates.renew()
    process, (url,) = command.serve("tls://127.0.0.1:0", options=("--tls-cert", str(certificates.path)))
    trusted = certificates.context()
    async with connect(url, tls=trusted) as peer:
        assert await _shown(url, trusted) == first
        second = certificates.renew()
        process.send_signal(signal.SIGHUP)
        await asyncio.to_thread(until, process.stderr, "the certificate is read again")
        assert await _shown(url, trusted) == second
        certificates.path.write_text("no certificate")
        process.send_signal(signal.SIGHUP)
        assert "nothing is changed: --tls-cert" in await asyncio.to_thread(until, process.stderr, "SIGHUP")
        assert await _shown(url, trusted) == second
        assert await peer.call("subtract", [42, 23]) == 19


async def test_sighup_names_what_needs_a_restart_and_a_fault_changes_nothing(command: Command) -> None:
    file = command.folder / "some.toml"
    file.write_text('cors = ["https://a.example"]\n')
    process, (url,) = command.serve("tcp://127.0.0.1:0", options=("--config", "some.toml"))
    for text, told in (
        ('cors = ["https://a.example"]\n', "nothing has changed"),
        ('cors = ["https://b.example"]\nstore = "memory:"\n', "this needs a restart: cors, store"),
        ('cors = ["https://b.example"]\ndrain = -7\n', "nothing is changed: --drain -7: a time is not negative"),
        ('bus = "kafka://127.0.0.1"\ndebug = true\n', "nothing is changed: --bus kafka://127.0.0.1"),
        ("dran = 7\n", "nothing is changed: some.toml: dran: there is no such option; did you mean drain?"),
        ("drain = \n", "nothing is changed: some.toml: invalid value"),
    ):
        file.write_text(text)
        process.send_signal(signal.SIGHUP)
        assert told in await asyncio.to_thread(until, process.stderr, "SIGHUP")
    async with connect(url) as peer:
        assert await peer.call("subtract", [42, 23]) == 19


async def test_sighup_changes_what_one_process_can_change(command: Command) -> None:
    """The log, `debug` and the drain, as the file says, and back again; connections live."""
    file = command.folder / "some.toml"
    file.write_text("")
    process, (url,) = command.serve("tcp://127.0.0.1:0", options=("--config", "some.toml"))

    async def reread(text: str, told: str) -> str:
        file.write_text(text)
        process.send_signal(signal.SIGHUP)
        return await asyncio.to_thread(until, process.stderr, told)

    async with connect(url) as peer:
        with pytest.raises(RpcError) as masked:
            await peer.call("fail", ["other"])
        assert "a secret of ours" not in f"{masked.value.data}"
        text = 'debug = true\nlog-level = "info"\nlog-format = "json"\ndrain = 5\nstore = "memory:"\n'
        line = json.loads(await reread(text, "SIGHUP: changed"))
        assert (line["level"], line["message"]) == (
            "info",
            "SIGHUP: changed: debug, drain, log-format, log-level",
        )
        assert "restart: store" in await asyncio.to_thread(until, process.stderr, "restart")
        with pytest.raises(RpcError) as open_:
            await peer.call("fail", ["other"])
        assert "a secret of ours" in f"{open_.value.data}"
        fault = json.loads(await asyncio.to_thread(until, process.stderr, "a secret of ours"))
        assert fault["level"] == "error"
        call = json.loads(await asyncio.to_thread(until, process.stderr, '"logger":"access"'))
        assert (call["method"], call["outcome"]) == ("fail", "error")
        await reread('log-level = "warning"\nstore = "memory:"\n', "restart")
        await peer.call("subtract", [42, 23])
        with pytest.raises(RpcError) as again:
            await peer.call("fail", ["other"])
        assert "a secret of ours" not in f"{again.value.data}"
        await asyncio.to_thread(until, process.stderr, "a secret of ours")
    process.terminate()
    assert process.stderr is not None
    rest = process.stderr.read()
    assert "access: " not in rest
    assert process.wait(20) == 0


async def test_workers_read_all_of_it_again(command: Command) -> None:
    """Each is replaced by one that reads the file and the certificate; what is faulty leaves them as they are."""
    certificates = Certificates(command.folder)
    first = certificates.renew()
    file = command.folder / "some.toml"
    text = f'tls-cert = "{certificates.path}"\nworkers = 2\nlimit = {{message_size = 1000}}\n'
    file.write_text(text)
    process, (url,) = command.serve("tls://127.0.0.1:0", options=("--config", "some.toml"))
    trusted = certificates.context()
    old = [
        int(
            (await asyncio.to_thread(until, process.stderr, f"worker {number} "))
            .partition("(pid ")[2]
            .partition(")")[0]
        )
        for number in (1, 2)
    ]
    assert await _shown(url, trusted) == first
    file.write_text("workrs = 2\n")
    process.send_signal(signal.SIGHUP)
    assert "workrs" in await asyncio.to_thread(until, process.stderr, "nothing is changed")
    second = certificates.renew()
    file.write_text(text.replace("1000", "10_000").replace("workers = 2", "workers = 3"))
    process.send_signal(signal.SIGHUP)
    assert "restart: workers" in await asyncio.to_thread(until, process.stderr, "restart")
    for number in (1, 2):
        await asyncio.to_thread(until, process.stderr, f"worker {number} ")
    async with asyncio.timeout(PATIENCE):
        while any(map(psutil.pid_exists, old)):  # noqa: ASYNC110  (they drain, and may take one more connection)
            await asyncio.sleep(0.05)
    assert await _shown(url, trusted) == second
    async with connect(url, tls=trusted) as peer:
        assert await peer.call("echo", ["x" * 2000]) == "x" * 2000
