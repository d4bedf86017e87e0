"""`dragoman serve --auth-...`: whom it lets in, and what is wrong with the options."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from dragoman import RpcError, connect
from dragoman.auth import Bearer, Introspection
from dragoman.auth.testing import LocalIssuer
from dragoman.channel import Handshake
from dragoman.cli.exit_status import Usage
from dragoman.cli.options import WireOptions
from dragoman.cli.serving.check import faults_of
from dragoman.cli.serving.settings import ServeOptions

from .conftest import Command

RESOURCE = "https://calc.example/"
ISSUER = "https://as.example"
SECRET = "s3cret-of-the-server"
ASKING: dict[str, Any] = {
    "auth-issuer": [ISSUER],
    "auth-resource": RESOURCE,
    "auth-introspection": ISSUER + "/introspect",
    "auth-client-id": "calc",
    "auth-client-secret-file": "secret",
}
TOGETHER = "--auth-issuer and --auth-resource go together"

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("no resource", {"auth-introspection": None, "auth-resource": None}, TOGETHER),
    ("no issuer", {"auth-issuer": None}, TOGETHER),
    ("the endpoint alone", {"auth-issuer": None, "auth-resource": None}, TOGETHER),
    ("two issuers", {"auth-issuer": [ISSUER, "https://b.example"]}, "one --auth-issuer, not 2"),
    ("no client", {"auth-client-id": None}, "needs --auth-client-id"),
    ("no secret", {"auth-client-secret-file": None}, "needs a secret: --auth-client-secret-file FILE, or DRAGOMAN_CLI"),
    ("no such file", {"auth-client-secret-file": "none"}, "--auth-client-secret-file none: No such file"),
    ("a folder", {"auth-client-secret-file": "."}, "--auth-client-secret-file .: Is a directory"),
    ("an empty file", {"auth-client-secret-file": "empty"}, "a secret is one line of 1 to 4096 bytes"),
    ("two lines", {"auth-client-secret-file": "lines"}, "a secret is one line"),
    ("a large file", {"auth-client-secret-file": "large"}, "a secret is one line"),
    ("another kind of file", {"auth-client-secret-file": "binary"}, "the secret is not UTF-8"),
    ("no URL", {"auth-introspection": "introspect"}, "the endpoint is an https URL, not 'introspect'"),
    ("a resource that is none", {"auth-resource": "calc"}, "resource is this server's URL"),
    ("a client for signatures", {"auth-introspection": None}, "--auth-client-id goes with --auth-introspection URL"),
    (
        "a secret for signatures",
        {"auth-introspection": None, "auth-client-id": None},
        "--auth-client-secret-file goes with --auth-introspection URL",
    ),
    ("an issuer that is none", {"auth-issuer": ["as"], "auth-client-id": None}, "needs --auth-client-id"),
]


SIGNED: dict[str, Any] = {"auth-introspection": None, "auth-client-id": None, "auth-client-secret-file": None}
KEYS: list[tuple[str, dict[str, Any], str]] = [
    ("no issuer", SIGNED | {"auth-issuer": None, "auth-resource": None}, TOGETHER),
    ("asking too", {}, "--auth-public-key verifies tokens here, and --auth-introspection asks about them"),
    ("two issuers", SIGNED | {"auth-issuer": [ISSUER, "https://b.example"]}, "a key is that of one issuer"),
    ("no such file", SIGNED | {"auth-public-key": "none.pem"}, "--auth-public-key none.pem: No such file"),
    ("a private key", SIGNED | {"auth-public-key": "private.pem"}, "public_key is a private key"),
    ("no key", SIGNED | {"auth-public-key": "secret"}, "public_key is the PEM text of a public key"),
]


def words_of(options: dict[str, Any]) -> list[str]:
    """The options as words of a command line."""
    found: list[str] = []
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value] if value is not None else []:
            found += [f"--{name}", one]
    return found


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"secret": f"{SECRET}\n", "empty": "\n", "lines": f"{SECRET}\nx\n", "large": "x" * 5000}
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRAGOMAN_CLIENT_SECRET", raising=False)


def options_of(changes: dict[str, Any]) -> ServeOptions:
    given = {name.replace("-", "_"): value for name, value in (ASKING | changes).items() if value is not None}
    return ServeOptions(**given)


@pytest.mark.usefixtures("secrets")
@pytest.mark.parametrize(("changes", "told"), [pytest.param(*row[1:], id=row[0]) for row in WRONG])
def test_what_is_wrong(changes: dict[str, Any], told: str) -> None:
    options = options_of(changes)
    with pytest.raises(Usage) as caught:
        options.auth()
    assert told in str(caught.value)
    assert SECRET not in str(caught.value)
    assert faults_of(options, WireOptions()) == [str(caught.value)]  # what --check tells, and SIGHUP


@pytest.mark.usefixtures("secrets")
@pytest.mark.parametrize(("changes", "told"), [pytest.param(*row[1:], id=row[0]) for row in KEYS])
def test_what_is_wrong_with_a_key(changes: dict[str, Any], told: str) -> None:
    write_keys()
    options = options_of({"auth-public-key": "key.pem"} | changes)
    with pytest.raises(Usage) as caught:
        options.auth()
    assert told in str(caught.value)
    assert SECRET not in str(caught.value)
    assert faults_of(options, WireOptions()) == [str(caught.value)]


@pytest.mark.usefixtures("secrets")
async def test_the_key_of_an_issuer() -> None:
    private = write_keys()
    verifier = options_of(SIGNED | {"auth-public-key": "key.pem"}).auth()
    assert isinstance(verifier, Bearer)
    claims = {"iss": ISSUER, "aud": RESOURCE, "sub": "ada", "client_id": "app", "exp": int(time.time()) + 60}
    token = jwt.encode(claims, private, algorithm="EdDSA", headers={"typ": "at+jwt"})
    assert (await verifier.verify(token, Handshake(scheme="http", method="POST", url="/"))).subject == "ada"


def write_keys() -> bytes:
    """The files of a key pair in this folder; the private one."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    Path("private.pem").write_bytes(private)
    Path("key.pem").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private


@pytest.mark.usefixtures("secrets")
def test_what_is_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for changes in ({}, {"auth-introspection": None, "auth-client-id": None, "auth-client-secret-file": None}):
        assert faults_of(options_of(changes), WireOptions()) == []
    assert isinstance(options_of({}).auth(), Introspection)
    monkeypatch.setenv("DRAGOMAN_CLIENT_SECRET", SECRET)
    assert isinstance(options_of({"auth-client-secret-file": None}).auth(), Introspection)
    assert ServeOptions().auth() is None  # the variable may be there for `login`


def test_a_secret_is_no_option(command: Command) -> None:
    words = words_of(ASKING | {"auth-client-secret-file": None})
    done = command.run("serve", "calculator:api", *words, "--auth-client-secret", SECRET, "--check")
    assert done.status == 2
    (command.folder / "auth.toml").write_text(f'target = "calculator:api"\nauth-client-secret = "{SECRET}"\n')
    done = command.run("serve", "--config", "auth.toml", *words, "--check")
    assert done.status == 2
    assert "did you mean auth-client-secret-file?" in done.err
    assert "--auth-introspection needs a secret" in done.err
    assert SECRET not in done.err


@pytest.mark.parametrize("where", ["file", "environment", "options file"])
async def test_the_issuer_is_asked_about_tokens(command: Command, where: str) -> None:
    with LocalIssuer(resources=[RESOURCE]) as issuer:
        issuer.client("calc", SECRET)
        (command.folder / "secret").write_text(SECRET + "\n")
        options = ASKING | {"auth-issuer": [issuer.url], "auth-introspection": issuer.url + "/introspect"}
        env: dict[str, str] = {}
        if where == "environment":
            options |= {"auth-client-secret-file": None}
            env = {"DRAGOMAN_CLIENT_SECRET": SECRET}
        words = words_of(options)
        if where == "options file":
            lines = [f"{name} = {value!r}" for name, value in options.items() if value is not None]
            (command.folder / "auth.toml").write_text("\n".join(lines))
            words = ["--config", "auth.toml"]
        process = command.start("serve", "calculator:api", "http://127.0.0.1:0", *words, "--json", env=env)
        assert process.stdout is not None
        (url,) = msgspec.json.decode(await asyncio.to_thread(process.stdout.readline))["urls"]
        good = issuer.token("ada", resource=RESOURCE, client="app")
        async with connect(url, auth=good) as peer:
            assert await peer.call("subtract", [42, 23]) == 19
        for auth, told in ((issuer.expired("ada", resource=RESOURCE), "not active"), (None, "show a token")):
            async with connect(url, auth=auth) as peer:
                with pytest.raises(RpcError, match=told):
                    await peer.call("subtract", [42, 23])
        process.terminate()
        assert await asyncio.to_thread(process.wait, 20) == 0
