"""Which token goes with a request, and what a 401 or 403 leads to: every row of the refresh, one window, bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec import structs

from dragoman.auth.client.authorizer import MOST_STEP_UPS, Authorizer, Obtain
from dragoman.auth.client.errors import AuthorizationFailed, LoginNeeded
from dragoman.auth.client.login import TokenRequest
from dragoman.auth.client.requests import outcome_of
from dragoman.auth.client.store import EntryKey, MemoryStore, TokenStoreError
from dragoman.auth.client.tokens import Grant, Registration, Tokens
from dragoman.auth.client.world import World, client_key, replace_entry
from dragoman.auth.dpop import ProofChecker
from dragoman.auth.fetch import Fetched, Fetcher, FetchFailed
from dragoman.auth.jose import new_key, thumbprint
from dragoman.auth.metadata import ServerMetadata

from .scripted import ISSUER, RESOURCE

URL = RESOURCE
NEW = {"access_token": "new", "refresh_token": "r2", "expires_in": 3600}


class Scripted(Fetcher):
    """A token endpoint that answers in turn, and counts."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers = list(answers)
        self.forms: list[Mapping[str, str]] = []
        self.at_once = 0
        self.most_at_once = 0

    async def post_form(self, url: str, form: Mapping[str, str], **options: Any) -> Fetched:
        self.forms.append(form)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        for _ in range(3):
            await asyncio.sleep(0)
        self.at_once -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, content = answer[0], answer[1]
        headers: dict[str, str] = answer[2] if len(answer) > 2 else {}
        body = content if isinstance(content, bytes) else msgspec.json.encode(content)
        return Fetched(status, headers, body)


def granted(token: str, refresh: str | None = "r1", **fields: Any) -> Grant:
    """A grant with these tokens."""
    return Grant(
        url=URL,
        server=ServerMetadata(issuer=ISSUER, token_endpoint=f"{ISSUER}/token"),
        resource=RESOURCE,
        client=Registration(client_id="c", how="registered"),
        requested=("a",),
        tokens=structs.replace(Tokens(access_token=token, refresh_token=refresh), **fields),
    )


class Logins:
    """Logins that give these tokens in turn."""

    def __init__(self, *tokens: str | Exception, **fields: Any) -> None:
        self.tokens = list(tokens)
        self.asked: list[TokenRequest] = []
        self.fields = fields

    async def __call__(self, world: World, asked: TokenRequest) -> Grant:
        self.asked.append(asked)
        token = self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]
        if isinstance(token, Exception):
            raise token
        return granted(token, **self.fields)


def made(
    fetcher: Fetcher, logins: Obtain, store: MemoryStore | None = None, clock: Callable[[], float] = lambda: 1_000.0
) -> Authorizer:
    store = MemoryStore() if store is None else store
    return Authorizer(URL, logins, World(URL, fetcher, store, None), store, clock=clock)


async def request(authorizer: Authorizer, good: set[str], operation: str = "tools/call x") -> list[str | None]:
    """One request to a server that takes the tokens in `good`; the tokens that were sent."""
    attempt = authorizer.begin(operation)
    sent: list[str | None] = []
    for _ in range(10):
        token = (await attempt.fields("POST", URL)).get("authorization")
        sent.append(token and token.removeprefix("Bearer "))
        if not await attempt.again(200 if sent[-1] in good else 401, {"www-authenticate": 'Bearer scope="a"'}):
            return sent
    raise AssertionError(f"it goes on for ever: {sent}")


# -- the table


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((200, NEW), "renewed"),
        ((200, {"access_token": "new"}), "renewed"),
        ((200, {}), "lost"),
        ((200, b"<html>"), "lost"),
        ((200, {"error": "bad_refresh_token"}), "ended"),
        ((200, {"error": "incorrect_client_credentials"}), "forgotten"),
        ((200, {"error": "temporarily_unavailable"}), "kept"),
        ((400, {"error": "invalid_grant"}), "ended"),
        ((401, {"error": "invalid_grant"}), "ended"),
        ((400, {"error": "invalid_request"}), "ended"),
        ((400, {"error": "unsupported_grant_type"}), "ended"),
        ((400, {"error": "unauthorized_client"}), "ended"),
        ((400, {"error": "invalid_client"}), "forgotten"),
        ((401, {"error": "invalid_client"}), "forgotten"),
        ((400, {"error": "temporarily_unavailable"}), "kept"),
        ((400, {"error": "server_error"}), "kept"),
        ((400, {"error": "slow_down"}), "kept"),
        ((400, {"error": 5}), "kept"),
        ((400, {}), "kept"),
        ((400, b"<html>bad request"), "kept"),
        ((401, b""), "kept"),
        ((403, {"error": "invalid_grant"}), "kept"),
        ((403, b"<html>blocked by the firewall"), "kept"),
        ((404, b"not found"), "kept"),
        ((408, b""), "kept"),
        ((429, {"error": "invalid_grant"}), "kept"),
        ((429, b""), "kept"),
        ((500, {"error": "invalid_grant"}), "kept"),
        ((502, b""), "kept"),
        ((503, b""), "kept"),
        ((302, b""), "kept"),
    ],
)
async def test_the_table_of_refreshes(answer: tuple[int, Any], kind: str) -> None:
    status, content = answer
    body = content if isinstance(content, bytes) else msgspec.json.encode(content)
    assert outcome_of(Fetched(status, {}, body)).kind == kind
    # and what follows from it, for a request with a token that the server no longer takes
    fetcher, logins, store = Scripted(answer), Logins("first", "login"), MemoryStore()
    authorizer = made(fetcher, logins, store)
    await request(authorizer, {"first"})
    await store.write(client_key(ISSUER), b"{}", None)
    if kind == "renewed":
        assert await request(authorizer, {"new"}) == ["first", "new"]
        assert len(logins.asked) == 1
    elif kind in ("ended", "forgotten"):
        assert await request(authorizer, {"login"}) == ["first", "login"]
        assert logins.asked[1].before is not None
        assert logins.asked[1].before.requested == ("a",)
        assert (await store.read(client_key(ISSUER)) is None) is (kind == "forgotten")
    else:
        with pytest.raises(AuthorizationFailed, match="kept"):
            await request(authorizer, {"login"})
        assert len(logins.asked) == 1
        assert authorizer.tokens is not None
        assert authorizer.tokens.refresh_token == "r1"
        assert len(fetcher.forms) == (2 if kind == "lost" else 1)


async def test_retry_after_is_told() -> None:
    authorizer = made(Scripted((503, b"", {"retry-after": "17"})), Logins("first"))
    await request(authorizer, {"first"})
    with pytest.raises(AuthorizationFailed, match="17 s"):
        await request(authorizer, {"x"})


@pytest.mark.parametrize("sent", [True, False])
async def test_no_network(sent: bool) -> None:
    """What was certainly not sent is not repeated; what may have been is, once."""
    fetcher = Scripted(FetchFailed("no route", sent=sent))
    authorizer = made(fetcher, logins := Logins("first"))
    await request(authorizer, {"first"})
    with pytest.raises(AuthorizationFailed, match="no route"):
        await request(authorizer, {"x"})
    assert len(fetcher.forms) == (2 if sent else 1)
    assert len(logins.asked) == 1


async def test_a_lost_answer_may_have_spent_the_token() -> None:
    fetcher = Scripted(FetchFailed("reset", sent=True), (400, {"error": "invalid_grant"}))
    authorizer = made(fetcher, logins := Logins("first", "login"))
    await request(authorizer, {"first"})
    assert await request(authorizer, {"login"}) == ["first", "login"]
    assert len(logins.asked) == 2


async def test_a_lost_answer_that_came_at_the_second_try() -> None:
    authorizer = made(Scripted(FetchFailed("reset", sent=True), (200, NEW)), Logins("first"))
    await request(authorizer, {"first"})
    assert await request(authorizer, {"new"}) == ["first", "new"]


# -- time


async def test_a_token_is_renewed_before_it_expires() -> None:
    now = [1_000.0]
    logins = Logins("first", expires_at=2_000.0, renew_at=1_970.0)
    authorizer = made(fetcher := Scripted((200, NEW)), logins, clock=lambda: now[0])
    await request(authorizer, {"first"})
    now[0] = 1_980.0
    assert await request(authorizer, {"new"}) == ["new"]
    assert len(fetcher.forms) == 1


async def test_a_renewal_that_fails_does_not_stop_a_token_that_is_good_yet() -> None:
    now = [1_000.0]
    logins = Logins("first", expires_at=2_000.0, renew_at=1_970.0)
    authorizer = made(Scripted((503, b"")), logins, clock=lambda: now[0])
    await request(authorizer, {"first"})
    now[0] = 1_980.0
    assert await request(authorizer, {"first"}) == ["first"]
    now[0] = 2_001.0
    with pytest.raises(AuthorizationFailed, match="kept"):
        await request(authorizer, {"first"})


async def test_an_expired_token_without_a_refresh_token_is_not_sent() -> None:
    now = [1_000.0]
    logins = Logins("first", "login", expires_at=2_000.0, renew_at=1_970.0, refresh=None)
    authorizer = made(Scripted((500, b"")), logins, clock=lambda: now[0])
    await request(authorizer, {"first"})
    now[0], logins.fields = 2_001.0, {"refresh": None}
    assert await request(authorizer, {"login"}) == [None, "login"]


# -- one of many


async def test_many_requests_lead_to_one_login_and_one_refresh() -> None:
    fetcher, logins = Scripted((200, NEW)), Logins("first")
    authorizer = made(fetcher, logins)
    await asyncio.gather(*(request(authorizer, {"first"}) for _ in range(50)))
    assert len(logins.asked) == 1
    await asyncio.gather(*(request(authorizer, {"new"}) for _ in range(50)))
    assert len(fetcher.forms) == 1


async def test_who_waits_for_a_login_that_fails_opens_no_second_window() -> None:
    class Slow(Logins):
        async def __call__(self, world: World, asked: TokenRequest) -> Grant:
            self.asked.append(asked)
            await world.wait(0)
            raise AuthorizationFailed("no one answered")

    authorizer = made(Scripted((500, b"")), logins := Slow("x"))
    failed = await asyncio.gather(*(request(authorizer, {"first"}) for _ in range(10)), return_exceptions=True)
    assert all(isinstance(one, AuthorizationFailed) and "no one answered" in str(one) for one in failed)
    assert len(logins.asked) == 1
    with pytest.raises(AuthorizationFailed):  # a later request tries again
        await request(authorizer, {"first"})
    assert len(logins.asked) == 2


async def test_who_waits_for_a_refresh_that_fails_asks_no_second_time() -> None:
    """An issuer that is away lets each try wait for its time-out: as many of them in a row as there are requests."""
    now = 1_000.0
    fetcher = Scripted(FetchFailed("no route"))
    authorizer = made(fetcher, Logins("old", expires_at=1_100.0, renew_at=1_070.0), clock=lambda: now)
    await request(authorizer, {"old"})
    now = 1_200.0
    found = await asyncio.gather(*(request(authorizer, {"new"}) for _ in range(10)), return_exceptions=True)
    assert {str(one) for one in found if isinstance(one, AuthorizationFailed)} == {str(found[0])}
    assert len(fetcher.forms) == 1
    with pytest.raises(AuthorizationFailed):  # a later request tries again
        await request(authorizer, {"new"})
    assert len(fetcher.forms) == 2


async def test_a_request_that_is_cancelled_leaves_its_login_to_the_next() -> None:
    going, done = asyncio.Event(), asyncio.Event()

    async def person(seconds: float) -> None:
        going.set()
        await done.wait()

    class Slow(Logins):
        async def __call__(self, world: World, asked: TokenRequest) -> Grant:
            await world.wait(1)
            return await super().__call__(world, asked)

    store, logins = MemoryStore(), Slow("first")
    world = World(URL, Scripted((500, b"")), store, None, sleep=person)
    authorizer = Authorizer(URL, logins, world, store)
    first = asyncio.create_task(request(authorizer, {"first"}))
    await going.wait()
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(request(authorizer, {"first"}))
    done.set()
    assert await second == [None, "first"]
    assert len(logins.asked) == 1


@pytest.mark.parametrize("closed", [False, True])
async def test_a_refresh_goes_on_when_the_request_that_led_to_it_is_cancelled(closed: bool) -> None:
    """Its answer holds the only refresh token that is good: the one before it is spent, and would end the login."""
    asked, answered = asyncio.Event(), asyncio.Event()

    class Slow(Scripted):
        async def post_form(self, url: str, form: Mapping[str, str], **options: Any) -> Fetched:
            got = await super().post_form(url, form, **options)
            asked.set()
            await answered.wait()
            return got

    store, fetcher = MemoryStore(), Slow((200, NEW), (400, {"error": "invalid_grant"}))
    authorizer = made(fetcher, Logins("old"), store)
    assert await request(authorizer, {"old"}) == [None, "old"]
    first = asyncio.create_task(request(authorizer, {"new"}))
    await asked.wait()
    first.cancel()
    await asyncio.wait([first])
    asyncio.get_running_loop().call_soon(answered.set)
    if closed:
        await authorizer.close()
        authorizer = made(fetcher, Logins(AuthorizationFailed("a window")), store)
    assert (await request(authorizer, {"new"}))[-1] == "new"
    assert [form["refresh_token"] for form in fetcher.forms] == ["r1"]


async def test_a_login_that_nobody_finished_ends_with_the_client() -> None:
    going = asyncio.Event()

    async def person(seconds: float) -> None:
        going.set()
        await asyncio.Event().wait()

    class Endless(Logins):
        async def __call__(self, world: World, asked: TokenRequest) -> Grant:
            await world.wait(1)
            return await super().__call__(world, asked)

    store = MemoryStore()
    authorizer = Authorizer(URL, Endless("x"), World(URL, Scripted((500, b"")), store, None, sleep=person), store)
    waiting = asyncio.create_task(request(authorizer, {"x"}))
    await going.wait()
    await authorizer.close()
    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def test_a_fresh_token_that_is_refused_opens_no_second_window() -> None:
    authorizer = made(Scripted((200, NEW)), logins := Logins("one", "two", refresh=None))
    assert await request(authorizer, set()) == [None, "one"]
    assert len(logins.asked) == 1


async def test_another_process_was_quicker() -> None:
    store, fetcher = MemoryStore(), Scripted((200, NEW), (400, {"error": "invalid_grant"}))
    one, two = made(fetcher, Logins("first"), store), made(fetcher, logins := Logins("never"), store)
    await request(one, {"first"})
    assert await request(two, {"first"}) == ["first"]  # taken up from the store, expiry and endpoints too
    assert await request(one, {"new"}) == ["first", "new"]
    assert await request(two, {"new"}) == ["first", "new"]
    assert not logins.asked
    assert len(fetcher.forms) == 1


async def test_two_processes_at_once() -> None:
    store, fetcher = MemoryStore(), Scripted((200, NEW), (400, {"error": "invalid_grant"}))
    those = [made(fetcher, Logins("first"), store) for _ in range(8)]
    for one in those:
        await request(one, {"first"})
    sent = await asyncio.gather(*(request(one, {"new"}) for one in those))
    assert sent == [["first", "new"]] * 8
    assert len(fetcher.forms) == 1


async def test_what_another_wrote_during_a_renewal_counts() -> None:
    """As a login does, which waits for no lock."""

    class Meanwhile(Scripted):
        async def post_form(self, url: str, form: Mapping[str, str], **options: Any) -> Fetched:
            theirs = granted("theirs", "r9")
            await replace_entry(store, theirs.key(""), msgspec.json.encode(theirs))
            return await super().post_form(url, form, **options)

    store = MemoryStore()
    authorizer = made(fetcher := Meanwhile((200, NEW)), Logins("first"), store)
    await request(authorizer, {"first"})
    assert await request(authorizer, {"theirs"}) == ["first", "theirs"]
    assert len(fetcher.forms) == 1
    again = made(Scripted((500, b"")), Logins("never"), store)
    assert await request(again, {"theirs"}) == ["theirs"]


async def test_bound_tokens_are_renewed_with_a_proof_of_their_key() -> None:
    class Proofs(Scripted):
        async def post_form(self, url: str, form: Mapping[str, str], **options: Any) -> Fetched:
            proofs.append(options["headers"]["DPoP"])
            return await super().post_form(url, form, **options)

    proofs: list[str] = []
    key = new_key("ES256")
    grant = structs.replace(granted("first", token_type="DPoP"), dpop_key=key.private_jwk())
    store = MemoryStore()
    authorizer = made(Proofs((200, NEW | {"token_type": "DPoP"})), Logins("never"), store)
    await authorizer._save_new(grant)
    attempt = authorizer.begin("x")
    await attempt.fields("POST", URL)
    assert await attempt.again(401, {"www-authenticate": 'DPoP error="invalid_token"'})
    assert (await attempt.fields("POST", URL))["authorization"] == "DPoP new"
    [text] = proofs
    assert ProofChecker(now=time.time).check(text, "POST", f"{ISSUER}/token") == thumbprint(key.public_jwk())


async def test_a_nonce_that_is_wanted_and_not_given_is_a_refusal_as_any_other() -> None:
    authorizer = made(fetcher := Scripted((200, NEW)), Logins("first"))
    await request(authorizer, {"first"})
    attempt = authorizer.begin("x")
    await attempt.fields("POST", URL)
    wanted = {"www-authenticate": 'DPoP error="use_dpop_nonce"'}
    assert await attempt.again(401, wanted | {"dpop-nonce": "n"})
    assert fetcher.forms == []  # the same request again
    assert await attempt.again(401, wanted)
    assert len(fetcher.forms) == 1


async def test_a_login_that_is_given_up_is_no_fault() -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))

    begun = asyncio.Event()

    async def waits(world: World, asked: TokenRequest) -> Grant:
        begun.set()
        await world.wait(3_600)
        raise AssertionError("it ends before")

    authorizer = made(Scripted((500, b"")), waits)
    asking = asyncio.ensure_future(request(authorizer, {"x"}))
    await begun.wait()
    await authorizer.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.sleep(0)
    assert faults == []


async def test_a_damaged_entry_is_a_login() -> None:
    store = MemoryStore()
    await request(made(Scripted((500, b"")), Logins("first"), store), {"first"})
    for key in await store.keys():
        stored = await store.read(key)
        assert stored is not None
        await store.write(key, b"\xff{damaged", stored.generation)
    assert await request(made(Scripted((500, b"")), Logins("second"), store), {"second"}) == [None, "second"]


class Unwritable(MemoryStore):
    """A store whose disk is full."""

    async def write(self, key: EntryKey, value: bytes, after: int | None) -> bool:
        raise TokenStoreError("the disk is full")


async def test_a_store_that_cannot_be_written_costs_no_login(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = made(Scripted((200, NEW)), logins := Logins("first"), Unwritable())
    assert await request(authorizer, {"first"}) == [None, "first"]
    assert await request(authorizer, {"first"}) == ["first"]
    assert len(logins.asked) == 1
    assert "the disk is full" in caplog.text


async def test_nobody_is_there() -> None:
    authorizer = made(Scripted((500, b"")), Logins(LoginNeeded("a person has to log in first: dragoman login")))
    with pytest.raises(LoginNeeded, match="dragoman login"):
        await request(authorizer, {"x"})


# -- more scopes

LACKING = {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'}


async def forbidden(authorizer: Authorizer, operation: str, good: set[str]) -> int:
    """A request whose token lacks a scope; how often it was sent."""
    attempt = authorizer.begin(operation)
    for sent in range(1, 20):
        token = (await attempt.fields("POST", URL)).get("authorization", "").removeprefix("Bearer ")
        if not await attempt.again(200 if token in good else 403, LACKING):
            return sent
    raise AssertionError("it goes on for ever")


async def test_a_step_up_and_its_bound() -> None:
    authorizer = made(Scripted((500, b"")), logins := Logins(*(f"t{number}" for number in range(20))))
    await request(authorizer, {"t0"})
    assert await forbidden(authorizer, "tools/call a", {"t1"}) == 2
    assert logins.asked[1].challenge is not None
    assert logins.asked[1].challenge.scopes == ("write",)
    assert await forbidden(authorizer, "tools/call b", set()) == 1 + MOST_STEP_UPS
    assert await forbidden(authorizer, "tools/call b", set()) == 1  # not again for the same operation
    assert await forbidden(authorizer, "tools/call c", {"t4"}) == 2
    assert len(logins.asked) == 5


async def test_a_step_up_without_a_person_says_which_scopes_the_call_needs() -> None:
    needed = LoginNeeded("a person has to log in first: dragoman login")
    authorizer = made(Scripted((500, b"")), Logins("t0", needed))
    await request(authorizer, {"t0"})
    with pytest.raises(LoginNeeded, match="the call needs the scopes write: a person has to log in first"):
        await forbidden(authorizer, "tools/call a", set())


async def test_many_that_lack_a_scope_lead_to_one_login() -> None:
    authorizer = made(Scripted((500, b"")), logins := Logins("t0", "t1"))
    await request(authorizer, {"t0"})
    sent = await asyncio.gather(*(forbidden(authorizer, "tools/call a", {"t1"}) for _ in range(10)))
    assert set(sent) <= {1, 2}  # who begins after the login sends the new token at once
    assert len(logins.asked) == 2


async def test_who_waited_for_a_step_up_of_another_is_sent_again_too() -> None:
    authorizer = made(Scripted((500, b"")), logins := Logins("t0", "t1"))
    await request(authorizer, {"t0"})
    attempts = [authorizer.begin("tools/call a") for _ in range(3)]
    for attempt in attempts:
        assert (await attempt.fields("POST", URL))["authorization"] == "Bearer t0"
    assert await asyncio.gather(*(attempt.again(403, LACKING) for attempt in attempts)) == [True] * 3
    assert len(logins.asked) == 2


@pytest.mark.parametrize(
    "challenge", ["", "Bearer", 'Bearer error="invalid_token"', 'Basic error="x", Bearer scope="a"']
)
async def test_a_403_that_asks_for_nothing_is_final(challenge: str) -> None:
    authorizer = made(Scripted((500, b"")), logins := Logins("t0"))
    await request(authorizer, {"t0"})
    attempt = authorizer.begin("x")
    await attempt.fields("POST", URL)
    assert not await attempt.again(403, {"www-authenticate": challenge})
    assert len(logins.asked) == 1


# -- what is taken from a challenge


async def test_the_metadata_of_another_scheme_is_not_followed() -> None:
    authorizer = made(Scripted((500, b"")), logins := Logins("t0"))
    attempt = authorizer.begin("x")
    await attempt.fields("POST", URL)
    hostile = 'Basic realm="x", resource_metadata="https://evil.example", Bearer scope="a"'
    assert await attempt.again(401, {"www-authenticate": hostile})
    assert logins.asked[0].challenge is not None
    assert dict(logins.asked[0].challenge.params) == {"scope": "a"}
