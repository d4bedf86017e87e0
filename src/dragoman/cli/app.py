"""The table of commands; runs a command and reports its failure."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from inspect import BoundArguments

from cyclopts import App, CycloptsError, Parameter

from .. import __version__
from . import ends
from .lines import Handler, lines
from .options import Output
from .terminal import err, out, prepare, show_ending

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
    "call": ("call:app", "Call a method and print its result."),
    "notify": ("call:notify_app", "Send a notification, which has no answer."),
    "methods": ("methods:app", "List the methods of a peer."),
    "check": ("check:app", "Find every fault of the messages in a file."),
    "bench": ("bench:app", "Measure calls per second and their latency."),
    "tools": ("tools:app", "List the tools of an MCP server."),
    "tool": ("tools:tool_app", "Call a tool of an MCP server."),
    "resources": ("resources:app", "List the resources of an MCP server."),
    "read": ("resources:read_app", "Read a resource of an MCP server."),
    "prompts": ("prompts:app", "List the prompts of an MCP server."),
    "prompt": ("prompts:prompt_app", "Get a prompt of an MCP server."),
    "discover": ("discover:app", "Show name, revisions and capabilities of an MCP server."),
    "ping": ("discover:ping_app", "See whether an MCP server answers."),
    "demo": ("demo.demo:app", "See a calculator answer on every wire."),
    "completion": ("completion:app", "Print a completion script for your shell."),
}
"""Where each command's App is, imported when it is asked for."""

OF_MCP = ("tools", "tool", "resources", "read", "prompts", "prompt", "discover", "ping")
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
    for order, (name, (place, summary)) in enumerate(COMMANDS.items()):
        app.command(f"dragoman.cli.{place}", name=name, help=summary, sort_key=order)
    app.register_install_completion_command(help="Install completion for the shell you are in.", sort_key=90)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit status. Raises SystemExit only."""
    prepare()
    app = build()
    if arguments and arguments[0] in OF_MCP:
        arguments = _child_as_option(arguments)
    try:
        command, bound, _ = app.parse_args(arguments, print_error=False, exit_on_error=False)
    except CycloptsError as fault:
        return _misread(fault, arguments)
    output = _output(bound)
    _log(output.verbose)
    try:
        try:
            status = command(*bound.args, **bound.kwargs)
        finally:
            lines.flush()  # the following output is written at once
        sys.stdout.flush()
    except KeyboardInterrupt:
        return ends.INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return ends.PIPE_CLOSED
    except SystemExit as end:  # rich raises it when the pipe is closed
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return ends.PIPE_CLOSED
    except Exception as fault:
        return _failed(fault, output)
    return status if isinstance(status, int) else ends.FINE


def _child_as_option(arguments: Sequence[str]) -> Sequence[str]:
    """The command line with the arguments after `--`, a command to start, as one option."""
    words = list(arguments)
    if "--" not in words:
        return words
    at = words.index("--")
    return [*words[:at], "--child", shlex.join(words[at + 1 :])]


def _misread(fault: CycloptsError, arguments: Sequence[str]) -> int:
    """The command line itself is wrong."""
    name = arguments[0] if arguments and arguments[0] in COMMANDS else ""
    where = f"dragoman {name} --help" if name else "dragoman --help"
    text = f"{_unknown(arguments[0]) if _is_unknown(arguments) else fault} ({where} shows how)"
    show_ending(ends.Ending(ends.WRONG_USAGE, "usage", text), "--json" in arguments)
    return ends.WRONG_USAGE


def _is_unknown(arguments: Sequence[str]) -> bool:
    return bool(arguments) and not arguments[0].startswith("-") and arguments[0] not in COMMANDS


def _unknown(name: str) -> str:
    """The message for an unknown command; cyclopts would import every command for it."""
    return f"there is no command {name!r}; {ends.meant(name, COMMANDS, 'there are ' + ', '.join(COMMANDS))}"


def _failed(fault: Exception, output: Output) -> int:
    """A command raised: print one sentence, with --verbose the traceback too."""
    ending = ends.ending_of(fault)
    if output.verbose:
        traceback.print_exception(fault)
    elif ending.status == ends.OUR_FAULT:
        ending = ends.Ending(
            ending.status, ending.kind, f"a fault of dragoman itself: {ending.text} (--verbose shows where)"
        )
    with contextlib.suppress(BrokenPipeError):
        show_ending(ending, output.json)
    return ending.status


def _output(bound: BoundArguments) -> Output:
    return next((value for value in bound.arguments.values() if isinstance(value, Output)), Output())


def _forget_stdout() -> None:
    """Nobody reads the output any more: keep Python's flush at exit from raising the same error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _log(verbose: bool) -> None:
    """The library's log goes to stderr: warnings and worse, everything with --verbose."""
    handler = Handler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    if verbose:
        logging.getLogger("dragoman").setLevel(logging.DEBUG)
