# mypy: ignore-errors
"""fastapi-jsonrpc on uvicorn with httptools and uvloop (`PORT`)."""

import sys

import fastapi_jsonrpc
import uvicorn

entry = fastapi_jsonrpc.Entrypoint("/")


@entry.method()
async def subtract(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend


app = fastapi_jsonrpc.API()
app.bind_entrypoint(entry)

if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=120,
    )
