"""How long a proxy's grant lives, by what the upstream says of its tokens: each kind of upstream times each turn that a
login takes. A grant here never outlives what stands behind it, and nothing ends because the upstream is away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

from dragoman.auth import AuthError, IssuerAway
from dragoman.auth.proxy import GITHUB, GOOGLE, Upstream
from dragoman.auth.proxy.upstream import upstream_of
from dragoman.channel import Identity

from ..engine.asking import Page, answer, body, claims, header
from .test_proxy import UPSTREAM, Behind

HOUR, DAY = 3_600.0, 86_400.0
TOKENS, USER = UPSTREAM + "/token", UPSTREAM + "/user"

KINDS: dict[str, dict[str, Any]] = {
    "expiry, refresh token": {"expires_in": HOUR, "refresh_token": "r1"},
    "expiry": {"expires_in": HOUR},  # Google by default
    "refresh token": {"refresh_token": "r1"},
    "user endpoint": {},  # GitHub
    "nothing": {},
}


class Login:
    """A login behind one kind of upstream, whose token endpoint answers what the test says."""

    def __init__(self, kind: str) -> None:
        asks = kind != "nothing"
        self.said = KINDS[kind]
        self.behind = Behind(
            upstream=Upstream(
                issuer=UPSTREAM,
                authorization_endpoint=UPSTREAM + "/authorize",
                token_endpoint=TOKENS,
                userinfo_endpoint=USER if asks else "",
                jwks_uri="" if asks else UPSTREAM + "/jwks.json",
                scopes=("user",) if asks else ("openid",),
            )
        )
        self.clock, self.pages = self.behind.clock, self.behind.wire.pages
        self.pages[USER] = Page(body=b'{"sub":"alice"}')
        self.given: dict[str, Any] = {}
        self.who = Identity(subject="")

    def tokens(self, name: str, **more: Any) -> None:
        """What the upstream's token endpoint answers from now on."""
        self.pages[TOKENS] = Page(body=msgspec.json.encode({"access_token": name, **self.said, **more}))

    async def begin(self) -> None:
        asked = parse_qs(urlsplit(header(await self.behind.sent(), "Location")).query)
        more: dict[str, Any] = {}
        if "nonce" in asked:
            mint, nonce = self.behind.upstream.engine.mint, asked["nonce"][0]
            more["id_token"] = mint.identity(subject="alice", client="px", nonce=nonce, auth_time=0, life=60)
        self.tokens("first", **more)
        made = await self.behind.ask("GET", "/callback", urlencode({"code": "c", "state": asked["state"][0]}))
        self.given = body(await self.behind.redeem(answer(made)["code"]))
        self.who = await self.behind.verified(self.given["access_token"])
        self.tokens("second")

    async def refresh(self) -> str:
        """What a refresh of the client's gets: "good" or the error."""
        made = await self.behind.refresh(self.given["refresh_token"])
        if made.status == 200:
            self.given = body(made)
            self.who = await self.behind.verified(self.given["access_token"])
            return "good"
        return str(body(made)["error"])

    async def upstream(self) -> str:
        """The upstream's token, as a handler gets it, or how it is refused."""
        try:
            return await self.behind.proxy.upstream_token(self.who)
        except IssuerAway:
            return "away"
        except AuthError:
            return "ended"


def revoked(login: Login) -> None:
    """The user took the upstream's tokens back."""
    login.pages[TOKENS] = Page(400, body=b'{"error":"invalid_grant"}')
    login.pages[USER] = Page(401)


def revoked_as_github_says(login: Login) -> None:
    login.pages[TOKENS] = Page(200, body=b'{"error":"bad_refresh_token"}')
    login.pages[USER] = Page(401, body=b'{"message":"Bad credentials"}')


def away(login: Login) -> None:
    login.behind.wire.away = True


def limited(login: Login) -> None:
    login.pages[TOKENS] = login.pages[USER] = Page(429, body=b'{"error":"invalid_grant"}')


def nothing(login: Login) -> None:
    """The upstream goes on."""


Turn = Callable[[Login], None]
ENDED, AWAY = ("invalid_grant", "ended"), ("temporarily_unavailable", "away")
FIRST, SECOND = ("good", "first"), ("good", "second")

# Seconds since the login, what happened at the upstream; then for each kind what a refresh of the client's gets and,
# after it, `upstream_token`.
TABLE: list[tuple[float, Turn, dict[str, tuple[str, str]]]] = [
    (
        600,
        nothing,
        {
            "expiry, refresh token": FIRST,
            "expiry": FIRST,
            "refresh token": SECOND,  # nobody says when the first ends, so that it still lives is asked by renewing it
            "user endpoint": FIRST,
            "nothing": FIRST,
        },
    ),
    (
        HOUR - 30,
        nothing,
        {
            "expiry, refresh token": SECOND,
            "expiry": FIRST,
            "refresh token": SECOND,
            "user endpoint": FIRST,
            "nothing": FIRST,
        },
    ),
    (
        HOUR,
        nothing,
        {
            "expiry, refresh token": SECOND,
            "expiry": ENDED,
            "refresh token": SECOND,
            "user endpoint": FIRST,
            "nothing": FIRST,
        },
    ),
    *(
        (
            600.0,
            turn,
            {  # what has an end is used until then
                "expiry, refresh token": FIRST,
                "expiry": FIRST,
                "refresh token": ENDED,
                "user endpoint": ENDED,
                "nothing": FIRST,
            },
        )
        for turn in (revoked, revoked_as_github_says)
    ),
    *(
        (
            2 * HOUR,
            turn,
            {
                "expiry, refresh token": ENDED,
                "expiry": ENDED,
                "refresh token": ENDED,
                "user endpoint": ENDED,
                "nothing": FIRST,
            },
        )
        for turn in (revoked, revoked_as_github_says)
    ),
    *(
        (
            2 * HOUR,
            turn,
            {
                "expiry, refresh token": AWAY,
                "expiry": ENDED,
                # a token of which nobody said that it ends is handed out as it is
                "refresh token": ("temporarily_unavailable", "first"),
                "user endpoint": ("temporarily_unavailable", "first"),
                "nothing": FIRST,
            },
        )
        for turn in (away, limited)
    ),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("seconds", "turn", "row"), TABLE, ids=lambda value: getattr(value, "__name__", None))
async def test_the_table_of_lives(kind: str, seconds: float, turn: Turn, row: dict[str, tuple[str, str]]) -> None:
    login = Login(kind)
    await login.begin()
    login.clock.advance(seconds)
    turn(login)
    assert (await login.refresh(), await login.upstream()) == row[kind]
    if row[kind] == ENDED:  # and nothing of it is kept
        family = str(login.who.claims["jti"]).partition(".")[0]
        assert await login.behind.engine.records.get("upstream", family, dict) is None
        assert await login.behind.engine.families.get(family) is None


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_away_comes_back(kind: str) -> None:
    login = Login(kind)
    await login.begin()
    login.clock.advance(HOUR - 30)
    away(login)
    await login.refresh()
    login.behind.wire.away = False
    assert await login.refresh() == "good"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_month_of_refreshes(kind: str) -> None:
    """Only what the upstream renews or confirms lives longer than a grant that nobody uses."""
    login = Login(kind)
    await login.begin()
    lived = 0
    for day in range(1, 31):
        login.clock.advance(DAY)
        if await login.refresh() != "good":
            break
        lived = day
    assert lived == {"expiry": 0, "nothing": 13}.get(kind, 30)
    assert (await login.upstream() == "ended") is (lived < 30)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_token_of_ours_ends_with_the_grant(kind: str) -> None:
    """So a client logs in again when that helps, and not some minutes later."""
    login = Login(kind)
    await login.begin()
    login.clock.advance(HOUR - 100)
    assert await login.refresh() == "good"
    left = claims(login.given["access_token"])["exp"] - login.clock()
    assert left == login.given["expires_in"] == (100 if kind == "expiry" else 300)


@pytest.mark.parametrize("kind", KINDS)
async def test_revoked_here_is_ended_at_once(kind: str) -> None:
    login = Login(kind)
    await login.begin()
    await login.behind.post("/revoke", {"token": login.given["refresh_token"], "client_id": "app"})
    assert (await login.refresh(), await login.upstream()) == ENDED


async def test_a_login_that_is_over_before_its_code_is_redeemed() -> None:
    login = Login("expiry")
    login.said = {"expires_in": 30}
    sent = await login.behind.sent()
    state = parse_qs(urlsplit(header(sent, "Location")).query)["state"][0]
    login.tokens("first")
    code = answer(await login.behind.ask("GET", "/callback", urlencode({"code": "c", "state": state})))["code"]
    login.clock.advance(30)
    assert body(await login.behind.redeem(code))["error"] == "invalid_grant"


def test_google_is_asked_for_a_refresh_token() -> None:
    assert upstream_of("https://accounts.google.com") is GOOGLE
    assert upstream_of("https://github.com") is GITHUB
