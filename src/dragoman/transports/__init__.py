"""The wires that need no engine: memory, UDP, streams, HTTP, and what all brokers share."""
