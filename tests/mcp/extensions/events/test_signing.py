"""The signatures of Standard Webhooks: what is signed, what is refused and why, and the reference library both ways."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp.extensions.events import signing
from dragoman.mcp.extensions.events.signing import InvalidSignature, new_secret, read_secret, sign, sign_headers, verify

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()
NOW = 1_790_000_000
BODY = b'{"eventId":"evt_1","data":{"caf\xc3\xa9":1}}'
HEADERS = sign_headers(SECRET, "evt_1", NOW, BODY)


def test_what_is_signed() -> None:
    """The vector that the specification of Standard Webhooks gives."""
    given = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    assert (
        sign(given, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_several_secrets_sign_apart() -> None:
    both = sign([SECRET, OTHER], "evt_1", NOW, BODY)
    assert both == f"{sign(SECRET, 'evt_1', NOW, BODY)} {sign(OTHER, 'evt_1', NOW, BODY)}"
    for one in (SECRET, OTHER):
        assert verify(one, {**HEADERS, "webhook-signature": both}, BODY, NOW).id == "evt_1"


Case = tuple[str, Callable[[], object]]
Pairs = list[tuple[str, str]]
PAIRS: Pairs = list(HEADERS.items())


def _with(**changes: str) -> dict[str, str]:
    return {**HEADERS, **{name.replace("_", "-"): value for name, value in changes.items()}}


ACCEPTED: dict[str, Callable[[], signing.SignedHeaders]] = {
    "as signed": lambda: verify(SECRET, HEADERS, BODY, NOW),
    "a fraction of a second": lambda: verify(SECRET, HEADERS, BODY, NOW + 0.5),
    "as old as allowed": lambda: verify(SECRET, HEADERS, BODY, NOW + 300),
    "as new as allowed": lambda: verify(SECRET, HEADERS, BODY, NOW - 300),
    "the second secret": lambda: verify([OTHER, SECRET], HEADERS, BODY, NOW),
    "names in capitals": lambda: verify(SECRET, {k.upper(): v for k, v in PAIRS}, BODY, NOW),
    "another order": lambda: verify(SECRET, PAIRS[::-1], BODY, NOW),
    "a header of another twice": lambda: verify(SECRET, [*PAIRS, ("via", "a"), ("via", "b")], BODY, NOW),
    "a version that is not known": lambda: verify(
        SECRET, _with(webhook_signature="v1a,AAAA " + HEADERS["webhook-signature"]), BODY, NOW
    ),
    "another tolerance": lambda: verify(SECRET, HEADERS, BODY, NOW + 3600, tolerance=3600),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    headers = ACCEPTED[name]()
    assert (headers.id, headers.timestamp) == ("evt_1", NOW)


_SIGNATURE = HEADERS["webhook-signature"]
REFUSED: dict[str, tuple[Callable[[], object], str, str]] = {
    "no id": (lambda: verify(SECRET, _without("webhook-id"), BODY, NOW), "missing", "webhook-id"),
    "no timestamp": (lambda: verify(SECRET, _without("webhook-timestamp"), BODY, NOW), "missing", "webhook-timestamp"),
    "no signature": (lambda: verify(SECRET, _without("webhook-signature"), BODY, NOW), "missing", "webhook-signature"),
    "an empty id": (lambda: verify(SECRET, _with(webhook_id=" "), BODY, NOW), "missing", "webhook-id"),
    "an id twice": (lambda: verify(SECRET, [*PAIRS, ("Webhook-Id", "evt_1")], BODY, NOW), "repeated", "2 times"),
    "a signature twice": (
        lambda: verify(SECRET, [("webhook-signature", "v1,AA"), *PAIRS], BODY, NOW),
        "repeated",
        "webhook-signature",
    ),
    "a space in the id": (lambda: verify(SECRET, _with(webhook_id="a b"), BODY, NOW), "malformed", "webhook-id"),
    "a long id": (lambda: verify(SECRET, _with(webhook_id="a" * 257), BODY, NOW), "malformed", "256"),
    "a timestamp in words": (
        lambda: verify(SECRET, _with(webhook_timestamp="now"), BODY, NOW),
        "malformed",
        "'now'",
    ),
    "a fraction as timestamp": (
        lambda: verify(SECRET, _with(webhook_timestamp=f"{NOW}.0"), BODY, NOW),
        "malformed",
        "seconds",
    ),
    "digits that are not ASCII": (
        lambda: verify(SECRET, _with(webhook_timestamp="١٧٩٠٠٠٠٠٠٠"), BODY, NOW),
        "malformed",
        "seconds",
    ),
    "many signatures": (
        lambda: verify(SECRET, _with(webhook_signature="v1,AA " * 17), BODY, NOW),
        "malformed",
        "16",
    ),
    "too old": (lambda: verify(SECRET, HEADERS, BODY, NOW + 301), "too old", "301 s ago; 300"),
    "too new": (lambda: verify(SECRET, HEADERS, BODY, NOW - 301), "too new", "301 s ahead; 300"),
    "another secret": (lambda: verify(OTHER, HEADERS, BODY, NOW), "wrong", "secret"),
    "another id": (lambda: verify(SECRET, _with(webhook_id="evt_2"), BODY, NOW), "wrong", "secret"),
    "another timestamp": (lambda: verify(SECRET, _with(webhook_timestamp=f"{NOW + 1}"), BODY, NOW), "wrong", "secret"),
    "another body": (lambda: verify(SECRET, HEADERS, BODY + b" ", NOW), "wrong", "secret"),
    "the version alone": (lambda: verify(SECRET, _with(webhook_signature="v1"), BODY, NOW), "malformed", "a comma"),
    "two headers that were joined": (
        lambda: verify(SECRET, _with(webhook_signature=f"v1,AAAA, {_SIGNATURE}"), BODY, NOW),
        "malformed",
        "a comma",
    ),
    "a zero before the timestamp": (
        lambda: verify(SECRET, _with(webhook_timestamp=f"0{NOW}"), BODY, NOW),
        "malformed",
        "seconds",
    ),
    "another version": (
        lambda: verify(SECRET, _with(webhook_signature=_SIGNATURE.replace("v1,", "v2,")), BODY, NOW),
        "wrong",
        "secret",
    ),
    "without a version": (lambda: verify(SECRET, _with(webhook_signature=_SIGNATURE[3:]), BODY, NOW), "malformed", ""),
    "a signature beyond ASCII": (lambda: verify(SECRET, _with(webhook_signature="v1,é"), BODY, NOW), "malformed", ""),
    "bytes that are not UTF-8": (
        lambda: verify(SECRET, _with(webhook_signature="v1,\udcff"), BODY, NOW),
        "malformed",
        "",
    ),
}


def _without(name: str) -> dict[str, str]:
    return {one: value for one, value in HEADERS.items() if one != name}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    attempt, reason, text = REFUSED[name]
    with pytest.raises(InvalidSignature) as caught:
        attempt()
    assert caught.value.reason == reason
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("", "begins with 'whsec_'"),
        (SECRET[6:], "begins with 'whsec_'"),
        ("WHSEC_" + SECRET[6:], "begins with 'whsec_'"),
        ("whsec_", "24 to 64 bytes, and this one 0"),
        ("whsec_" + base64.b64encode(b"a" * 23).decode(), "this one 23"),
        ("whsec_" + base64.b64encode(b"a" * 65).decode(), "this one 65"),
        ("whsec_" + "é" * 40, "base64"),
        ("whsec_" + "-_" * 20, "base64"),
        ("whsec_" + "A" * 33, "base64"),
        (SECRET + "\n", "base64"),
        ("whsec_ " + SECRET[6:], "base64"),
    ],
)
def test_invalid_secrets_are_refused_in_words_that_do_not_tell_them(secret: str, text: str) -> None:
    with pytest.raises(LocalError) as caught:
        read_secret(secret)
    assert text in str(caught.value)
    assert not secret[6:] or secret[6:] not in str(caught.value)


@pytest.mark.parametrize("size", [24, 25, 26, 32, 64])
def test_secrets_of_every_length_with_and_without_padding(size: int) -> None:
    encoded = base64.b64encode(b"k" * size).decode()
    assert read_secret("whsec_" + encoded) == read_secret("whsec_" + encoded.rstrip("=")) == b"k" * size


def test_a_new_secret_is_new_and_valid() -> None:
    secrets = {new_secret() for _ in range(50)}
    assert len(secrets) == 50
    assert {len(read_secret(one)) for one in secrets} == {32}


@pytest.mark.parametrize("id", ["", "a b", "a\r\nx: y", "é", "a" * 257])
def test_an_id_that_is_no_header_is_not_signed(id: str) -> None:
    with pytest.raises(LocalError, match="webhook-id has 1 to 256"):
        sign(SECRET, id, NOW, BODY)


def test_nothing_is_signed_or_verified_without_a_secret() -> None:
    with pytest.raises(LocalError, match="at least one"):
        sign([], "evt_1", NOW, BODY)
    with pytest.raises(LocalError, match="at least one"):
        verify([], HEADERS, BODY, NOW)
    with pytest.raises(LocalError, match="since 1970"):
        sign(SECRET, "evt_1", -1, BODY)


_ids = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=64)
_keys = st.binary(min_size=24, max_size=64).map(lambda key: "whsec_" + base64.b64encode(key).decode())


@given(_ids, st.integers(0, 10**11), st.binary(max_size=200), st.lists(_keys, min_size=1, max_size=3), st.data())
def test_what_is_signed_verifies_and_nothing_else(
    id: str, timestamp: int, body: bytes, secrets: list[str], data: st.DataObject
) -> None:
    headers = sign_headers(secrets, id, timestamp, body)
    one = data.draw(st.sampled_from(secrets))
    signed = verify(one, headers, body, timestamp)
    assert (signed.id, signed.timestamp, len(signed.signatures)) == (id, timestamp, len(secrets))
    other = data.draw(_keys)
    changed = data.draw(st.binary(max_size=200))
    if other not in secrets:
        with pytest.raises(InvalidSignature):
            verify(other, headers, body, timestamp)
    if changed != body:
        with pytest.raises(InvalidSignature):
            verify(secrets, headers, changed, timestamp)


@given(
    st.lists(
        st.tuples(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "x"]), st.text()), max_size=6
    ),
    st.binary(max_size=20),
)
def test_whatever_comes_is_refused_with_a_reason(pairs: Pairs, body: bytes) -> None:
    with pytest.raises(InvalidSignature) as caught:
        verify(SECRET, pairs, body, NOW)
    assert caught.value.reason in {"missing", "repeated", "malformed", "too old", "too new", "wrong"}


@given(_ids, st.text(max_size=100), _keys)
def test_the_reference_library_verifies_ours_and_we_verify_its(id: str, text: str, secret: str) -> None:
    now = datetime.now(UTC)
    seconds = int(now.timestamp())
    body = text.encode("utf-8", "replace")
    peer = Webhook(secret)
    ours = sign_headers(secret, id, seconds, body)
    theirs = peer.sign(msg_id=id, timestamp=now, data=body.decode())
    assert theirs == ours["webhook-signature"]
    peer.verify(body, ours, json_parse=False)
    assert verify(secret, {**ours, "webhook-signature": theirs}, body, seconds).id == id
    with pytest.raises(WebhookVerificationError):
        peer.verify(body + b"x", ours, json_parse=False)
