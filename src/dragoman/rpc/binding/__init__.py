"""A function's signature, compiled to the decoder and the schema of its params."""
