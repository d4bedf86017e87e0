"""The messages that are accepted from peers that do not keep to the specifications: one value for JSON-RPC and MCP, for
servers and clients.

An option has no effect where it does not apply: a client that serves nothing receives no arguments.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from .errors import LocalError
from .options import FLAG, check_struct, instance, one_of, rules_of


class Leniency(Struct, frozen=True, kw_only=True):
    """What is accepted from peers that do not keep to the specifications. Everything is off by default.

    `LENIENT` is what hosts and servers of language models need.
    """

    accept_v1: bool = False
    """Accept JSON-RPC 1.0 as well: no `jsonrpc` member, or `"jsonrpc": "1.0"`; positional params, `id: null` is a
    notification, responses carry both `result` and `error`. Bitcoin Core and many devices speak it."""
    null_id: Literal["request", "notification"] = "request"
    """What `"id": null` means in 2.0. The specification discourages it; clients that write every member send it for
    notifications, and `"params": null` with it, which then is accepted too."""
    null_params: bool = False
    """Take a null in a request for a member that is absent: `"params": null`, a named argument that may be left out and
    whose type does not take null; in MCP also `arguments`, `cursor`, `_meta` and the optional members in it. It is sent
    by clients whose JSON library writes every member, and by models that must give every argument."""
    null_error: bool = False
    """Accept a null `error` beside a result, and a null `result` beside an error, in 2.0."""
    string_codes: bool = False
    """Accept strings as `error.code` in responses ("INVALID_PARAMS") and map them to their numbers; the string is
    kept."""
    text_arguments: bool = False
    """Read the JSON in an argument that is text, `"3"`, `"true"` or `"[1, 2]"`, where text does not fit the type and
    that JSON does: of methods and of MCP tools. Hosts of language models send such arguments."""
    unknown_arguments: bool = False
    """Ignore arguments by name that a method or an MCP tool does not have. Hosts add some of their own."""
    any_media_type: bool = False
    """Accept an HTTP body that is not declared to be `application/json`: `curl --data`, the examples of Bitcoin. A page
    of another origin can send such a body without a preflight request (CORS); its `Origin` is checked all the same."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)


_RULES = rules_of(Leniency, null_id=one_of("request", "notification"))

STRICT = Leniency()
LENIENT = Leniency(null_params=True, null_error=True, string_codes=True, text_arguments=True, unknown_arguments=True)
"""The leniency that hosts and servers of language models need: `Server(lenient=True)`."""
CHOSEN: Final = FLAG | instance(Leniency, "a Leniency")
"""The rule of an option `lenient`."""


def chosen(
    lenient: Leniency | bool,
    *,
    accept_v1: bool = False,
    null_id: Literal["request", "notification"] = "request",
    string_codes: bool = False,
) -> Leniency:
    """Return the Leniency for an option `lenient` (True: `LENIENT`) together with options that are given by name."""
    found = lenient if isinstance(lenient, Leniency) else LENIENT if lenient else STRICT
    found = both(found, Leniency(accept_v1=accept_v1, null_id=null_id, string_codes=string_codes))
    return STRICT if found == STRICT else found


def both(one: Leniency, other: Leniency) -> Leniency:
    """Return a Leniency that accepts what either of the two accepts."""
    names = Leniency.__struct_fields__
    given = {name: value for name in names if (value := getattr(other, name)) != getattr(STRICT, name)}
    return replace(one, **given)


def without_v1(where: str, lenient: Leniency) -> Leniency:
    """Return `lenient` itself. Raises LocalError, beginning with `where`, if it accepts JSON-RPC 1.0: MCP is 2.0
    alone."""
    if lenient.accept_v1:
        raise LocalError(f"{where}: MCP is JSON-RPC 2.0 alone; leave accept_v1 out of `lenient`")
    return lenient
