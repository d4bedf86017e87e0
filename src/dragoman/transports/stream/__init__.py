"""Streams of bytes: TCP, TLS, Unix sockets, pipes, child processes."""
