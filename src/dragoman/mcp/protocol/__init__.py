"""MCP as data: types, methods, revisions. Pure: it knows `jsonrpc` alone."""
