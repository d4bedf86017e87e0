"""MCP's endpoint on an HTTP server."""
