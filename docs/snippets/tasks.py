# [service]
import asyncio
from tempfile import TemporaryDirectory

from msgspec import Struct

from dragoman import Context, Service, TaskPolicy, connect, serve


class Report(Struct):
    rows: int
    error: float


def lab(store: str) -> Service:
    api = Service("lab", tasks=store)

    @api.method(task=TaskPolicy(idempotent=True))  # it may be run again, from the top
    async def train(rows: int, ctx: Context) -> Report:
        for row in range(rows):
            await asyncio.sleep(0.01)
            await ctx.progress({"done": row + 1, "of": rows})
        return Report(rows, 0.1)

    return api


# [/service]
# [caller]
async def main(store: str) -> None:
    async with serve(lab(store), urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        task = await peer.start("train", {"rows": 3}, result=Report)  # it is kept from here on
        async for status in task.follow():
            print(status.status, status.progress)
        id = task.id

    async with serve(lab(store), urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        print(await peer.task(id, result=Report).result(timeout=60))  # Report(rows=3, error=0.1)
        await peer.call("train", {"rows": 1}, result=Report)  # an ordinary call, which waits


with TemporaryDirectory() as folder:
    asyncio.run(main(f"sqlite:{folder}/lab.db"))
# [/caller]
