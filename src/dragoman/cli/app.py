"""The table of commands; runs a command and reports its failure."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from inspect import BoundArguments
from typing import Any

from cyclopts import App, CycloptsError, Group, MissingArgumentError, Parameter, UnusedCliTokensError

from .. import __version__
from ..jsonrpc.errors import LocalError
from . import exit_status
from .advice import find_misspelt_variables
from .arguments import unread
from .exchange import show_exchange
from .lines import LineHandler, lines
from .options import Output
from .terminal import colour, err, for_people, out, prepare, say, show_ending

ABOUT = "JSON-RPC 2.0 on every wire, in both directions; and MCP."

START = """\
Start here:

  dragoman demo                                      a calculator on every wire
  dragoman serve calculator:api                      serve your own functions
  dragoman call http://127.0.0.1:8000 subtract 42 23               call them

  dragoman serve weather:app                         serve an MCP server
  dragoman tools http://127.0.0.1:8000/mcp           list its tools
  dragoman tool http://127.0.0.1:8000/mcp forecast city=Beijing    call one

Every command has examples: dragoman call --help"""

COMMANDS = {
    "serve": ("serving.serve:app", "Serve functions on one wire or many."),
    "call": ("calls.call:app", "Call a method and print its result."),
    "notify": ("calls.call:notify_app", "Send a notification, which has no answer."),
    "methods": ("calls.methods:app", "List the methods of a peer."),
    "describe": ("probing.describe:app", "Show what a server offers, or one part of it in detail."),
    "listen": ("probing.listen:app", "Print what a server notifies about."),
    "check": ("calls.check:app", "Find every fault of the messages in a file."),
    "bench": ("probing.bench:app", "Measure calls per second and their latency."),
    "top": ("probing.top:app", "Show the calls in flight of a server, and end one."),
    "console": ("probing.console:app", "Open the page that shows what goes on in a server."),
    "doctor": ("doctor.doctor:app", "Find the first fault on the way to a server."),
    "tools": ("mcp.tools:app", "List the tools of an MCP server."),
    "tool": ("mcp.tools:tool_app", "Call a tool of an MCP server."),
    "tasks": ("mcp.tasks:app", "List your tasks at an MCP server, and follow one."),
    "events": ("mcp.events:app", "List the events of an MCP server, and follow some."),
    "resources": ("mcp.resources:app", "List the resources of an MCP server."),
    "read": ("mcp.resources:read_app", "Read a resource of an MCP server."),
    "prompts": ("mcp.prompts:app", "List the prompts of an MCP server."),
    "prompt": ("mcp.prompts:prompt_app", "Get a prompt of an MCP server."),
    "complete": ("mcp.complete:app", "Ask an MCP server to complete an argument."),
    "discover": ("mcp.discover:app", "Show name, revisions and capabilities of an MCP server."),
    "ping": ("mcp.discover:ping_app", "See whether an MCP server answers."),
    "login": ("auth.login:app", "Log in at a protected server."),
    "logout": ("auth.login:logout_app", "Log out, and revoke the tokens."),
    "whoami": ("auth.login:whoami_app", "Show as whom you are logged in."),
    "tokens": ("auth.login:tokens_app", "List your logins."),
    "auth": ("auth.auth:app", "Explain and try authorization."),
    "new": ("new.new:app", "Make a project: a service, or an MCP server."),
    "demo": ("demo.demo:app", "See a calculator answer on every wire."),
    "completion": ("completion:app", "Print a completion script for your shell."),
}
"""Where each command's App is (imported when the command runs), and its summary."""

GROUPS = {
    "Serve and call": "serve call notify methods",
    "MCP servers": "tools tool tasks events resources read prompts prompt complete discover ping",
    "Authorization": "login logout whoami tokens auth",
    "Look closer": "describe listen check bench top console doctor",
    "Begin": "new demo completion",
}
"""How the help sorts the commands."""

OF_MCP = (
    *("tools", "tool", "tasks", "events", "resources", "read", "prompts", "prompt", "complete", "discover", "ping"),
    *("describe", "listen"),
)
"""Commands that take a command to start after `--`."""


def build() -> App:
    """The command line."""
    app = App(
        name="dragoman",
        help=ABOUT,
        help_epilogue=START,
        help_format="plaintext",
        version=f"dragoman {__version__}",
        version_flags=["--version", "-V"],
        default_parameter=Parameter(negative=""),
        console=out,
        error_console=err,
    )
    groups = {
        name: group
        for at, (title, names) in enumerate(GROUPS.items())
        for group in [Group(title, sort_key=at)]
        for name in names.split()
    }
    for order, (name, (module, summary)) in enumerate(COMMANDS.items()):
        app.command(f"dragoman.cli.{module}", name=name, help=summary, sort_key=order, group=groups[name])
    app["--help"].group = app["--version"].group = Group("Options", sort_key=len(GROUPS))
    app.command(
        "dragoman.cli.completion:install",
        name="--install-completion",
        help="Install completion for the shell you are in.",
        group=groups["completion"],
        sort_key=90,
    )
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit status. Raises SystemExit and KeyboardInterrupt only."""
    prepare()
    colour(_colour(arguments))
    app = build()
    if arguments and arguments[0] in OF_MCP:
        arguments = _child_as_option(arguments)
    try:
        if arguments and arguments[0] == "serve":
            app.config = _other_sources(arguments)
        command, bound, _ = app.parse_args(arguments, print_error=False, exit_on_error=False)
    except CycloptsError as fault:
        return _report_misuse(fault, arguments)
    except (exit_status.Usage, LocalError, ImportError) as fault:  # options that exclude each other, a missing extra
        return _report_failure(fault, Output(json=_wants_json(arguments)))
    output = _output(bound)
    colour(output.color)  # it may stand in the file of `serve`
    if output.output == "table":
        for_people()
    show_exchange(output.verbose)
    _log(output.verbose)
    for sentence in (
        find_misspelt_variables() if "stdio:" not in arguments else ()
    ):  # the command that started this one has said it
        say(sentence, "yellow")
    try:
        try:
            status = command(*bound.args, **bound.kwargs)
        finally:
            lines.flush()  # the following output is written at once
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return exit_status.PIPE_CLOSED
    except SystemExit as end:  # rich raises it when the pipe is closed
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return exit_status.PIPE_CLOSED
    except Exception as fault:
        return _report_failure(fault, output)
    return status if isinstance(status, int) else exit_status.FINE


def _other_sources(arguments: Sequence[str]) -> Sequence[Callable[..., Any]]:
    """Where options of `serve` come from besides the command line: the environment and the file of `--config`."""
    from .serving.settings import sources  # noqa: PLC0415  (start-up: for this command alone)

    return sources(arguments)


def _colour(arguments: Sequence[str]) -> str:
    return next((one for one in unread("--color", arguments) if one in ("always", "never")), "auto")


def _child_as_option(arguments: Sequence[str]) -> Sequence[str]:
    """The command line with the arguments after `--`, a command to start, as one option."""
    words = list(arguments)
    if "--" not in words:
        return words
    at = words.index("--")
    return [*words[:at], "--child", shlex.join(words[at + 1 :])]


def _report_misuse(fault: CycloptsError, arguments: Sequence[str]) -> int:
    """The command line itself is wrong."""
    name = arguments[0] if arguments and arguments[0] in COMMANDS else ""
    where = f"dragoman {name} --help" if name else "dragoman --help"
    text = f"{_unknown_command(arguments[0]) if _is_unknown_command(arguments) else _sentence(fault, name)} ({where} shows how)"
    return _report_ending(exit_status.Ending(exit_status.WRONG_USAGE, "usage", text), _wants_json(arguments))


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether output is JSON, where the command line is not read."""
    return "--json" in arguments or any(one.endswith("json") for one in unread("--output", arguments))


def _sentence(fault: CycloptsError, name: str) -> str:
    """What cyclopts says, in one line without the full stop."""
    if isinstance(fault, UnusedCliTokensError) and fault.unused_tokens:
        return f"{fault.unused_tokens[0]!r} is too much for {f'dragoman {name}'.strip()}"
    if isinstance(fault, MissingArgumentError) and fault.argument is not None and fault.keyword is not None:
        numeric = fault.argument.hint in (int, float, int | None, float | None)
        return (
            f"{fault.keyword} needs {'a number' if numeric else 'a value'}, as in {fault.keyword} {_example(numeric)}"
        )
    return str(fault).removesuffix(".")


def _example(numeric: bool) -> str:
    return "3" if numeric else "VALUE"


def _is_unknown_command(arguments: Sequence[str]) -> bool:
    return bool(arguments) and not arguments[0].startswith("-") and arguments[0] not in COMMANDS


def _unknown_command(name: str) -> str:
    """The message for an unknown command; cyclopts would import every command for it."""
    return (
        f"there is no command {name!r}; {exit_status.suggest_name(name, COMMANDS, 'there are ' + ', '.join(COMMANDS))}"
    )


def _report_failure(fault: Exception, output: Output) -> int:
    """A command raised: print one sentence, with --verbose the traceback too."""
    ending = exit_status.ending_of(fault)
    if output.verbose:
        traceback.print_exception(fault)
    elif ending.status == exit_status.OUR_FAULT:
        ending = exit_status.Ending(
            ending.status, ending.kind, f"a fault of dragoman itself: {ending.text} (--verbose shows where)"
        )
    return _report_ending(ending, output.json)


def _report_ending(ending: exit_status.Ending, json: bool) -> int:
    """Tell how the command ends, if that can be written; its exit status."""
    unwritten = ending.status == exit_status.NOT_WRITTEN
    try:
        show_ending(ending, json and not unwritten)
    except (OSError, SystemExit):  # no one reads it any more, or the disk is full; rich makes it a SystemExit
        unwritten = True
    if unwritten:
        _forget_output()
    return ending.status


def _output(bound: BoundArguments) -> Output:
    return next((value for value in bound.arguments.values() if isinstance(value, Output)), Output())


def _forget_output() -> None:
    """The output cannot be written any more: keep Python's flush at exit from raising the same error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _log(verbose: bool) -> None:
    """The library's log goes to stderr: warnings and worse, everything with --verbose."""
    handler = LineHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    if verbose:
        logging.getLogger("dragoman").setLevel(logging.DEBUG)
