"""`dragoman events`: lists the event types of an MCP server, and follows the events of one (MCP Events, SEP-3415);
`send` is another command.

Rules: an event is a line, of its time, type and data; with `--json` an object, of `id`, `name`, `timestamp`, `data` and
what else is known of it. Where to go on is said on stderr at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from msgspec import Raw
from rich.text import Text

from ...mcp import Client
from ...mcp.extensions.events import EventsClient, Listening, ReceivedEvent
from ...system.words import quote_word
from ..advice import suggest
from ..content import EntryRow, first_line, show_detail, show_entries
from ..exit_status import FINE, Usage
from ..fields import arguments_of
from ..options import OUTPUT, Output
from ..progress import Bar
from ..terminal import clean, compact, out, say, show
from .listing import argument_rows, parameters, tool_signature
from .mcp_server import MCP_OPTIONS, SERVER_WORDS, McpOptions, list_or_empty, plain, server_and_rest, with_client

app: App = App(
    name="events",
    usage="Usage: dragoman events [OPTIONS] SERVER [NAME [ARGUMENT=VALUE...]]",
    help_epilogue=f"""\
Examples:

  dragoman events http://127.0.0.1:8000/mcp
  dragoman events shop.py
  dragoman events shop.py orders.shipped            one type in detail
  dragoman events http://127.0.0.1:8000/mcp orders.shipped carrier=DHL --watch
  dragoman events http://127.0.0.1:8000/mcp orders.shipped --watch --json
  dragoman events send http://127.0.0.1:8000/hooks orders.shipped order=42
  dragoman events http://127.0.0.1:8000/mcp orders.shipped --watch \\
      --cursor d1c1f2a7b6e0.0000000000001 --max-age 3600

{SERVER_WORDS}

--watch ends with Ctrl-C, or after --count events. It then says with which
--cursor to go on, if the server has positions.

Exit status: 0 success, 1 the server has refused or ended the events,
2 wrong usage, 3 no connection or no answer in time.""",
)
app.command(
    "dragoman.cli.mcp.sending:app", name="send", help="Post one event to the receiver of a webhook, as a server does."
)


@app.default
def events(
    *words: Annotated[str, Parameter(name="SERVER [NAME [ARGUMENT=VALUE...]]")],
    watch: Annotated[bool, Parameter(alias="-w")] = False,
    count: Annotated[int | None, Parameter(alias="-n", show_default=False)] = None,
    cursor: Annotated[str | None, Parameter(metavar="POSITION", allow_leading_hyphen=True, show_default=False)] = None,
    max_age: Annotated[float | None, Parameter(metavar="SECONDS", show_default=False)] = None,
    options: McpOptions = MCP_OPTIONS,
    output: Output = OUTPUT,
) -> int:
    """List the event types of an MCP server, show one in detail, or follow its events.

    Parameters
    ----------
    words
        The server, the name of an event type, and with --watch the arguments that choose among its events.
    watch
        Follow the events of the type, a line each, until Ctrl-C; by a stream, or by polling where there is none.
    count
        With --watch: end after this many events.
    cursor
        With --watch: begin after this position; default: from now on.
    max_age
        With --cursor: leave out what is older than this at the beginning.
    """
    host, rest = server_and_rest(words, options)
    _check(rest, watch=watch, count=count, cursor=cursor, max_age=max_age)

    async def run(client: Client, bar: Bar) -> int:
        of = client.extension(EventsClient)
        there = [plain(one) for one in await list_or_empty(of.list())]
        chosen = there if not rest else [_find(rest[0], there)]
        if watch:
            arguments = _arguments(chosen[0], rest[1:])
            bar.pause()
            await _follow(of.listen(rest[0], arguments, cursor=cursor, max_age=max_age), count, output)
        elif output.json:
            output.write({"events": chosen}, "events")
        elif rest:
            _show(chosen[0])
        else:
            show_entries([_row(each) for each in chosen], "events", "Events" if out.is_terminal else "")
        return FINE

    title = rest[0][:20] if rest else "events"
    try:
        return with_client(host, options, title, run, extensions=[EventsClient()])
    except KeyboardInterrupt:
        if not watch:
            raise
        return FINE


def _check(rest: Sequence[str], *, watch: bool, count: int | None, cursor: str | None, max_age: float | None) -> None:
    """Raises Usage for words and options that do not fit each other."""
    if watch and not rest:
        raise Usage("--watch needs the name of an event type: dragoman events SERVER lists them")
    if not watch:
        for name, value in (("count", count), ("cursor", cursor), ("max-age", max_age)):
            if value is not None:
                raise Usage(f"--{name} needs --watch")
        if len(rest) > 1:
            raise Usage(f"{rest[1]!r} is too much: arguments choose among the events that --watch follows")
    if count is not None and count < 1:
        raise Usage("--count is above 0")
    if max_age is not None:
        if cursor is None:
            raise Usage("--max-age needs --cursor: without a position only new events come")
        if not 0 <= max_age < float("inf"):
            raise Usage(f"--max-age {max_age:g}: an age is a number of seconds, 0 or more")


# -- event types


def _find(name: str, there: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The event type with this name. Raises Usage if there is none."""
    for each in there:
        if each["name"] == name:
            return each
    known = suggest(name, [each["name"] for each in there]) or "it has no events"
    raise Usage(f"the server has no events {name!r}; {known}")


def _row(each: Mapping[str, Any]) -> EntryRow:
    name = each["name"]
    signature = tool_signature(each).removeprefix(name)
    return EntryRow(name, signature, first_line(each.get("description")), (", ".join(each["delivery"]),))


def _show(each: Mapping[str, Any]) -> None:
    """Show all of an event type: its arguments, how its events come, and what is in them."""
    show_detail(tool_signature(each), each.get("description"), argument_rows(each.get("inputSchema")))
    members = [f"{name}{'' if always else '?'}: {what}" for name, what, always, _ in parameters(each["payloadSchema"])]
    for title, entries in (("delivery", each["delivery"]), ("data", members)):
        if entries:
            show(f"{title}: {', '.join(entries)}", "dim", indent=2)


# -- following


def _arguments(each: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The arguments for the events of a type. Raises Usage, also where its events do not come to a command."""
    if not {"push", "poll"} & set(each["delivery"]):
        ways = " or ".join(each["delivery"]) or "nothing"
        raise Usage(f"{each['name']} is delivered by {ways} alone: --watch needs a stream (push) or polling (poll)")
    schema = each.get("inputSchema")
    return arguments_of(words, schema if isinstance(schema, dict) else {}, each["name"])


async def _follow(listening: Listening, count: int | None, output: Output) -> None:
    """Show events, `count` at most; at the end, whatever it is, say where to go on."""
    position, left = None, count
    try:
        async with listening:
            async for event in listening:
                _show_event(event, output)
                position = event.cursor
                if left is not None:
                    left -= 1
                    if left == 0:
                        return
                position = None  # from here on `listening` has it
    finally:
        if (position := position or listening.cursor) is not None:
            say(f"go on after these: --cursor {quote_word(position)}", "dim")


def _show_event(event: ReceivedEvent, output: Output) -> None:
    data = Raw(msgspec.json.format(event.raw, indent=-1))  # one line
    if output.json:
        known = {"id": event.id, "name": event.name, "timestamp": event.timestamp, "data": data}
        perhaps = {"cursor": event.cursor, "truncated": event.truncated, "meta": event.meta}
        print(compact(known | {name: value for name, value in perhaps.items() if value}), flush=True)
        return
    if event.truncated:
        say("events before this one were skipped", "yellow")
    when, name = _in_line(event.timestamp), _in_line(event.name)
    out.print(Text.assemble((when, "dim"), "  ", (name, "cyan"), f"  {compact(data)}"), soft_wrap=True)


def _in_line(text: str) -> str:
    """Text from a peer that cannot begin another line."""
    return clean(text).replace("\n", "\\n")
