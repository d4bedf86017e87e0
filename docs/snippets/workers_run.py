# [run]
import asyncio
import contextlib
import sys

from dragoman import connect
from dragoman.workers import run_workers

URL = "tcp://127.0.0.1:9000"
COMMAND = [sys.executable, "-m", "dragoman", "serve", "calculator:api", URL, "--quiet"]


async def main() -> None:
    ready = asyncio.Event()

    def say(text: str, grave: bool) -> None:
        if text.startswith("worker 2") and text.endswith("is ready"):
            ready.set()

    supervisor = asyncio.create_task(run_workers(COMMAND, [URL], workers=2, say=say))
    await ready.wait()
    async with connect(URL) as peer:
        print(await peer.call("subtract", [42, 23]))  # 19
    supervisor.cancel()  # as a SIGTERM would: the workers drain
    with contextlib.suppress(asyncio.CancelledError):
        await supervisor


asyncio.run(main())
# [/run]
