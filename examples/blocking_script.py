"""No async at all: start a server as a child process and call it. The same names as the asynchronous face.

python examples/blocking_script.py
"""

import sys
from pathlib import Path
from typing import Protocol

from dragoman import sync

SERVER = [sys.executable, "-m", "dragoman", "serve", "calculator:api", "stdio:"]


class Calculator(Protocol):
    def subtract(self, minuend: int, subtrahend: int) -> int: ...


def main() -> None:
    with sync.connect(SERVER, cwd=str(Path(__file__).parent), stderr=lambda line: None) as peer:
        print(peer.call("subtract", [42, 23]))  # 19
        print(peer.proxy(Calculator).subtract(minuend=42, subtrahend=23))  # 19
        with peer.batch() as batch:
            total = batch.call("sum", [1, 2, 4])
            rest = batch.call("subtract", [42, 23])
        print(total.result(), rest.result())  # 7 19


if __name__ == "__main__":
    main()
