"""The guard of tokens, handshake by handshake: what each is answered with, and by which challenge."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from dragoman import Identity, LocalError
from dragoman.auth import Bearer, MutualTls, Static, TokenRefused, Verifier
from dragoman.auth.auditing import Decision
from dragoman.auth.challenge import parse_challenges
from dragoman.auth.dpop import proof
from dragoman.auth.guard import TokenGuard, protection_of
from dragoman.auth.jose import new_key, thumbprint
from dragoman.bus.memory import MemoryBus
from dragoman.channel import Admitted, Denied, Handshake, UnixCredentials
from dragoman.jsonrpc.errors import Refusal

from ..canary import CANARY
from .guarding import ISSUER, METADATA, RESOURCE, Issued, issued, token, who
from .issuing import Clock, FakeIssuer, shown
from .issuing import token as signed

Row = tuple[str, Sequence[tuple[bytes, bytes]], str, int, str]


def auth(value: str | bytes) -> tuple[bytes, bytes]:
    return b"authorization", value if isinstance(value, bytes) else value.encode()


GOOD = f"Bearer {token('ada')}"
URL = "https://mcp.example/mcp"

REFUSED: list[Row] = [
    ("no header", [], URL, 401, ""),
    ("other headers alone", [(b"accept", b"*/*"), (b"cookie", b"a=b")], URL, 401, ""),
    ("basic", [auth("Basic YWRhOnNlY3JldA==")], URL, 401, ""),
    ("digest", [auth('Digest username="ada"')], URL, 401, ""),
    ("negotiate", [auth("Negotiate abc")], URL, 401, ""),
    ("another scheme with a good token", [auth(f"Token {token('ada')}")], URL, 401, ""),
    ("a scheme alone that is none of ours", [auth("Basic")], URL, 401, ""),
    ("empty", [auth("")], URL, 400, "invalid_request"),
    ("the scheme alone", [auth("Bearer")], URL, 400, "invalid_request"),
    ("the scheme and a space", [auth("Bearer ")], URL, 400, "invalid_request"),
    ("two tokens", [auth(f"{GOOD} {token('bob')}")], URL, 400, "invalid_request"),
    ("a token and a parameter", [auth(f'{GOOD}, realm="x"')], URL, 400, "invalid_request"),
    ("two credentials in one field", [auth(f"{GOOD}, {GOOD}")], URL, 400, "invalid_request"),
    ("quoted", [auth(f'Bearer "{token("ada")}"')], URL, 400, "invalid_request"),
    ("a tab between", [auth(f"Bearer\t{token('ada')}")], URL, 400, "invalid_request"),
    ("no space", [auth(f"Bearer:{token('ada')}")], URL, 400, "invalid_request"),
    ("an equals sign within", [auth("Bearer a=b")], URL, 400, "invalid_request"),
    ("equals signs alone", [auth("Bearer ==")], URL, 400, "invalid_request"),
    ("a percent sign", [auth("Bearer a%20b")], URL, 400, "invalid_request"),
    ("latin-1", [auth(b"Bearer t\xe9")], URL, 400, "invalid_request"),
    ("UTF-8", [auth("Bearer t€n")], URL, 400, "invalid_request"),
    ("a NUL", [auth(b"Bearer a\x00b")], URL, 400, "invalid_request"),
    ("a control character", [auth(b"Bearer a\x1bb")], URL, 400, "invalid_request"),
    ("a line end", [auth(b"Bearer a\r\nX: y")], URL, 400, "invalid_request"),
    ("a brace", [auth('Bearer {"alg":"none"}')], URL, 400, "invalid_request"),
    ("a comma", [auth("Bearer a,b")], URL, 400, "invalid_request"),
    ("a semicolon", [auth("Bearer a;b")], URL, 400, "invalid_request"),
    ("a leading space", [auth(f" {GOOD}")], URL, 400, "invalid_request"),
    ("a trailing space", [auth(f"{GOOD} ")], URL, 400, "invalid_request"),
    ("two fields, both good", [auth(GOOD), auth(GOOD)], URL, 400, "invalid_request"),
    ("two fields, the first good", [auth(GOOD), auth("Bearer x")], URL, 400, "invalid_request"),
    ("two fields, the second good", [auth("Bearer x"), auth(GOOD)], URL, 400, "invalid_request"),
    ("two fields, one empty", [auth(""), auth(GOOD)], URL, 400, "invalid_request"),
    ("two fields, one basic", [auth("Basic eA=="), auth(GOOD)], URL, 400, "invalid_request"),
    ("three fields", [auth(GOOD)] * 3, URL, 400, "invalid_request"),
    ("two fields apart", [auth(GOOD), (b"accept", b"*/*"), auth(GOOD)], URL, 400, "invalid_request"),
    ("two proofs", [auth(GOOD), (b"dpop", b"a"), (b"dpop", b"b")], URL, 400, "invalid_request"),
    ("two equal proofs", [auth(GOOD), (b"dpop", b"a"), (b"dpop", b"a")], URL, 400, "invalid_request"),
    ("two proofs and no token", [(b"dpop", b"a"), (b"dpop", b"b")], URL, 400, "invalid_request"),
    ("in the query alone", [], f"{URL}?access_token={token('ada')}", 400, "invalid_request"),
    ("in the query too", [auth(GOOD)], f"{URL}?access_token={token('ada')}", 400, "invalid_request"),
    ("later in the query", [auth(GOOD)], f"{URL}?a=b&access_token=x", 400, "invalid_request"),
    ("in the query, empty", [auth(GOOD)], f"{URL}?access_token=", 400, "invalid_request"),
    ("in the query, without a value", [auth(GOOD)], f"{URL}?access_token", 400, "invalid_request"),
    ("in the query, in capitals", [auth(GOOD)], f"{URL}?ACCESS_TOKEN=x", 400, "invalid_request"),
    ("behind a semicolon", [auth(GOOD)], f"{URL}?a=b;access_token=x", 400, "invalid_request"),
    ("unknown", [auth("Bearer unknown-token")], URL, 401, "invalid_token"),
    ("another case", [auth(f"Bearer {token('ada').upper()}")], URL, 401, "invalid_token"),
    ("the beginning of one", [auth(GOOD[:-1])], URL, 401, "invalid_token"),
    ("more than one", [auth(f"{GOOD}x")], URL, 401, "invalid_token"),
    ("padded", [auth(f"{GOOD}=")], URL, 401, "invalid_token"),
    ("one character", [auth("Bearer x")], URL, 401, "invalid_token"),
    ("alg none", [auth("Bearer eyJhbGciOiJub25lIn0.e30.")], URL, 401, "invalid_token"),
    ("dots", [auth("Bearer ...")], URL, 401, "invalid_token"),
    ("a path", [auth("Bearer ../../etc/passwd")], URL, 401, "invalid_token"),
    ("as long as allowed", [auth(b"Bearer " + b"x" * 16_384)], URL, 401, "invalid_token"),
    ("a byte too long", [auth(b"Bearer " + b"x" * 16_385)], URL, 401, "invalid_token"),
    ("far too long", [auth(b"Bearer " + b"x" * 1_000_000)], URL, 401, "invalid_token"),
    ("too long, and not in the grammar", [auth(b"Bearer " + b"{" * 20_000)], URL, 401, "invalid_token"),
    ("expired", [auth(f"Bearer {token('expired')}")], URL, 401, "invalid_token"),
    ("refused for its scope", [auth(f"Bearer {token('narrow')}")], URL, 403, "insufficient_scope"),
    ("refused as malformed", [auth(f"Bearer {token('odd')}")], URL, 400, "invalid_request"),
    ("the issuer is away", [auth(f"Bearer {token('away')}")], URL, 503, ""),
    ("of the scheme DPoP, unknown", [auth("DPoP unknown-token")], URL, 401, "invalid_token"),
    ("of the scheme DPoP, alone", [auth("DPoP")], URL, 400, "invalid_request"),
]


@pytest.mark.parametrize(("name", "headers", "url", "status", "error"), REFUSED, ids=[row[0] for row in REFUSED])
async def test_what_is_refused(
    name: str, headers: Any, url: str, status: int, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    decided: list[Decision] = []
    guard = TokenGuard(issued(), audit=decided.append)
    verdict = await guard(Handshake(scheme="https", method="POST", url=url, headers=headers, remote="192.0.2.1:7"))
    assert isinstance(verdict, Denied)
    assert verdict.status == status
    lines = dict(verdict.headers)
    if status == 503:
        assert lines == {"Retry-After": "7"}
    else:
        [challenge] = parse_challenges(lines["WWW-Authenticate"])
        assert challenge.scheme == "Bearer"
        assert challenge.params.get("error", "") == error
        assert challenge.params["resource_metadata"] == METADATA
        assert ("error_description" in challenge.params) is bool(error)
    [decision] = decided
    assert (decision.outcome, decision.status, decision.path) == ("denied", status, "/mcp")
    assert CANARY not in f"{verdict} {decision} {caplog.text}"


@pytest.mark.parametrize(
    "value",
    [
        GOOD,
        GOOD.replace("Bearer", "bearer"),
        GOOD.replace("Bearer", "BEARER"),
        GOOD.replace("Bearer ", "Bearer    "),
        GOOD.replace("Bearer", "bEaReR"),
    ],
)
async def test_what_is_admitted(value: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    guard = TokenGuard(issued())
    verdict = await guard(Handshake(scheme="https", url=f"{URL}?tokens=1&token=2", headers=[auth(value)]))
    assert isinstance(verdict, Admitted)
    assert verdict.identity is not None
    assert verdict.identity.subject == "ada"
    assert "admitted subject=ada client_id=client" in caplog.text
    assert CANARY not in f"{caplog.text} {verdict}"


@pytest.mark.parametrize(
    ("scopes", "name", "status"),
    [
        ("notes:read", "ada", 200),
        ("notes:read", "eve", 403),
        ("notes:read notes:write", "ada", 403),
        ("notes:read notes:write", "bob", 200),
        (["notes:write"], "ada", 403),
        ("offline_access notes:read", "ada", 403),
    ],
)
async def test_scopes_of_every_call(scopes: Any, name: str, status: int) -> None:
    guard = TokenGuard(issued(), scopes=scopes)
    verdict = await guard(Handshake(scheme="https", url=URL, headers=[auth(f"Bearer {token(name)}")]))
    assert isinstance(verdict, Admitted if status == 200 else Denied)
    if isinstance(verdict, Denied):
        [challenge] = parse_challenges(dict(verdict.headers)["WWW-Authenticate"])
        assert verdict.status == 403
        assert challenge.params["error"] == "insufficient_scope"
        wanted = scopes.split() if isinstance(scopes, str) else scopes
        # "Servers SHOULD NOT include `offline_access`" (2026-07-28, Refresh Tokens)
        assert set(challenge.scopes) == set(wanted) - {"offline_access"}
    no_one = await guard(Handshake(scheme="https", url=URL))
    assert isinstance(no_one, Denied)
    [challenge] = parse_challenges(dict(no_one.headers)["WWW-Authenticate"])
    assert challenge.scopes
    assert "error" not in challenge.params


@pytest.mark.parametrize(
    ("dpop", "schemes"), [("off", ["Bearer"]), ("accepted", ["Bearer", "DPoP"]), ("required", ["DPoP"])]
)
async def test_a_challenge_of_each_scheme_that_is_taken(dpop: str, schemes: list[str]) -> None:
    verifier = issued()
    verifier.dpop = dpop
    verdict = await TokenGuard(verifier)(Handshake(scheme="https", url=URL))
    assert isinstance(verdict, Denied)
    found = [one for name, value in verdict.headers for one in parse_challenges(value) if name == "WWW-Authenticate"]
    assert [one.scheme for one in found] == schemes
    assert all("algs" in one.params for one in found if one.scheme == "DPoP")


@pytest.mark.parametrize(
    ("rules", "schemes"),
    [
        (("off", "off"), ["Bearer"]),
        (("off", "accepted"), ["Bearer", "DPoP"]),
        (("accepted", "off"), ["Bearer", "DPoP"]),
        (("off", "required"), ["Bearer", "DPoP"]),
        (("required", "accepted"), ["Bearer", "DPoP"]),
        (("required", "required"), ["DPoP"]),
    ],
)
async def test_a_challenge_of_each_scheme_that_one_of_several_takes(rules: Sequence[str], schemes: list[str]) -> None:
    verifiers = [issued() for _ in rules]
    for verifier, rule in zip(verifiers, rules, strict=True):
        verifier.dpop = rule
    verdict = await TokenGuard(*verifiers)(Handshake(scheme="https", url=URL))
    assert isinstance(verdict, Denied)
    assert [one.scheme for _, value in verdict.headers for one in parse_challenges(value)] == schemes


async def test_a_nonce_goes_with_its_challenge() -> None:
    verifier = issued()
    verifier.dpop = "accepted"
    handshake = Handshake(scheme="https", url=URL, headers=[auth(f"DPoP {token('nonce')}"), (b"dpop", b"x")])
    verdict = await TokenGuard(verifier)(handshake)
    assert isinstance(verdict, Denied)
    assert (verdict.status, dict(verdict.headers)["DPoP-Nonce"]) == (401, "n1")
    found = {
        one.scheme: one
        for name, value in verdict.headers
        if name == "WWW-Authenticate"
        for one in parse_challenges(value)
    }
    assert found["DPoP"].params["error"] == "use_dpop_nonce"
    assert "error" not in found["Bearer"].params


class KnowsAll(Static):
    """Knows every token at once, also those that no header may have."""

    def known(self, token: bytes) -> Identity | None:
        return Identity(subject="eve")

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        return Identity(subject="eve")


@pytest.mark.parametrize("token", ["pass!word#1", "two tokens", "ä-token-of-eve", "x" * 20_000, "a=b", ""])
async def test_what_a_header_may_not_have_is_refused_however_it_is_looked_at(token: str) -> None:
    guard, value = TokenGuard(KnowsAll({"token-of-ada": "ada"})), f"Bearer {token}".encode("latin-1")
    assert guard.at_once(value) is None
    denied = await guard(Handshake(scheme="https", url=URL, headers=[(b"authorization", value)]))
    assert isinstance(denied, Denied)


async def test_what_is_known_at_once_is_what_asking_says() -> None:
    verifier = Static({token("ada"): who("ada", "notes:read")})
    guard = TokenGuard(verifier)
    for value in (GOOD, GOOD.replace("Bearer", "bearer")):
        found = guard.at_once(value.encode())
        assert found is not None
        assert found.verdict == await guard(Handshake(scheme="https", url=URL, headers=[auth(value)]))
    no_one = guard.at_once(b"")
    assert no_one is not None
    assert no_one.verdict == await guard(Handshake(scheme="https", url=URL))
    for value in ("Bearer", "Basic eA==", f"DPoP {token('ada')}", "Bearer unknown-token", f"{GOOD}, {GOOD}"):
        assert guard.at_once(value.encode()) is None
    told = TokenGuard(verifier, audit=lambda _: None)  # each decision is told
    assert told.at_once(GOOD.encode()) is told.at_once(b"") is None
    assert TokenGuard(verifier, scopes="notes:write").at_once(GOOD.encode()) is None


class OfBoth(Static):
    """Looks at certificates too."""

    certificates = True


async def test_with_certificates_no_token_is_not_the_whole_answer() -> None:
    verifier = OfBoth({token("ada"): who("ada")})
    assert TokenGuard(verifier).at_once(b"") is None
    assert TokenGuard(verifier).at_once(GOOD.encode()) is None


class Stricter(Static):
    """Its `verify` is its own, and what it inherits knows nothing of that."""

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        return None


class Wrapper:
    """The same, around another verifier."""

    def __init__(self, inner: Static) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        return None


class Remembering(Stricter):
    """It says what it knows, and not for how long."""

    def known(self, token: bytes) -> Identity | None:
        return who("ada")


def patched(verifier: Static) -> Static:
    """Changed by a test, or by an application in a hurry."""
    verifier.verify = Stricter({}).verify  # type: ignore[method-assign]
    return verifier


TOKENS = {token("ada"): who("ada")}


@pytest.mark.parametrize(
    "verifier",
    [Stricter(TOKENS), Wrapper(Static(TOKENS)), patched(Static(TOKENS))],
    ids=["a subclass", "a wrapper", "an instance"],
)
async def test_a_verify_of_its_own_is_asked_each_time(verifier: Verifier) -> None:
    guard = TokenGuard(verifier)
    assert guard.at_once(GOOD.encode()) is None
    assert isinstance(await guard(Handshake(scheme="https", url=URL, headers=[auth(GOOD)])), Denied)


async def test_what_is_known_for_no_certain_time_is_asked_each_time() -> None:
    found = TokenGuard(Remembering(TOKENS)).at_once(GOOD.encode())
    assert found is not None
    assert found.holds is None


async def test_a_decision_at_hand_holds_while_no_one_is_told_of_it(caplog: pytest.LogCaptureFixture) -> None:
    guard = TokenGuard(Static({"token-of-ci": "ci"}))
    admitted, denied = guard.at_once(b"Bearer token-of-ci"), guard.at_once(b"")
    assert admitted is not None
    assert denied is not None
    assert admitted.holds is not None
    assert denied.holds is not None
    told = []
    for level in (logging.WARNING, logging.INFO, logging.DEBUG, logging.WARNING):
        caplog.set_level(level, "dragoman.audit")
        told.append((admitted.holds(), denied.holds()))
        assert told[-1] == (guard.at_once(b"Bearer token-of-ci") is not None, guard.at_once(b"") is not None)
    assert told == [(True, True), (True, False), (False, False), (True, True)]


async def test_several_verifiers_are_asked_in_turn() -> None:
    guard = TokenGuard(Issued({token("ada"): who("ada")}), Issued({token("bob"): who("bob")}))
    for name in ("ada", "bob"):
        verdict = await guard(Handshake(scheme="https", url=URL, headers=[auth(f"Bearer {token(name)}")]))
        assert isinstance(verdict, Admitted)
    verdict = await guard(Handshake(scheme="https", url=URL, headers=[auth("Bearer unknown-token")]))
    assert isinstance(verdict, Denied)
    assert verdict.status == 401


CERTIFICATE = {"subjectAltName": (("URI", "spiffe://example/ada"),), "notAfter": "Jan 15 08:00:00 2100 GMT"}


@pytest.mark.parametrize(
    ("certificate", "shown", "subject", "error"),
    [
        (CERTIFICATE, [], "spiffe://example/ada", ""),
        (CERTIFICATE, [auth(GOOD)], "ada", ""),
        (CERTIFICATE, [auth("Bearer unknown-token")], "", "invalid_token"),
        (CERTIFICATE | {"subjectAltName": ()}, [], "", "invalid_token"),
        (None, [], "", ""),
        (None, [auth(GOOD)], "ada", ""),
    ],
)
@pytest.mark.parametrize("first", [False, True])
async def test_certificates_beside_tokens(certificate: Any, shown: Any, subject: str, error: str, first: bool) -> None:
    """In either order. A verifier of tokens is not asked about no token."""

    class OfTokens(Issued):
        async def verify(self, token: str, handshake: Handshake) -> Identity | None:
            assert token
            return await super().verify(token, handshake)

    verifiers = [OfTokens({token("ada"): who("ada")}), MutualTls({"spiffe://example/ada": ["notes:read"]})]
    guard = TokenGuard(*(reversed(verifiers) if first else verifiers))
    assert guard.lacks("tls") == ""
    verdict = await guard(Handshake(scheme="https", url=URL, headers=shown, certificate=certificate))
    if subject:
        assert isinstance(verdict, Admitted)
        assert verdict.identity is not None
        assert verdict.identity.subject == subject
    else:
        assert isinstance(verdict, Denied)
        [challenge] = parse_challenges(dict(verdict.headers)["WWW-Authenticate"])
        assert (verdict.status, challenge.params.get("error", "")) == (401, error)


async def test_a_description_has_the_characters_that_it_may_have() -> None:
    """RFC 6750, section 3: %x20-21 / %x23-5B / %x5D-7E."""

    class Wordy(Issued):
        async def verify(self, token: str, handshake: Handshake) -> Identity | None:
            raise TokenRefused('a b!#[]~ "\\\x1f\x7f\r\n\u00e9')

    verdict = await TokenGuard(Wordy({token("ada"): who("ada")}))(
        Handshake(scheme="https", url=URL, headers=[auth(GOOD)])
    )
    assert isinstance(verdict, Denied)
    [challenge] = parse_challenges(dict(verdict.headers)["WWW-Authenticate"])
    assert challenge.params["error_description"] == "a b!#[]~ ???????"


async def test_a_fault_of_a_verifier_is_not_an_admission() -> None:
    with pytest.raises(RuntimeError):  # `net.guarding` makes 500 of it, with a reference
        await TokenGuard(issued())(Handshake(scheme="https", url=URL, headers=[auth(f"Bearer {token('broken')}")]))


@pytest.mark.parametrize(
    ("credentials", "admitted"),
    [(None, False), (UnixCredentials(1, 4_000_000, 1), False), (UnixCredentials(1, 4_000_001, 1), True)],
)
async def test_users_of_this_machine(credentials: UnixCredentials | None, admitted: bool) -> None:
    guard = TokenGuard(issued(), users={4_000_001: {"notes:read"}})
    # a token has no place there, and is not looked at
    verdict = await guard(Handshake(scheme="unix", url="unix:x", headers=[auth(GOOD)], credentials=credentials))
    assert isinstance(verdict, Admitted if admitted else Denied)


def test_the_challenge_of_a_forbidden_call() -> None:
    from dragoman.channel import Caller

    guard = TokenGuard(issued())
    guard.demands(lambda: frozenset({"notes:read", "notes:write"}))
    caller = Caller(scheme="https", identity=who("ada", "notes:read", "openid"))
    refusal = Refusal("forbidden", "Forbidden: no", {"error": "insufficient_scope", "scopes": ["notes:write"]})
    [now] = parse_challenges(guard.challenged(refusal, caller).challenge)
    assert now.scopes == ("notes:write",)
    [older] = parse_challenges(guard.challenged(refusal, caller, granted=True).challenge)
    assert older.scopes == ("notes:read", "notes:write")  # what is granted and means nothing here is left out
    plain = Refusal("forbidden", "Forbidden: no", {"error": "access_denied"})
    assert guard.challenged(plain, caller).challenge == ""


def test_the_documents() -> None:
    guard = TokenGuard(issued(), scopes="notes:read", name="Notes", documentation="https://mcp.example/docs")
    documents = guard.documents()
    assert list(documents) == [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
    ]
    [made] = {one.make for one in documents.values()}
    assert made is not None
    assert msgspec.json.decode(made()) == {
        "resource": "https://mcp.example/mcp",
        "authorization_servers": [ISSUER],
        "scopes_supported": ["notes:read"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Notes",
        "resource_documentation": "https://mcp.example/docs",
    }
    [made] = {one.make for one in TokenGuard(issued()).documents().values()}
    assert made is not None
    assert msgspec.json.decode(made()) == {
        "resource": "https://mcp.example/mcp",
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
    }


@pytest.mark.parametrize("wrong", ["oauth", "https://as.example", 7, object(), lambda token: None, {}])
def test_what_is_no_verifier(wrong: Any) -> None:
    with pytest.raises(LocalError, match="verifier"):
        protection_of(wrong)


def test_a_guard_needs_a_verifier() -> None:
    with pytest.raises(LocalError, match="has a verifier"):
        protection_of([])


@pytest.mark.parametrize("scopes", ['notes:"read"', ["notes read"], [""], [1], "nötes"])
def test_a_scope_that_no_token_could_have(scopes: Any) -> None:
    with pytest.raises(LocalError, match=r"TokenGuard: .* is not a scope"):
        TokenGuard(issued(), scopes=scopes)
    with pytest.raises(LocalError, match=r"TokenGuard: users, 7: .* is not a scope"):
        TokenGuard(issued(), users={7: scopes})


@pytest.mark.parametrize(
    ("scheme", "lacks"),
    [
        *((scheme, False) for scheme in ("http", "https", "ws", "wss", "stdio", "memory", "unix")),
        *((scheme, False) for scheme in ("amqp", "amqps", "mqtt", "mqtts", "nats", "natss", "redis", "memory+broker")),
        *((scheme, True) for scheme in ("tcp", "tls", "udp")),
    ],
)
def test_the_wires_on_which_callers_can_say_who_they_are(scheme: str, lacks: bool) -> None:
    assert bool(TokenGuard(issued()).lacks(scheme)) is lacks


async def test_proofs_that_cannot_be_looked_up_are_503() -> None:
    key, bus = new_key("ES256"), MemoryBus("guard-proofs")
    assert bus.store is not None
    text = signed(cnf={"jkt": thumbprint(key.public_jwk())})
    verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=FakeIssuer(), now=Clock(), dpop="accepted")
    guard = TokenGuard(issued(), verifier)

    def request() -> Handshake:
        made = proof(key, "POST", RESOURCE, token=text, now=Clock())
        return shown(text, scheme="DPoP", proofs=(made,))

    end = guard.share(bus.store)
    assert isinstance(await guard(request()), Admitted)
    bus.disconnect()
    denied = await guard(request())
    assert isinstance(denied, Denied)
    assert (denied.status, dict(denied.headers)) == (503, {"Retry-After": "1"})
    end()  # the serving that shares has ended: the process is alone again
    assert isinstance(await guard(request()), Admitted)
    await bus.close()
