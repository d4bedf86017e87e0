"""The server: what is registered, listed and called."""
