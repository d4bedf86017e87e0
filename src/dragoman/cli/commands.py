"""The table of commands, and the first page of the help, which needs nothing else."""

from __future__ import annotations

import os
import sys
from typing import Final

COMMANDS: Final = {
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
    "auth": ("auth.auth:app", "Log in and out, see your logins; explain and try authorization."),
    "new": ("new.new:app", "Make a project: a service, or an MCP server."),
    "demo": ("demo.demo:app", "See a calculator answer on every wire."),
    "completion": ("completion:app", "Print a completion script for your shell."),
}
"""Where each command's App is (imported when the command runs), and its summary."""

SHORT: Final = ("login", "logout", "whoami", "tokens")
"""Commands of `auth` that may be called without it, too."""

FIRST_STEPS: Final = (
    ("dragoman demo", "see it work on every wire"),
    ("dragoman new mcp notes", "begin a project"),
    ("dragoman serve calculator.py", "serve your own functions"),
    ("dragoman call http://127.0.0.1:8000 subtract 42 23", "call one of them"),
    ("dragoman tool weather.py forecast city=Beijing", "call a tool of MCP"),
)
"""What people do first, and what it does."""

FAMILIES: Final = {
    "Serve": (("new", ""), ("serve", ""), ("demo", "")),
    "Call": (
        ("call", ""),
        ("notify", ""),
        ("methods", ""),
        ("bench", ""),
    ),
    "MCP": (
        ("tools, tool", "List the tools of an MCP server, call one."),
        ("resources, read", "List its resources, read one."),
        ("prompts, prompt", "List its prompts, get one."),
        ("events", "List its events, follow some."),
        ("tasks", "List your tasks there, follow one."),
        ("complete", "Ask it to complete an argument."),
        ("discover, ping", "Show its name and capabilities, see whether it answers."),
    ),
    "Authorization": (("auth", "login, logout, whoami, tokens, explain, server."),),
    "Look inside": (
        ("describe", ""),
        ("doctor", ""),
        ("listen", ""),
        ("top, console", "Show what goes on in a server, at the terminal or as a page."),
        ("check", ""),
    ),
}
"""How the help sorts the commands: rows of names, and their summary where it is not that of the command."""

WIDEST: Final = 18
"""Columns of the names."""


def show_help() -> None:
    """Print the first page of the help on stdout."""
    bold, dim, cyan, plain = ("\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m") if _has_colour() else ("",) * 4
    lines = ["Serve and call JSON-RPC 2.0 and MCP, on every wire and in both directions.", ""]
    lines += [f"  {example:<52}{dim}{words}{plain}" for example, words in FIRST_STEPS]
    for title, rows in FAMILIES.items():
        lines += ["", f"{bold}{title}{plain}"]
        lines += [
            f"  {cyan}{names:<{WIDEST}}{plain}{(summary or COMMANDS[names][1]).removesuffix('.')}"
            for names, summary in rows
        ]
    lines += [
        "",
        f"{bold}dragoman COMMAND --help{plain} shows examples and options of a command.",
        f"Options: {bold}--version{plain}; {bold}--install-completion{plain}, for your shell (or {bold}completion bash{plain}).",
    ]
    print("\n".join(lines))


def _has_colour() -> bool:
    """Whether styles are written to stdout."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb")
