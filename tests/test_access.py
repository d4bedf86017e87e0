"""What a method demands of its callers, value by value; over the wires: `auth/test_behind_a_guard`."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

import pytest

from dragoman import Identity
from dragoman.access import Access, LocalUser, access_of, known, together, union
from dragoman.channel import Caller
from dragoman.jsonrpc.errors import InvalidParams, LocalError, Refusal

ADA = Caller(scheme="https", identity=Identity(subject="ada", scopes=frozenset({"read"}), roles=frozenset({"clerk"})))
BOB = Caller(scheme="https", identity=Identity(subject="bob", scopes=frozenset({"write"}), roles=frozenset({"admin"})))
ANONYMOUS = Caller(scheme="https")
LOCAL = Caller(scheme="memory")


def fits(params: Any) -> Mapping[str, Any]:
    if params == "wrong":
        raise InvalidParams("They do not fit")
    return {"of": params}


def access(scopes: str = "", roles: Any = (), allow: Any = None) -> Access:
    return access_of("notes", scopes, roles, allow, fits)


def own(identity: Identity, arguments: Mapping[str, Any] | None) -> bool:
    return arguments is None or arguments["of"] == identity.subject


def raising(identity: Identity, arguments: Mapping[str, Any] | None) -> bool:
    raise RuntimeError("a fault of allow's own")


def truthy(identity: Identity, arguments: Mapping[str, Any] | None) -> Any:
    return "yes"


@pytest.mark.parametrize(
    ("demanded", "caller", "params", "error", "shown"),
    [
        (access(), ADA, "x", "", True),
        (access(), ANONYMOUS, "x", "access_denied", True),
        (access("read"), ADA, "x", "", True),
        (access("read"), BOB, "x", "insufficient_scope", True),
        (access("read write"), ADA, "x", "insufficient_scope", True),
        (access("read"), ANONYMOUS, "x", "insufficient_scope", True),  # shown, or no one would ask for the scope
        (access("read"), LOCAL, "x", "", True),
        (access(roles="admin"), BOB, "x", "", True),
        (access(roles=("owner", "admin")), BOB, "x", "", True),
        (access(roles="admin"), ADA, "x", "access_denied", False),
        (access(roles="admin"), ANONYMOUS, "x", "access_denied", False),
        (access(roles="admin"), LOCAL, "x", "", True),
        (access(allow=own), ADA, "ada", "", True),
        (access(allow=own), ADA, "bob", "access_denied", True),
        (access(allow=own), ADA, "wrong", "", True),  # it ends in the error that says so
        (access(allow=own), ANONYMOUS, "ada", "access_denied", False),
        (access(allow=own), LOCAL, "ada", "access_denied", True),
        (access(allow=raising), ADA, "x", "access_denied", False),
        (access(allow=truthy), ADA, "x", "access_denied", False),  # True alone is a yes
        (access("write", allow=own), ADA, "ada", "insufficient_scope", True),
    ],
)
def test_what_is_refused_and_shown(demanded: Access, caller: Caller, params: Any, error: str, shown: bool) -> None:
    refusal = demanded.refusal(caller, params)
    assert (refusal.data["error"] if refusal is not None else "") == error
    assert demanded.shown(caller) is shown


def test_arguments_may_be_read_in_another_way_or_be_unknown() -> None:
    demanded = access(allow=own)
    other = demanded.reading(lambda params: {"of": params["inner"]})
    assert other.refusal(ADA, {"inner": "ada"}) is None
    assert other.refusal(ADA, {"inner": "bob"}) is not None
    assert demanded.without_arguments().refusal(ADA, "bob") is None
    assert demanded.passed(ADA) is True
    assert access("write").passed(ADA) is False
    assert access(allow=raising).passed(ADA) is False


def test_several_demand_what_each_of_them_demands() -> None:
    both = together([access("read", roles="clerk"), access("write", roles="admin"), access()])
    assert both.scopes == {"read", "write"}
    for caller in (ADA, BOB):
        assert both.shown(caller) is False
    whole = Identity(subject="eve", scopes=frozenset({"read", "write"}), roles=frozenset({"clerk", "admin"}))
    assert both.refusal(Caller(identity=whole), None) is None
    some = Identity(subject="eve", scopes=frozenset({"read", "write"}), roles=frozenset({"clerk"}))
    assert both.refusal(Caller(identity=some), None) is not None
    assert together([access("read"), access("write")]).allow is None


def test_one_refusal_of_several_names_all_scopes_unless_one_is_forbidden_anyway() -> None:
    read, write = access("read").refusal(BOB, None), access("write").refusal(ADA, None)
    wipe = access(roles="owner").refusal(ADA, None)
    assert read is not None
    assert write is not None
    assert isinstance(wipe, Refusal)
    assert union([write, read]).data == {"error": "insufficient_scope", "scopes": ["read", "write"]}
    assert union([write, wipe, read]) is wipe


def test_the_identity_of_a_wire_within_this_machine_is_its_user_unless_it_has_one() -> None:
    assert isinstance(known(LOCAL).identity, LocalUser)
    mine = Caller(scheme="memory", identity=Identity(subject="ada"))
    assert known(mine) is mine
    assert known(ANONYMOUS) is ANONYMOUS


def test_an_allow_that_raises_is_in_the_log_with_a_reference(caplog: pytest.LogCaptureFixture) -> None:
    access(allow=raising).refusal(ADA, None)
    [record] = caplog.records
    assert (record.levelno, record.name, bool(record.exc_info)) == (logging.ERROR, "dragoman.auth", True)
    assert re.fullmatch(r"allow=raising raised, reference \w+: the call is refused", record.getMessage())


@pytest.mark.parametrize("scope", ['re"ad', "re\\ad", "reäd", "re\x7fad", "re\tad"])
def test_a_scope_that_no_token_could_have(scope: str) -> None:
    with pytest.raises(LocalError, match="is not a scope"):
        access_of("notes", [scope], (), None, fits)


async def _waits(identity: Identity, arguments: Mapping[str, Any] | None) -> bool:
    return True


def test_an_allow_that_waits_is_refused() -> None:
    with pytest.raises(LocalError, match="answers at once"):
        access(allow=_waits)
