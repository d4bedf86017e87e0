# [kinds]
import asyncio
import time

from dragoman import Service

api = Service("kinds")


@api.method
def read_file(path: str) -> str:  # plain: in a worker thread, may block
    with open(path) as file:
        return file.read()


@api.method
async def wait_a_little(seconds: float) -> str:  # async def: on the loop, must not block
    await asyncio.sleep(seconds)
    return "done"


@api.method(inline=True)
def now() -> float:  # plain and quick: in place, must not block
    return time.time()


@api.method(concurrency=1, queue=10, timeout=5)
def print_page(text: str) -> None:  # one at a time, ten may wait, five seconds each
    print(text)


# [/kinds]
print(api.methods["read_file"].kind)  # thread
print(api.methods["wait_a_little"].kind)  # async
print(api.methods["now"].kind)  # inline
