"""MCP over HTTP: the endpoint, both eras of it, and the transport of the oldest revision."""
