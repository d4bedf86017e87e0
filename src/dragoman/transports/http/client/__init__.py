"""The client of HTTP."""
