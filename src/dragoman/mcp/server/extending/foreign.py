"""Makes an entry of what another server offers: its description is listed as JSON text, and calls are passed on.

Rules:

- The description is kept as it came. Members that a revision does not have are left out of it, as of every entry's.
  Members that this library does not know stay, and so does all that is inside a member.
- The function gets the params of a request as they came, except that arguments which middleware has set replace those
  of the request. It returns the whole result as JSON text, which is sent as it is: without the server's stamp, and
  without a check.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, TypeAlias, Unpack

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ....channel import Caller
from ....jsonrpc.errors import LocalError
from ....jsonrpc.options import CALLABLE
from ....rpc.binding.results import to_json
from ....rpc.method import CallOptions
from ...protocol.admission import Admitted
from ...protocol.encoding import decode, with_members
from ...protocol.headers import marked
from ...protocol.types import Resource, ResourceTemplate, Tool
from ...protocol.uri import normal
from ...protocol.uri_template import Template, is_template, parse
from ..context import Context
from ..errors import failures, tool_failures
from ..handlers import handler_of, method_for
from ..listing import LISTED, Entry, Listed
from ..options import PROMPT, entry_options
from ..outcomes import ResultWriter
from ..surroundings import Surroundings

ForeignFunction: TypeAlias = Callable[[Raw, Context], Any]
"""(params, context) -> the whole result as `Raw`, or an awaitable of it."""

FOREIGN: Final = {
    name: rule
    for name, rule in PROMPT.items()
    if name not in ("name", "title", "description", "icons", "meta", "process")
}
"""The rules of the options of a foreign entry."""


class ForeignOptions(CallOptions, total=False):
    """The options of a foreign entry; `Server.tool` describes them."""

    visible: Callable[[Caller], bool] | None
    tags: Collection[str]
    version: str | None


def foreign_entry(
    server: Surroundings, kind: str, listed: Raw, function: ForeignFunction, **given: Unpack[ForeignOptions]
) -> Entry:
    """Return the entry of a tool, resource, template or prompt that is described by JSON text, under the name or URI in
    it. Raises LocalError for text that describes no such entry."""
    if kind not in LISTED:
        raise LocalError(f"a foreign entry is one of {', '.join(LISTED)}, and not {kind!r:.40}")
    if not CALLABLE.fits(function):
        raise LocalError(f"a foreign {kind}: a function of its params and a Context returns the result")
    text, known = _read(kind, listed)
    key, template = _key(known)
    options = entry_options("add_foreign", f"foreign {kind} {key}", FOREIGN, given)
    runs: Literal["async", "plain"] = "async" if inspect.iscoroutinefunction(function) else "plain"
    handle_failure = tool_failures() if kind == "tool" else failures()
    handler = handler_of(function, runs, _params_and_context, _writer(kind, key), handle_failure, Context)
    return Entry(
        kind,  # type: ignore[arg-type]  # one of LISTED
        key,
        text,
        method_for(key, runs, function, handler, options, arguments=_arguments),
        msgspec.structs.replace(server, name=key, template=template),
        marked=_marked(key, known),
        template=template,
        visible=options["visible"],
        tags=frozenset(options["tags"]),
        version=options["version"] or "",
        decoded=known,
    )


def _read(kind: str, listed: Raw) -> tuple[Raw, Listed]:
    """Return a copy of the text of a description, and the description with the members that are known. Raises
    LocalError for text that describes no such entry."""
    if not isinstance(listed, Raw):
        raise LocalError(f"a foreign {kind} is described by its JSON text, a msgspec.Raw, and not by {listed!r:.100}")
    try:
        bytes(listed).decode()  # msgspec does not check the members that it keeps as text
        # the text may be a part of a message, which a copy does not keep in memory
        return listed.copy(), decode(listed, LISTED[kind])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LocalError(f"this describes no {kind}: {error}: {bytes(listed)[:100]!r}") from None


def _key(known: Listed) -> tuple[str, Template | None]:
    """Return the key of an entry, and its template if it is one. Raises LocalError for a URI or template that is not
    valid, and for an empty name."""
    if isinstance(known, ResourceTemplate):
        if not is_template(known.uri_template):
            raise LocalError(f"{known.uri_template!r} is no template of URIs: it has no {{variable}}")
        template = parse(known.uri_template)
        return template.text, template
    if isinstance(known, Resource):
        if ":" not in known.uri or is_template(known.uri):
            raise LocalError(f"{known.uri!r} is not a URI: a resource is called like file:///path or weather://beijing")
        return normal(known.uri), None
    if not known.name:
        raise LocalError("a foreign entry has a name: this one is empty")
    return known.name, None


def _marked(name: str, known: Listed) -> Any:
    """Return the arguments of a tool that are sent as HTTP headers, too; none for other kinds. Raises LocalError for a
    schema that marks others."""
    if not isinstance(known, Tool):
        return ()
    try:
        return marked(known.input_schema)
    except ValueError as error:
        raise LocalError(f"{name}: {error}") from None


class _SentArguments(Struct):
    """The arguments in the params as they came."""

    arguments: Raw | UnsetType = UNSET


def _params_and_context(admitted: Admitted, context: Any) -> tuple[Any, ...]:
    """Return the params as they came, with other arguments if middleware has changed them, and the context."""
    raw = Raw(b"{}") if isinstance(admitted.raw, UnsetType) else admitted.raw
    given: Any = getattr(admitted.params, "arguments", UNSET)
    if given is UNSET or admitted.condensed is not None:
        return raw, context
    sent = decode(raw, _SentArguments).arguments
    if isinstance(sent, Raw) and (bytes(sent) == bytes(given) if isinstance(given, Raw) else _texts(sent) == given):
        return raw, context
    return with_members(raw, {"arguments": given if isinstance(given, Raw) else Raw(to_json(given))}), context


def _texts(arguments: Raw) -> dict[str, str]:
    """Return the decoded arguments of a prompt."""
    return decode(arguments, dict[str, str])


def _arguments(admitted: Admitted) -> Mapping[str, Any]:
    """Return the arguments of a call, for the option `allow`. Those of a resource are its URI and the values of its
    template."""
    params, template = admitted.params, admitted.surroundings.template
    if hasattr(params, "uri"):
        return {"uri": params.uri} | ({} if template is None else template.match(params.uri) or {})
    given = params.arguments
    return decode(given, dict[str, Any]) if isinstance(given, Raw) else {} if given is UNSET else given


def _writer(kind: str, key: str) -> ResultWriter:
    """Return the writer of the entry's results. It raises LocalError for a result that is no JSON text."""

    def write_result(value: Any, admitted: Admitted) -> Raw:
        if type(value) is not Raw:
            raise LocalError(f"the foreign {kind} {key!r} returns its result as JSON text, and not {value!r:.100}")
        return value

    return write_result
