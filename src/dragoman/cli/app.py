"""Runs a command and reports its failure."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from inspect import BoundArguments
from typing import Any

from cyclopts import App, CycloptsError, Parameter

from .. import __version__
from ..jsonrpc.errors import LocalError
from ..system.files import nobody_reads
from ..system.words import join_command
from . import exit_status
from .advice import find_misspelt_variables
from .arguments import unread
from .commands import COMMANDS, show_help
from .exchange import show_exchange
from .lines import LineHandler, lines
from .options import Output
from .terminal import colour, err, for_people, out, prepare, say, show_ending

OF_MCP = (
    *("tools", "tool", "tasks", "events", "resources", "read", "prompts", "prompt", "complete", "discover", "ping"),
    *("describe", "listen"),
)
"""Commands that take a command to start after `--`."""


def build() -> App:
    """The command line."""
    app = App(
        name="dragoman",
        help_format="plaintext",
        version=f"dragoman {__version__}",
        version_flags=["--version", "-V"],
        default_parameter=Parameter(negative=""),
        console=out,
        error_console=err,
    )
    for order, (name, (module, summary)) in enumerate(COMMANDS.items()):
        app.command(f"dragoman.cli.{module}", name=name, help=summary, sort_key=order)
    app.command(
        "dragoman.cli.completion:install",
        name="--install-completion",
        help="Install completion for the shell you are in.",
        sort_key=90,
    )
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit status. Raises SystemExit and KeyboardInterrupt only."""
    prepare()
    colour(_colour(arguments))
    app = build()
    if arguments and arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    if arguments and arguments[0] in OF_MCP:
        arguments = _child_as_option(arguments)
    try:
        if arguments and arguments[0] == "serve":
            app.config = _other_sources(arguments)
        command, bound, _ = app.parse_args(arguments, print_error=False, exit_on_error=False)
    except CycloptsError as fault:
        return _report_misuse(fault, app, arguments)
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
            if command.__name__ == "help_print":
                status = _show_help(app, arguments)
            else:
                status = command(*bound.args, **bound.kwargs)
        finally:
            lines.flush()  # the following output is written at once
        sys.stdout.flush()
    except SystemExit as end:  # rich raises it when the pipe is closed
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return exit_status.PIPE_CLOSED
    except Exception as fault:
        if isinstance(fault, OSError) and nobody_reads(fault):
            _forget_output()
            return exit_status.PIPE_CLOSED
        if isinstance(fault, exit_status.MissingArgument):
            _add_example(fault, app, arguments)
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
    return [*words[:at], "--child", join_command(words[at + 1 :])]


def _show_help(app: App, arguments: Sequence[str]) -> int:
    """Print the help of a command, or the first page."""
    words = [word for word in arguments if word not in ("--help", "-h")]
    if words and words[0] in COMMANDS:
        from .help import show_command_help  # noqa: PLC0415  (start-up: for help alone)

        show_command_help(app, words)
    elif words and not words[0].startswith("-"):
        from .misuse import ending_of_unknown  # noqa: PLC0415  (start-up: for a fault)

        return _report_ending(ending_of_unknown(words[0]), _wants_json(arguments))
    else:
        show_help()
    return exit_status.FINE


def _report_misuse(fault: CycloptsError, app: App, arguments: Sequence[str]) -> int:
    """The command line itself is wrong."""
    from .misuse import ending_of_misuse  # noqa: PLC0415  (start-up: for a fault)

    return _report_ending(ending_of_misuse(fault, app, arguments), _wants_json(arguments))


def _add_example(fault: Exception, app: App, arguments: Sequence[str]) -> None:
    """Note on the error of a missing argument how the command is called."""
    from .misuse import example_of  # noqa: PLC0415  (start-up: for a fault)

    for one in example_of(app, arguments):
        fault.add_note(one)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether output is JSON, where the command line is not read."""
    return "--json" in arguments or any(one.endswith("json") for one in unread("--output", arguments))


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
