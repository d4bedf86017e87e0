"""Codes and refresh tokens: who gets them, what they are good for, and what a second use does."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.auth.jose import new_key, parse_jws, thumbprint

from .asking import CHALLENGE, ISSUER, LOOPBACK, REDIRECT, RESOURCE, VERIFIER, Asker, answer, body, claims, header


async def test_a_login_gives_a_token_for_the_resource_alone() -> None:
    asker = Asker()
    given = await asker.login()
    found = claims(given["access_token"])
    assert parse_jws(given["access_token"], frozenset({"ES256"})).header["typ"] == "at+jwt"
    assert (found["iss"], found["sub"], found["aud"], found["client_id"]) == (ISSUER, "alice", RESOURCE, "app")
    assert found["scope"] == given["scope"] == "notes:read notes:write"
    assert found["exp"] - found["iat"] == given["expires_in"] == 300
    assert given["token_type"] == "Bearer"
    assert (await asker.introspect(given["access_token"]))["active"] is True


async def test_the_answer_has_state_issuer_and_no_cache() -> None:
    asker = Asker()
    sent = await asker.consent(await asker.authorize())
    assert answer(sent).keys() == {"code", "state", "iss"}
    assert (answer(sent)["state"], answer(sent)["iss"]) == ("st", ISSUER)
    tokens = await asker.redeem(answer(sent)["code"])
    for made in (sent, tokens):
        assert header(made, "Cache-Control") == "no-store"


async def test_a_redirect_keeps_the_query_of_its_uri() -> None:
    from dragoman.auth.server import Client

    uri = REDIRECT + "?tenant=1"
    asker = Asker(clients=(Client(id="app", redirect_uris=(uri,)),))
    sent = await asker.consent(await asker.authorize(redirect_uri=uri))
    assert header(sent, "Location").startswith(uri + "&code=")


async def test_a_code_is_good_once_and_a_second_use_ends_what_it_gave() -> None:
    asker = Asker()
    code = await asker.code()
    given = body(await asker.redeem(code))
    again = await asker.redeem(code)
    assert (again.status, body(again)["error"]) == (400, "invalid_grant")
    assert await asker.introspect(given["access_token"]) == {"active": False}
    assert (await asker.refresh(given["refresh_token"])).status == 400


async def test_of_two_uses_at_once_one_gets_tokens() -> None:
    asker = Asker()
    code = await asker.code()
    both = await asyncio.gather(asker.redeem(code), asker.redeem(code))
    assert sorted(one.status for one in both) == [200, 400]


async def test_another_client_does_not_spend_a_code() -> None:
    asker = Asker()
    code = await asker.code()
    assert body(await asker.redeem(code, client_id="other"))["error"] == "invalid_grant"
    assert (await asker.redeem(code)).status == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"code_verifier": "w" * 43},
        {"code_verifier": "v" * 42},
        {"code_verifier": CHALLENGE},
        {"redirect_uri": REDIRECT + "/"},
        {"resource": RESOURCE + "2"},
    ],
    ids=str,
)
async def test_a_wrong_use_gets_nothing_and_spends_the_code(changes: dict[str, str]) -> None:
    asker = Asker()
    code = await asker.code()
    assert (await asker.redeem(code, **changes)).status == 400
    assert body(await asker.redeem(code))["error"] == "invalid_grant"


async def test_a_code_expires() -> None:
    asker = Asker()
    code = await asker.code()
    asker.clock.advance(61)
    assert body(await asker.redeem(code))["error"] == "invalid_grant"


async def test_a_refresh_rotates_and_an_old_token_ends_the_grant() -> None:
    asker = Asker()
    first = await asker.login()
    second = body(await asker.refresh(first["refresh_token"]))
    assert second["refresh_token"] != first["refresh_token"]
    asker.clock.advance(31)
    refused = await asker.refresh(first["refresh_token"])
    assert (refused.status, body(refused)["error"]) == (400, "invalid_grant")
    assert body(await asker.refresh(second["refresh_token"]))["error"] == "invalid_grant"
    assert await asker.introspect(second["access_token"]) == {"active": False}


async def test_within_the_grace_the_same_answer_comes_again() -> None:
    asker = Asker()
    first = (await asker.login())["refresh_token"]
    answers = [await asker.refresh(first) for _ in range(3)]
    assert len({one.body for one in answers}) == 1
    assert (await asker.refresh(body(answers[0])["refresh_token"])).status == 200


@pytest.mark.parametrize(("seconds", "status"), [(29, 200), (30, 400)])
async def test_the_grace_ends(seconds: int, status: int) -> None:
    asker = Asker()
    first = (await asker.login())["refresh_token"]
    await asker.refresh(first)
    asker.clock.advance(seconds)
    assert (await asker.refresh(first)).status == status


async def test_within_the_grace_another_request_with_the_old_token_ends_the_grant() -> None:
    asker = Asker()
    first = (await asker.login())["refresh_token"]
    second = body(await asker.refresh(first))["refresh_token"]
    assert (await asker.refresh(first, scope="notes:read")).status == 400
    assert (await asker.refresh(second)).status == 400


async def test_two_generations_back_there_is_no_grace() -> None:
    asker = Asker()
    first = (await asker.login())["refresh_token"]
    second = body(await asker.refresh(first))["refresh_token"]
    third = body(await asker.refresh(second))["refresh_token"]
    assert (await asker.refresh(first)).status == 400
    assert (await asker.refresh(third)).status == 400


async def test_twenty_refreshes_at_once_give_one_new_token() -> None:
    asker = Asker()
    first = (await asker.login())["refresh_token"]
    answers = await asyncio.gather(*(asker.refresh(first) for _ in range(20)))
    assert len({one.body for one in answers}) == 1
    assert answers[0].status == 200


async def test_a_made_up_token_ends_nothing() -> None:
    asker = Asker()
    token = (await asker.login())["refresh_token"]
    family, generation, mark = token.split(".")
    for wrong in (f"{family}.{generation}.{'A' * 43}", f"{family}.7.{mark}", f"{family}.{generation}", "x", "é"):
        assert body(await asker.refresh(wrong))["error"] == "invalid_grant"
    assert (await asker.refresh(token)).status == 200


async def test_another_client_cannot_refresh_nor_end_a_grant() -> None:
    asker = Asker()
    token = (await asker.login())["refresh_token"]
    assert body(await asker.refresh(token, client_id="other"))["error"] == "invalid_grant"
    assert (await asker.refresh(token)).status == 200


async def test_a_refresh_may_narrow_its_scopes_and_never_widen_them() -> None:
    asker = Asker()
    token = (await asker.login())["refresh_token"]
    assert body(await asker.refresh(token, scope="notes:read admin"))["error"] == "invalid_scope"
    narrow = body(await asker.refresh(token, scope="notes:read"))
    assert narrow["scope"] == "notes:read"
    assert body(await asker.refresh(narrow["refresh_token"]))["scope"] == "notes:read notes:write"


async def test_a_refresh_is_for_no_other_resource() -> None:
    asker = Asker()
    token = (await asker.login())["refresh_token"]
    assert body(await asker.refresh(token, resource="https://evil.example"))["error"] == "invalid_target"
    assert claims(body(await asker.refresh(token, resource=RESOURCE))["access_token"])["aud"] == RESOURCE


async def test_a_grant_that_is_not_used_expires() -> None:
    asker = Asker()
    token = (await asker.login())["refresh_token"]
    asker.clock.advance(13 * 86_400)
    token = body(await asker.refresh(token))["refresh_token"]
    asker.clock.advance(13 * 86_400)
    token = body(await asker.refresh(token))["refresh_token"]
    asker.clock.advance(15 * 86_400)
    assert body(await asker.refresh(token))["error"] == "invalid_grant"


async def test_a_wrong_use_does_not_lengthen_a_grant() -> None:
    asker = Asker()
    token = (await asker.login())["refresh_token"]
    asker.clock.advance(13 * 86_400)
    assert (await asker.refresh(token, client_id="other")).status == 400
    asker.clock.advance(2 * 86_400)
    assert (await asker.refresh(token)).status == 400


async def test_an_id_token_comes_with_openid() -> None:
    asker = Asker()
    given = await asker.login(scope="openid notes:read", nonce="n1")
    found = claims(given["id_token"])
    assert (found["aud"], found["sub"], found["nonce"]) == ("app", "alice", "n1")
    assert "id_token" not in await asker.login()


async def test_several_resources_make_several_audiences_and_a_request_takes_one() -> None:
    asker = Asker()
    page = await asker.ask(
        "GET",
        "/authorize",
        f"response_type=code&client_id=app&redirect_uri={LOOPBACK}&code_challenge={CHALLENGE}"
        "&code_challenge_method=S256&resource=https://a.example&resource=https://b.example",
    )
    code = answer(await asker.consent(page))["code"]
    given = body(await asker.redeem(code, redirect_uri=LOOPBACK))
    assert claims(given["access_token"])["aud"] == ["https://a.example", "https://b.example"]
    one = body(await asker.refresh(given["refresh_token"], resource="https://b.example"))
    assert claims(one["access_token"])["aud"] == "https://b.example"


async def test_without_a_resource_the_audience_is_the_default() -> None:
    assert claims((await Asker().login(resource=None))["access_token"])["aud"] == ISSUER
    asker = Asker(resources=[RESOURCE])
    assert claims((await asker.login(resource=None))["access_token"])["aud"] == RESOURCE


async def test_a_bound_token_names_its_key_and_its_refresh_needs_it() -> None:
    asker, key = Asker(), new_key("ES256")
    given = body(await asker.redeem(await asker.code(), asker.proof(key)))
    assert given["token_type"] == "DPoP"
    assert claims(given["access_token"])["cnf"] == {"jkt": thumbprint(key.public_jwk())}
    form = {"grant_type": "refresh_token", "refresh_token": given["refresh_token"], "client_id": "app"}
    assert body(await asker.token(**form))["error"] == "invalid_grant"
    assert body(await asker.token(asker.proof(new_key("ES256")), **form))["error"] == "invalid_grant"
    assert (await asker.token(asker.proof(key), **form)).status == 200


async def test_a_grant_without_a_key_is_refreshed_with_and_without_a_proof() -> None:
    """A public client's proof binds the access token that comes of it, and not the grant."""
    asker, key = Asker(), new_key("ES256")
    token = (await asker.login())["refresh_token"]
    form = {"grant_type": "refresh_token", "client_id": "app"}
    given = body(await asker.token(asker.proof(key), **form, refresh_token=token))
    assert given["token_type"] == "DPoP"
    assert body(await asker.token(**form, refresh_token=given["refresh_token"]))["token_type"] == "Bearer"


async def test_a_proof_is_good_once_and_one_header_is_enough() -> None:
    asker, key = Asker(), new_key("ES256")
    sent = asker.proof(key)
    assert (await asker.redeem(await asker.code(), sent)).status == 200
    assert body(await asker.redeem(await asker.code(), sent))["error"] == "invalid_dpop_proof"
    two = {"dpop": f"{asker.proof(key)['dpop']}, {asker.proof(key)['dpop']}"}
    assert body(await asker.redeem(await asker.code(), two))["error"] == "invalid_dpop_proof"


async def test_a_nonce_is_demanded_where_the_server_wants_one() -> None:
    asker, key = Asker(dpop_nonce=True), new_key("ES256")
    code = await asker.code()
    first = await asker.redeem(code, asker.proof(key))
    assert (first.status, body(first)["error"]) == (400, "use_dpop_nonce")
    nonce = header(first, "DPoP-Nonce")
    second = await asker.redeem(code, asker.proof(key, nonce=nonce))
    assert second.status == 200
    assert header(second, "DPoP-Nonce") == nonce


async def test_a_code_bound_by_dpop_jkt_needs_that_key() -> None:
    asker, key = Asker(), new_key("ES256")
    jkt = thumbprint(key.public_jwk())
    assert body(await asker.redeem(await asker.code(dpop_jkt=jkt)))["error"] == "invalid_dpop_proof"
    other = asker.proof(new_key("ES256"))
    assert body(await asker.redeem(await asker.code(dpop_jkt=jkt), other))["error"] == "invalid_dpop_proof"
    assert (await asker.redeem(await asker.code(dpop_jkt=jkt), asker.proof(key))).status == 200


async def test_nothing_that_is_kept_can_be_used() -> None:
    asker = Asker()
    code = await asker.code()
    given = body(await asker.redeem(code))
    kept = str(vars(asker.engine.records.engine))
    for secret in (code, given["refresh_token"], given["access_token"], VERIFIER):
        assert secret not in kept
