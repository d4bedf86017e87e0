"""FastMCP's documentation, section by section, and what is here in its place: docs/mcp/moving.md, by running both."""
