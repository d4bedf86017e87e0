"""The help of a command: a sentence, an example, its usage and options, then more examples and notes. No boxes."""

from __future__ import annotations

import re
from typing import Any

from cyclopts import App
from cyclopts.help import HelpEntry, HelpPanel
from rich.console import Console, ConsoleOptions
from rich.text import Text

from .terminal import LEAST, out
from .wrapping import hanging

EXAMPLES = "Examples:"
"""How the examples of a command begin."""
MORE = "More examples:"
_COMMENT = re.compile(r"(?<=\S)( {2,})(\S.*)$")
_TITLES = {"Parameters": "Options"}
_WIDEST = 28
"""Columns of the names of options; what is said of a longer one begins below it."""


def show_command_help(app: App, arguments: list[str]) -> None:
    """Print the help of the command that the arguments name."""
    *_, command = app.parse_commands(arguments)[1]
    page = _Page(command.help_epilogue or "")
    command.help_formatter, command.help_epilogue = page, ""
    app.help_print(arguments)
    page.show_rest()


def first_example(app: App) -> str:
    """The first example of a command, without what is said about it; "" if it has none."""
    example, _ = _split(app.help_epilogue or "")
    return _COMMENT.sub("", example)


def _split(epilogue: str) -> tuple[str, str]:
    """The first example, and the rest of what stands below the options."""
    lines = epilogue.splitlines()
    if not lines or lines[0] != EXAMPLES:
        return "", epilogue
    end = next((at for at, line in enumerate(lines[2:], 3) if not line.endswith("\\")), len(lines))
    rest = lines[end:]
    if rest and rest[0]:
        rest = [MORE, *rest]
    return "\n".join(line.strip() if at == 0 else line for at, line in enumerate(lines[2:end])), "\n".join(rest).strip()


class _Page:
    """Prints the parts of the help, in the order in which the parser has them."""

    def __init__(self, epilogue: str) -> None:
        self._example, self._rest = _split(epilogue)
        self._usage: str = ""

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Keep the usage for what follows the example."""
        self._usage = str(usage or "").strip()

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """Print what the command does, an example, and the usage."""
        console.print(hanging(Text(_words(description, console)), console.width, 0), soft_wrap=True)
        if self._example:
            console.print()
            _show_example(f"  {self._example}", console)
        console.print()
        usage = Text.assemble(("Usage: ", "bold"), self._usage.removeprefix("Usage: "))
        console.print(hanging(usage, console.width, 7), soft_wrap=True)

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print a group of options, arguments or commands."""
        if not panel.entries:
            return
        console.print()
        title = str(panel.title)
        console.print(Text(_TITLES.get(title, title), "bold"))
        labels = [", ".join(entry.display_labels_with_metavar) for entry in panel.entries]
        width = min(max(map(len, labels)), _WIDEST)
        for label, entry in zip(labels, panel.entries, strict=True):
            _show_entry(label, _about(entry, console), width, console)

    def show_rest(self) -> None:
        """Print the other examples, and the notes."""
        if not self._rest:
            return
        out.print()
        for line in self._rest.splitlines():
            if line.startswith("  "):
                _show_example(line, out)
            elif line == MORE:
                out.print(Text(line.removesuffix(":"), "bold"))
            else:
                out.print(Text(line), soft_wrap=True)


def _show_entry(label: str, about: str, width: int, console: Console) -> None:
    hang = width + 4
    room = max(console.width - hang, LEAST)
    name = Text.assemble("  ", (label, "cyan"))
    if len(label) > width:
        console.print(name, soft_wrap=True)
        name = Text()
    name.append(" " * (hang - name.cell_len))
    said = hanging(Text(about), room, 0)
    console.print(name.append_text(Text("\n" + " " * hang).join(said.split("\n"))), soft_wrap=True)


def _about(entry: HelpEntry, console: Console) -> str:
    """What is said of an option: its help, and what its value may be."""
    words = [_words(entry.description, console)]
    if entry.choices:
        words.append(f"[{', '.join(entry.choices)}]")
    if entry.env_var:
        words.append(f"[{', '.join(entry.env_var)} in the environment]")
    if entry.default not in (None, "False"):
        words.append(f"[default: {entry.default}]")
    return " ".join(filter(None, words))


def _words(help: Any, console: Console) -> str:
    """What the parser has as help, in one line without styles."""
    if help is None:
        return ""
    wide = console.options.update(width=10_000)
    return " ".join("".join(part.text for part in console.render(help, wide)).split())


def _show_example(line: str, console: Console) -> None:
    """Print a line of an example, with what is said about it dimmed."""
    text = Text(line)
    if (comment := _COMMENT.search(line)) is not None and line.lstrip().startswith("dragoman"):
        text.stylize("dim", comment.start(2))
    console.print(text, soft_wrap=True)
