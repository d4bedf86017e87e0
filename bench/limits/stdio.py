"""The limit of stdio with Content-Length framing: a blocking loop that reads a header, a body, and writes the
answer."""

from __future__ import annotations

import sys

from bench.limits.rpc import answer


def main() -> None:
    """Until end of file."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while header := source.readline():
        source.readline()
        out = answer(source.read(int(header[16:])))
        sink.write(b"Content-Length: %d\r\n\r\n%b" % (len(out), out))
        sink.flush()


if __name__ == "__main__":
    main()
