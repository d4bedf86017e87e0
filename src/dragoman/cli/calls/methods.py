"""`dragoman methods`: lists what a peer offers, from its OpenRPC document (`rpc.discover`)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from cyclopts import App
from msgspec import Raw, Struct
from rich.text import Text

from ...jsonrpc.errors import BadAnswer, MethodNotFound
from ...rpc.peer import Peer
from ..advice import about_undescribed
from ..content import LEFT_OUT, first_line, show_detail, show_entries, signature_row
from ..exit_status import FINE, NoAnswer
from ..options import LINK, OUTPUT, WIRE, LinkOptions, Output, WireOptions
from ..reach import connect_peer
from ..terminal import clean, count_of, err, escape_json, out, show

app: App = App(
    name="methods",
    help_epilogue="""\
Examples:

  dragoman methods http://127.0.0.1:8000
  dragoman methods 'python server.py'
  dragoman methods tcp://127.0.0.1:9000 --json > openrpc.json""",
)


class Param(Struct, frozen=True):
    """One parameter of a method, as OpenRPC describes it."""

    name: str
    schema: Any = {}
    required: bool = False
    description: str = ""


class Outcome(Struct, frozen=True):
    """The result of a method, as OpenRPC describes it."""

    schema: Any = {}


class DeclaredError(Struct, frozen=True):
    """An error that a method declares."""

    code: int
    message: str = ""


class DescribedMethod(Struct, frozen=True):
    """One method, as OpenRPC describes it."""

    name: str
    params: list[Param] = []
    result: Outcome | None = None
    summary: str = ""
    description: str = ""
    errors: list[DeclaredError] = []


class DescribedService(Struct, frozen=True):
    """The name and version of the peer."""

    title: str = ""
    version: str = ""


class OpenRpc(Struct, frozen=True):
    """The parts of an OpenRPC document that are shown."""

    methods: list[DescribedMethod]
    info: DescribedService = DescribedService()


class _Listed(Struct):
    """The methods of an OpenRPC document, each as it came."""

    methods: list[Raw]


@app.default
def methods(url: str, /, *, link: LinkOptions = LINK, wire: WireOptions = WIRE, output: Output = OUTPUT) -> int:
    """List the methods of a peer that has rpc.discover.

    Parameters
    ----------
    url
        The server's URL (http, https, ws, wss, tcp, tls, unix or udp), or a command to start.
    """
    show_methods(url, asyncio.run(_discover(url, link, wire)), output)
    return FINE


async def _discover(url: str, link: LinkOptions, wire: WireOptions) -> Raw:
    async with connect_peer(url, link, wire) as peer:
        return await description(peer, url)


async def description(peer: Peer, where: str) -> Raw:
    """The OpenRPC document of a peer, as it came. Raises NoAnswer where it has none."""
    try:
        return await peer.call("rpc.discover", result=Raw)
    except MethodNotFound:
        error = NoAnswer(f"{where} does not describe itself: it has no rpc.discover")
        await about_undescribed(error, peer, where)
        raise error from None


def document_of(where: str, raw: Raw) -> OpenRpc:
    """The document, read. Raises BadAnswer for another value."""
    try:
        return msgspec.json.decode(raw, type=OpenRpc)
    except msgspec.ValidationError as fault:
        raise BadAnswer(f"what {where} answered to rpc.discover is not an OpenRPC document: {fault}") from None


def show_methods(where: str, raw: Raw, output: Output) -> None:
    """Name, version and methods of a peer."""
    document = document_of(where, raw)
    if output.output == "ndjson":
        output.write({"methods": msgspec.json.decode(raw, type=_Listed).methods}, "methods")
        return
    if output.json:
        print(escape_json(bytes(raw).decode()))
        return
    if document.info.title:
        title = Text.assemble((clean(document.info.title), "bold"))
        count = "" if out.is_terminal else f", {count_of(len(document.methods), 'method')}"
        show(title.append(f" {clean(document.info.version)}{count}", "dim"), console=err)
        if out.is_terminal and err.is_terminal:
            err.print()
    rows = [signature_row(signature(method), summary(method)) for method in document.methods]
    show_entries(rows, "methods", "Methods" if out.is_terminal else "")


def show_method(method: DescribedMethod) -> None:
    """One method in detail."""
    arguments = [(p.name, kind(p.schema), "" if p.required else LEFT_OUT, p.description) for p in method.params]
    show_detail(signature(method), method.description or method.summary, arguments)
    for error in method.errors:
        show(f"error {error.code}  {error.message}", "dim", indent=2)


def signature(method: DescribedMethod) -> str:
    """A method in one line: `subtract(minuend: integer, subtrahend: integer) -> integer`."""
    params = ", ".join(f"{p.name}{'' if p.required else '?'}: {kind(p.schema)}" for p in method.params)
    answer = f" -> {kind(method.result.schema)}" if method.result is not None else ""
    return f"{method.name}({params}){answer}"


def kind(schema: Any) -> str:
    """A JSON Schema in a few words."""
    if not isinstance(schema, dict):
        return "any"
    if isinstance(reference := schema.get("$ref"), str):
        return reference.rpartition("/")[2]
    if isinstance(values := schema.get("enum"), list):
        return " | ".join(msgspec.json.encode(value).decode() for value in values)
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            return " | ".join(dict.fromkeys(kind(choice) for choice in choices))
    found = schema.get("type", "any")
    if found == "array" and isinstance(schema.get("items"), dict):
        return f"[{kind(schema['items'])}]"
    if found == "object" and isinstance(title := schema.get("title"), str):
        return title
    return " | ".join(map(str, found)) if isinstance(found, list) else str(found)


def summary(method: DescribedMethod) -> str:
    """The first line of a method's description."""
    return first_line(method.summary or method.description)
