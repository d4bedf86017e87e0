"""`dragoman bench`: commands that measure and examine a far end, JSON-RPC or MCP."""
