"""MCP's server: what users register with it, how clients list it, and how it is called."""
