"""Asks a server's questions (elicitation) at the terminal.

Rules, from the page client/elicitation of the specification:

- The server that asks is always named; every question can be declined and cancelled.
- "allow users to review and modify their responses before sending": a form is shown once more before it is sent.
- "clearly display the target domain/host and gather user consent before navigation": a URL is shown,
  never opened.
- Where stdin or stderr is not a terminal the command does not wait: `--answer NAME=VALUE` answers forms, and every
  other question is declined with a message.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import UNSET, Struct
from rich.text import Text

from ...mcp.protocol.params import ElicitRequestParams, ElicitResult
from ...system.terminal import typed_line
from ..exit_status import Usage
from ..fields import Misfit, choices_of, kinds_of, resolve_schema, value_of
from ..terminal import clean, compact, err

Action = Literal["accept", "decline", "cancel"]
Ask = Callable[[str], Awaitable[str | None]]
"""Shows a prompt and returns the line that was typed; None at the end of the input."""


class QuestionReply(Struct, frozen=True):
    """The user's answer to a question."""

    action: Action
    content: dict[str, Any] | None = None


DECLINED, CANCELLED = QuestionReply("decline"), QuestionReply("cancel")


class _Out(Exception):
    """The user ends the question early: `reply` is a decline or a cancel."""

    def __init__(self, reply: QuestionReply) -> None:
        self.reply = reply


def has_terminal() -> bool:
    """Whether there is a terminal to ask the user at."""
    return sys.stdin.isatty() and err.is_terminal


async def read_line(prompt: str) -> str | None:
    """A line from the terminal; the loop goes on meanwhile. None at the end of the input."""
    err.print(Text(prompt, style="bold"), end="", soft_wrap=True)
    line = await typed_line()
    return line.decode(errors="replace").rstrip("\r\n") if line else None


class Asker:
    """Answers the questions of one server, one after another.

    `who`: the server's name. `given`: answers given on the command line, by the name of the field. `pause`: clears the
    progress line. `ask`: None without a terminal.
    """

    def __init__(self, who: str, given: Sequence[str], pause: Callable[[], None], ask: Ask | None) -> None:
        self.who: str = clean(who)
        self.given: dict[str, str] = answers(given)
        self.pause = pause
        self.ask = ask
        self._turn = asyncio.Lock()

    async def reply(self, params: ElicitRequestParams) -> ElicitResult:
        """The answer to a question, as the protocol has it."""
        if params.url is not UNSET:
            reply = await self.url(params.message, params.url)
        else:
            reply = await self.form(params.message, params.requested_schema or {})
        return ElicitResult(action=reply.action, content=UNSET if reply.content is None else reply.content)

    async def form(self, message: str, schema: Mapping[str, Any]) -> QuestionReply:
        """Fill in a form, field by field."""
        async with self._turn:
            self.pause()
            _say(self.who, "asks", message)
            known = self._known(schema)
            if self.ask is None:
                return self._without(schema, known)
            try:
                return await self._filled(self.ask, schema, known)
            except _Out as out:
                return out.reply

    async def url(self, message: str, url: str) -> QuestionReply:
        """Consent to open a URL, which is shown and never opened."""
        async with self._turn:
            self.pause()
            _say(self.who, "wants you to open a page", message)
            err.print(Text.assemble("  ", (clean(url), "cyan")), soft_wrap=True)
            err.print(Text.assemble("  at the host ", (clean(_host(url)), "bold")), soft_wrap=True)
            if doubt := _find_doubt(url):
                err.print(Text(f"  beware: {doubt}", "yellow"), soft_wrap=True)
            if self.ask is None:
                return _decline()
            try:
                action = await _ask_decision(self.ask, "  have you opened it, or will you?", may_edit=False)
            except _Out as out:
                return out.reply
            return QuestionReply("cancel" if action == "edit" else action)

    def _known(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The given answers that the form asks for."""
        known = {}
        for name, field in _fields(schema).items():
            if name in self.given:
                try:
                    known[name] = _value(self.given[name], field)
                except Misfit as fault:
                    raise Usage(f"--answer {name}: {fault}, not {self.given[name]!r}") from None
        return known

    def _without(self, schema: Mapping[str, Any], known: dict[str, Any]) -> QuestionReply:
        """The reply without a terminal: the given answers and the defaults, if they suffice."""
        fields = _fields(schema)
        content = {name: field["default"] for name, field in fields.items() if "default" in field} | known
        missing = [name for name in _required(schema) if name not in content]
        if not known or missing:
            return _decline((missing or list(fields)) if self.given else [])
        _review(content)
        return QuestionReply("accept", content)

    async def _filled(self, ask: Ask, schema: Mapping[str, Any], known: dict[str, Any]) -> QuestionReply:
        """Ask for every field that is not known, then show all of them once more."""
        fields, required = _fields(schema), set(_required(schema))
        content, waiting = dict(known), [name for name in fields if name not in known]
        if waiting:
            err.print(Text("  Enter takes the value in [brackets]; !d declines, !c cancels.", "dim"))
        while True:
            for name in waiting:
                default = content.pop(name, fields[name].get("default", UNSET))
                value = await _ask_field(ask, name, fields[name], name in required, default)
                if value is not UNSET:
                    content[name] = value
            _review(content)
            action = await _ask_decision(ask, "  send this?", may_edit=bool(fields))
            if action != "edit":
                return QuestionReply(action, content if action == "accept" else None)
            waiting = list(fields)


def _host(url: str) -> str:
    """The host to which a URL leads, ignoring user and password."""
    try:
        return urlsplit(url).hostname or "(none)"
    except ValueError:
        return "(none: it is not a URL)"


def _find_doubt(url: str) -> str:
    """What is suspicious about a URL: "SHOULD have warnings for ambiguous/suspicious URIs (i.e., containing Punycode)"
    (client/elicitation)."""
    host = _host(url)
    if not host.isascii() or any(part.startswith("xn--") for part in host.split(".")):
        return "the host's name has letters of other scripts, which may look like another name"
    if "@" in url.partition("://")[2].partition("/")[0]:
        return "the text before the @ is not the host"
    return ""


def answers(words: Sequence[str]) -> dict[str, str]:
    """The values of `--answer NAME=VALUE` by name. Raises Usage."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise Usage(f"--answer {word!r}: write NAME=VALUE")
        found[name] = value
    return found


def _say(who: str, what: str, message: str) -> None:
    err.print(Text.assemble((who, "bold cyan"), f" {what}: ", (clean(message), "bold")), soft_wrap=True)


def _decline(missing: Sequence[str] = ()) -> QuestionReply:
    """Decline, because there is no terminal to ask at."""
    why = f"--answer lacks {', '.join(missing)}" if missing else "there is no terminal to ask at"
    err.print(Text(f"  declined: {clean(why)}", "yellow"), soft_wrap=True)
    return DECLINED


def _fields(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: resolve_schema(field, schema) for name, field in properties.items()}


def _required(schema: Mapping[str, Any]) -> list[str]:
    """The fields that the server wants filled in; what it says otherwise than as a list of names counts for nothing."""
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _review(content: Mapping[str, Any]) -> None:
    for name, value in content.items():
        err.print(Text.assemble("  ", (clean(name), "bold"), " = ", clean(compact(value))), soft_wrap=True)


async def _ask_decision(ask: Ask, question: str, *, may_edit: bool) -> Action | Literal["edit"]:
    """The user's decision about the whole form or the URL."""
    edit = "[e]dit, " if may_edit else ""
    while True:
        word = _word(await ask(f"{question} [a]ccept, {edit}[d]ecline, [c]ancel: ")).lower()
        for action, words in DECISIONS.items():
            if word in words and (may_edit or action != "edit"):
                return action


DECISIONS: Mapping[Action | Literal["edit"], tuple[str, ...]] = {
    "accept": ("a", "accept", "y", "yes"),
    "edit": ("e", "edit"),
    "decline": ("d", "decline", "n", "no"),
    "cancel": ("c", "cancel"),
}


async def _ask_field(ask: Ask, name: str, field: Mapping[str, Any], required: bool, default: Any) -> Any:
    """The value of one field; UNSET where it is left out."""
    _describe(name, field, required)
    shown = "" if default is UNSET else f" [{clean(_shown(field, default))}]"
    while True:
        word = _word(await ask(f"  {clean(name)}{shown}: "))
        if not word:
            if default is not UNSET or not required:
                return default
            err.print(Text("    it is required", "yellow"))
            continue
        try:
            return _value(word, field)
        except Misfit as fault:
            err.print(Text(f"    {clean(str(fault))}", "yellow"), soft_wrap=True)


def _word(line: str | None) -> str:
    """What was typed; the end of the input cancels."""
    if line is None:
        raise _Out(CANCELLED)
    word = line.strip()
    if word in ("!d", "!c"):
        raise _Out(DECLINED if word == "!d" else CANCELLED)
    return word


def _describe(name: str, field: Mapping[str, Any], required: bool) -> None:
    """A field in one line: its name, its description, and what values it may have."""
    title = field.get("title", "")
    about = [
        text
        for text in (title if title != name else "", field.get("description", ""))
        if isinstance(text, str) and text
    ]
    choices = choices_of(field) or choices_of(_items(field))
    kind = " | ".join(choices) if choices else str(field.get("format") or " or ".join(sorted(kinds_of(field))) or "any")
    if kinds_of(field) == {"array"}:
        kind = f"any of {kind}, with commas"
    bounds = [f"{word} {field[key]}" for key, word in BOUNDS.items() if key in field]
    words = ", ".join([kind, *bounds, *([] if required else ["may be left out"])])
    err.print(
        Text.assemble("  ", (clean(": ".join(about)), ""), (f"{'  ' if about else ''}({clean(words)})", "dim")),
        soft_wrap=True,
    )


BOUNDS = {
    "minimum": "from",
    "maximum": "to",
    "minLength": "characters from",
    "maxLength": "characters to",
    "minItems": "at least",
    "maxItems": "at most",
}


def _items(field: Mapping[str, Any]) -> dict[str, Any]:
    items = field.get("items")
    return items if isinstance(items, dict) else {}


def _shown(field: Mapping[str, Any], value: Any) -> str:
    """A value in the form in which it may be typed."""
    if isinstance(value, list):
        return ",".join(_shown(_items(field), one) for one in value)
    titles = choices_of(field) or {}
    return next(
        (title for title, one in titles.items() if one == value), value if isinstance(value, str) else compact(value)
    )


def _value(word: str, field: Mapping[str, Any]) -> Any:
    """What was typed as a value of the field. Raises Misfit."""
    value = value_of(word, field)
    size, low, high, what = value if isinstance(value, (int, float)) else 0, "minimum", "maximum", "it"
    if isinstance(value, str):
        size, low, high, what = len(value), "minLength", "maxLength", "its length"
    elif isinstance(value, list):
        size, low, high, what = len(value), "minItems", "maxItems", "their number"
    least, most = field.get(low), field.get(high)
    if (isinstance(least, (int, float)) and size < least) or (isinstance(most, (int, float)) and size > most):
        raise Misfit(f"{what} must be from {'any' if least is None else least} to {'any' if most is None else most}")
    return value
