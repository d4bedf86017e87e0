# [log]
import asyncio
import sys

from calculator import api
from dragoman import connect, serve
from dragoman.telemetry import AccessLog

log = AccessLog(sys.stdout.write)  # without a function of ours: to stderr, by a thread


async def main() -> None:
    async with serve(api, urls="http://127.0.0.1:0", observers=[log]) as serving:
        async with connect(serving.urls[0]) as peer:
            print(await peer.call("subtract", [42, 23]))
    log.flush()


# [/log]
asyncio.run(main())  # 19
