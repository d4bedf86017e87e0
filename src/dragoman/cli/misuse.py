"""Says in the command's own words what is wrong with a command line, and shows an example of one that is right."""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import App, CoercionError, CycloptsError, MissingArgumentError, UnusedCliTokensError

from .commands import COMMANDS
from .exit_status import WRONG_USAGE, Ending, suggest_name
from .help import first_example

LISTED = "dragoman --help lists them"


def ending_of_misuse(fault: CycloptsError, app: App, arguments: Sequence[str]) -> Ending:
    """The ending for a command line that the parser refuses."""
    first = arguments[0] if arguments else ""
    if first not in COMMANDS:
        return ending_of_unknown(first)
    names, apps, _ = app.parse_commands(arguments)
    name = " ".join(names)
    missing = isinstance(fault, MissingArgumentError) and fault.keyword is None
    text = f"{_sentence(fault, name, apps[-1])} (dragoman {name} --help shows how)"
    return Ending(WRONG_USAGE, "usage", text, advice=example_of(app, arguments) if missing else ())


def ending_of_unknown(word: str) -> Ending:
    """The ending for a word that is no command; the parser would import every command for it."""
    if word.startswith("-"):
        return Ending(WRONG_USAGE, "usage", f"there is no option {word!r} before a command ({LISTED})")
    there = suggest_name(word, COMMANDS, "")
    return Ending(WRONG_USAGE, "usage", f"there is no command {word!r}{there and f'; {there}'} ({LISTED})")


def example_of(app: App, arguments: Sequence[str]) -> tuple[str, ...]:
    """The advice with an example of the command that was called; () if it has none."""
    example = first_example(app.parse_commands(arguments)[1][-1])
    return (f"for example: {example}",) if example else ()


def _sentence(fault: CycloptsError, name: str, command: App) -> str:
    """What is wrong, in one line without the full stop."""
    argument = fault.argument
    if isinstance(fault, UnusedCliTokensError) and fault.unused_tokens:
        return f"{fault.unused_tokens[0]!r} is too much for dragoman {name}"
    if isinstance(fault, MissingArgumentError) and argument is not None:
        if fault.keyword is None:
            return f"{argument.name.lstrip('-')} is missing{_meaning(command, argument.name)}"
        kind, example = (
            ("a number", "3") if argument.hint in (int, float, int | None, float | None) else ("a value", "")
        )
        return f"{fault.keyword} needs {kind}, as in {fault.keyword} {example or 'VALUE'}"
    if isinstance(fault, CoercionError) and fault.token is not None and fault.target_type in (int, float):
        kind = "a whole number" if fault.target_type is int else "a number"
        option = fault.token.keyword
        where = option or (argument.name if argument is not None else "")
        return f"{where} {fault.token.value!r}: write {kind}, as in {f'{option} 3' if option else '3'}"
    return str(fault).removesuffix(".")


def _meaning(command: App, name: str) -> str:
    """What the help says of an argument, as a part of a sentence: `: the method's name`."""
    said = next(
        (one.parameter.help for one in command.assemble_argument_collection(parse_docstring=True) if one.name == name),
        None,
    )
    words = " ".join((said or "").split()).removesuffix(".")
    return words and f": {words[:1].lower()}{words[1:]}"
