"""A work queue over RabbitMQ: workers take jobs one at a time; when one of them dies another does its job.

python examples/work_queue.py worker       one worker; start as many as you like
python examples/work_queue.py              two workers, one of which is killed at its work, and it ends
"""

import asyncio
import sys

from dragoman import Context, Service, connect, serve

URL = "amqp://127.0.0.1:5672/pages"
printer = Service("printer", version="1.0.0")


@printer.method(concurrency=1)
async def print_page(number: int, context: Context) -> str:
    "Print one page; it takes a while."
    if context.redelivered:  # a worker had it before, and may have printed it
        context.log.info("page %d may be there already: call %s", number, context.caller.key)
    await asyncio.sleep(0.2)
    return f"page {number}"


async def work() -> None:
    async with serve(printer, urls=f"{URL}?prefetch=1"):
        print("ready", flush=True)
        await asyncio.get_running_loop().create_future()


async def worker() -> asyncio.subprocess.Process:
    "A worker in a process of its own, which listens."
    command = [sys.executable, __file__, "worker"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def main() -> None:
    workers = [await worker(), await worker()]
    async with connect(URL) as peer:
        pages = [asyncio.create_task(peer.call("print_page", [number])) for number in range(6)]
        print(await pages[0])  # page 0
        workers[0].kill()  # in the middle of a page, which goes back into the queue
        print(len(await asyncio.gather(*pages)), "pages are printed")  # 6 pages are printed
    workers[1].kill()
    for process in workers:
        await process.wait()


if __name__ == "__main__":
    asyncio.run(work() if "worker" in sys.argv else main())
