"""`dragoman tasks`: lists, follows and cancels the tasks of an MCP server, and prints their results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from cyclopts import App, Parameter
from rich.text import Text

from ...jsonrpc.errors import InvalidParams, LocalError
from ...mcp import CallToolResult, Client, TaskHandle, TasksClient, TaskStatus
from ..content import show_tool_result
from ..exit_status import ANSWERED_WITH_ERROR, FINE, Usage
from ..options import OUTPUT, Output
from ..progress import Bar
from ..serving.hosts import HostServer
from ..terminal import clean, err, out, say, show, show_rows
from .asking import has_terminal
from .begun import BegunTask, begun, forget, remember
from .mcp_server import MCP_OPTIONS, SERVER_WORDS, McpOptions, plain, server_and_rest, with_client

app: App = App(
    name="tasks",
    usage="Usage: dragoman tasks [OPTIONS] [SERVER [ID]]",
    help_epilogue=f"""\
Examples:

  dragoman tasks                                          all that you began
  dragoman tasks http://127.0.0.1:8000/mcp                those at a server
  dragoman tasks http://127.0.0.1:8000/mcp ID             how far one is
  dragoman tasks http://127.0.0.1:8000/mcp ID --watch     until it has ended
  dragoman tasks http://127.0.0.1:8000/mcp ID --result    wait for its result
  dragoman tasks http://127.0.0.1:8000/mcp ID --cancel

{SERVER_WORDS}

dragoman tool ... --task begins one, and prints its id. Questions of a task are
answered at the terminal or by --answer; where there is neither, --watch leaves
them open, and --result declines them.

Exit status: 0 success, 1 the task failed or was cancelled, or its server
answered with an error, 2 wrong usage, 3 no connection or no answer in time.""",
)

SHOWN: Final = 50
"""Tasks that are looked at for one list at most."""


@app.default
def tasks(
    *words: Annotated[str, Parameter(name="[SERVER [ID]]")],
    watch: Annotated[bool, Parameter(alias="-w")] = False,
    result: bool = False,
    cancel: bool = False,
    options: McpOptions = MCP_OPTIONS,
    output: Output = OUTPUT,
) -> int:
    """List the tasks that you began at an MCP server, follow one, cancel it, or print its result.

    Parameters
    ----------
    words
        The server, and the id of a task. Without a server: all tasks that you have begun, without their state.
    watch
        Show each new state of the task until it has ended.
    result
        Wait for the result of the task, and print it.
    cancel
        Cancel the task.
    """
    wanted = [name for name, given in (("watch", watch), ("result", result), ("cancel", cancel)) if given]
    if len(wanted) > 1:
        raise Usage(f"--{wanted[0]} and --{wanted[1]} exclude each other")
    if not words and options.config is None and options.child is None:
        if wanted:
            raise Usage(f"--{wanted[0]} needs a server and the id of a task")
        return _show_begun(begun(), output)
    host, rest = server_and_rest(words, options)
    if len(rest) > 1:
        raise Usage(f"{rest[1]!r} is too much: a server and at most one id")
    if not rest:
        if wanted:
            raise Usage(f"--{wanted[0]} needs the id of a task: dragoman tasks SERVER lists them")
        return with_client(host, options, "tasks", lambda client, _: _list(client, host, output))
    answers = result or (watch and (has_terminal() or bool(options.answer)))
    at = _Task(output, answers=answers)
    work = at.cancel if cancel else at.result if result else at.watch if watch else at.status

    async def run(client: Client, bar: Bar) -> int | CallToolResult:
        return await work(client.extension(TasksClient).task(rest[0]), bar)

    found = with_client(host, options, rest[0][:20], run, answers=answers)
    return found if isinstance(found, int) else show_tool_result(plain(found), output)


# -- one task


async def begin(
    client: Client,
    bar: Bar,
    host: HostServer,
    name: str,
    arguments: Mapping[str, Any],
    *,
    wait: bool,
    output: Output,
) -> CallToolResult | None:
    """Begin a task by a call of a tool, and print its id; with `wait` say the id on stderr, and return the result when
    it is there. A result that is there at once is returned, too."""

    def show(said: Any) -> None:
        bar.show(plain(said))

    handle = await client.extension(TasksClient).start(name, arguments, on_progress=show)
    if not handle.id:
        bar.pause()
        say("it has answered at once: there is no task", "dim")
        return await handle.result()
    remember(host.target, handle.id, name)
    if not wait:
        if output.json:
            output.write({"task": {"id": handle.id}})
        else:
            print(clean(handle.id), flush=True)
        return None
    bar.pause()
    say(f"task {handle.id}")
    try:
        return await handle.result(on_progress=show)
    except asyncio.CancelledError:  # Ctrl-C
        bar.pause()
        say(f"the task goes on: dragoman tasks SERVER {handle.id} --result", "yellow")
        raise


class _Task:
    """What is done with one task. `answers`: whether its questions are answered while it is watched."""

    def __init__(self, output: Output, *, answers: bool) -> None:
        self._output, self._answers = output, answers

    async def status(self, handle: TaskHandle, bar: Bar) -> int:
        """Show its state, and its questions."""
        status = await handle.status()
        bar.pause()
        if self._output.json:
            self._output.write({"task": plain(status)})
            return FINE
        out.print(_line(status), soft_wrap=True)
        for key, question in status.questions.items():
            params = question.get("params") if isinstance(question, dict) else None
            message = params.get("message") if isinstance(params, dict) else None
            show(f"asks ({key}): {message or 'a question'}", indent=2, console=err)
        return FINE

    async def cancel(self, handle: TaskHandle, bar: Bar) -> int:
        """Cancel it, and show its state."""
        await handle.cancel()
        return await self.status(handle, bar)

    async def result(self, handle: TaskHandle, bar: Bar) -> CallToolResult:
        """Return its result when it is there."""
        return await handle.result(on_progress=lambda said: bar.show(plain(said)))

    async def watch(self, handle: TaskHandle, bar: Bar) -> int:
        """Show each new state."""
        waiting = asyncio.ensure_future(handle.result()) if self._answers else None
        last = ""
        try:
            async for status in handle.follow():
                last = status.status
                if self._output.json:
                    self._output.write({"task": plain(status)})
                elif out.is_terminal and not status.ended:
                    bar.show(_progress(status))
                else:
                    bar.pause()
                    out.print(_line(status), soft_wrap=True)
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
        return FINE if last == "completed" else ANSWERED_WITH_ERROR


def _progress(status: TaskStatus) -> dict[str, Any]:
    far = {"progress": status.progress, "total": status.total}
    said = {name: value for name, value in far.items() if value is not None}
    return said | {"message": status.message or status.status}


def _line(status: TaskStatus) -> Text:
    """A state in one line: `working  1 of 4: loading`."""
    far = "" if status.progress is None or status.ended else f"{status.progress:g}"
    if far and status.total is not None:
        far += f" of {status.total:g}"
    words = ": ".join(part for part in (far, status.message) if part and part != status.status)
    return Text.assemble((clean(status.status), _STYLES.get(status.status, "")), f"  {clean(words)}" if words else "")


_STYLES: Final = {"completed": "green", "failed": "red", "cancelled": "yellow", "input_required": "bold"}


# -- lists


async def _list(client: Client, host: HostServer, output: Output) -> int:
    """Show the tasks that this user began at a server, and those that the server lists, each with its state."""
    ours = client.extension(TasksClient)
    known = {one.id: one for one in begun(host.target)}
    found: dict[str, TaskStatus] = {}
    try:
        found = {one.id: one for one in await ours.list()}
    except LocalError:  # the revision, or the server, lists none
        pass
    for id in [id for id in known if id not in found][:SHOWN]:
        try:
            found[id] = await ours.task(id).status()
        except InvalidParams:
            forget(host.target, id)
    rows = [(status, known.get(id)) for id, status in found.items()]
    if output.json:
        entries = [plain(status) | _about(one) for status, one in rows]
        output.write({"tasks": entries}, "tasks")
    else:
        if not rows:
            err.print(Text("you have no task at this server", "dim"))
        else:
            show_rows([(status.id, one.tool if one else "", _line(status)) for status, one in rows])
    return FINE


def _show_begun(found: Sequence[BegunTask], output: Output) -> int:
    if output.json:
        output.write({"tasks": [{"id": one.id, "server": one.server} | _about(one) for one in found]}, "tasks")
    elif not found:
        err.print(Text("you have begun no task: dragoman tool SERVER NAME --task does", "dim"))
    else:
        show_rows([(one.id, one.tool, _when(one.began), one.server) for one in found])
    return FINE


def _about(one: BegunTask | None) -> dict[str, Any]:
    return {} if one is None else {"tool": one.tool, "began": one.began}


def _when(began: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(began))
