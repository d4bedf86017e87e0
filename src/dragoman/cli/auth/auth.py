"""`dragoman auth`: the commands below it."""

from __future__ import annotations

from cyclopts import App

from ..commands import COMMANDS, SHORT

app: App = App(
    name="auth",
    help_epilogue="""\
Examples:

  dragoman auth login https://mcp.example.org/mcp
  dragoman auth whoami https://mcp.example.org/mcp
  dragoman auth tokens
  dragoman auth logout https://mcp.example.org/mcp
  dragoman auth explain https://mcp.example.org/mcp
  dragoman auth server --automatic alice --registration
  dragoman auth server http://127.0.0.1:9000 --scope notes:read \\
      --resource http://127.0.0.1:8000/mcp

login, logout, whoami and tokens are commands without auth, too:
dragoman login https://mcp.example.org/mcp""",
)
for _at, _name in enumerate(SHORT):
    _module, _summary = COMMANDS[_name]
    app.command(f"dragoman.cli.{_module}", name=_name, help=_summary, sort_key=_at)
for _name, _module, _summary in (
    ("explain", "explain", "Explain how a client gets into a server."),
    ("server", "server", "Run an authorization server for trying and tests."),
):
    app.command(f"dragoman.cli.auth.{_module}:app", name=_name, help=_summary, sort_key=10)
