"""The client's side of Streamable HTTP."""
