"""The messages that are accepted from peers that do not keep to the specifications: one value for JSON-RPC and MCP, for
servers and clients.

What an option does not concern it does not change: a client that serves nothing meets no arguments.
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
    """Accept null for what is absent from a request: `"params": null`, an argument by name that may be left out and
    takes no null; in MCP also `arguments`, `cursor`, `_meta` and the optional members in it. Clients send it whose JSON
    library writes every member, and models that must give every argument."""
    null_error: bool = False
    """Accept a null `error` beside a result, and a null `result` beside an error, in 2.0."""
    string_codes: bool = False
    """Accept strings as `error.code` in responses ("INVALID_PARAMS") and map them to their numbers; the string is
    kept."""
    text_arguments: bool = False
    """Accept arguments of methods and of MCP tools as text where they do not fit as text, but the JSON in it does:
    `"3"`, `"true"`, `"[1, 2]"`. Hosts of language models send them."""
    unknown_arguments: bool = False
    """Ignore arguments by name that a method or an MCP tool does not have. Hosts add some of their own."""
    any_media_type: bool = False
    """Accept an HTTP body that is not declared to be `application/json`: `curl --data`, the examples of Bitcoin. A page
    of a foreign origin can send one without asking the browser; its `Origin` is checked all the same."""

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
    """The value of an option `lenient`, where True is `LENIENT`, with those that are given by their own names."""
    found = lenient if isinstance(lenient, Leniency) else LENIENT if lenient else STRICT
    found = both(found, Leniency(accept_v1=accept_v1, null_id=null_id, string_codes=string_codes))
    return STRICT if found == STRICT else found


def both(one: Leniency, other: Leniency) -> Leniency:
    """Return a leniency that accepts what either of two accepts."""
    names = Leniency.__struct_fields__
    given = {name: value for name in names if (value := getattr(other, name)) != getattr(STRICT, name)}
    return replace(one, **given)


def without_v1(where: str, lenient: Leniency) -> Leniency:
    """The same. LocalError where it accepts JSON-RPC 1.0, which MCP is never written in."""
    if lenient.accept_v1:
        raise LocalError(f"{where}: MCP is JSON-RPC 2.0 alone; leave accept_v1 out of `lenient`")
    return lenient
