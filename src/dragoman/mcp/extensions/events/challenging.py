"""Asks a receiver of webhooks for proof that it wants events: it returns a challenge, which is used once."""

from __future__ import annotations

import secrets
from hmac import compare_digest

import msgspec
from msgspec.structs import replace

from . import model
from .sender import Outcome, ReceiverConnection
from .signing import sign_headers


async def ask_challenge(connection: ReceiverConnection, secret: str, subscription: str, now: float) -> Outcome:
    """Post a challenge that is signed by the secret of a subscription, and return what came of it: "challenge_failed"
    if the receiver has accepted the post and not returned the challenge. `now`: Unix seconds."""
    challenge = secrets.token_urlsafe(32)
    body = msgspec.json.encode(model.Verification(challenge))
    headers = sign_headers(secret, f"msg_verification_{secrets.token_hex(12)}", int(now), body)
    outcome = await connection.post(body, headers | {model.SUBSCRIPTION_HEADER: subscription}, wants_body=True)
    if outcome.reason is None and not _repeats(outcome.body, challenge):
        return replace(outcome, reason="challenge_failed")
    return outcome


def _repeats(body: bytes, challenge: str) -> bool:
    """Return whether the answer of a receiver repeats the challenge."""
    try:
        answer = msgspec.json.decode(body, type=model.VerificationAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return compare_digest(answer.challenge.encode("utf-8", "surrogatepass"), challenge.encode())
