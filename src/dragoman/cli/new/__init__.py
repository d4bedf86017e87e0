"""`dragoman new`: makes a project, a JSON-RPC service or an MCP server, whose tests pass."""
