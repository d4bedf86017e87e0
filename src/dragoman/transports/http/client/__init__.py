"""The client's side of HTTP."""
