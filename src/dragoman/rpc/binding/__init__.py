"""Compiles a function's signature to a decoder of its params, their JSON Schema and a writer of its result."""
