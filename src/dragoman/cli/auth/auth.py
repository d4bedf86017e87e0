"""`dragoman auth`: the commands below it."""

from __future__ import annotations

from cyclopts import App

app: App = App(
    name="auth",
    help_epilogue="""\
Examples:

  dragoman auth explain https://mcp.example.org/mcp
  dragoman auth server
  dragoman auth server --automatic alice --registration
  dragoman auth server http://127.0.0.1:9000 --resource http://127.0.0.1:8000/mcp --scope notes:read""",
)
app.command("dragoman.cli.auth.explain:app", name="explain", help="Explain how a client gets into a server.")
app.command("dragoman.cli.auth.server:app", name="server", help="Run an authorization server for trying and tests.")
