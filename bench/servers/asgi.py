"""dragoman as an ASGI app on uvicorn with httptools and uvloop (`PORT`)."""

from __future__ import annotations

import sys

from bench.limits.asgi import run
from bench.servers.calculator import calculator
from dragoman import http_app

if __name__ == "__main__":
    run(http_app(calculator()), int(sys.argv[1]))
