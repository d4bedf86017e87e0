"""The store of tasks in a file: tasks are created, and completed, 32 at a time, and read one by one."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import count

from msgspec import Raw

from bench.worker import offer_async
from dragoman.tasks import TaskLimits, TaskRecord, open_tasks, rules

AT_ONCE = 32
MANY = 100_000_000
PARAMS = Raw(b'{"name":"check","arguments":{"text":"42 - 23 = 19%b"}}' % (b"x" * 200))
RESULT = Raw(b'{"content":[{"type":"text","text":"19%b"}],"isError":false}' % (b"y" * 300))


async def main() -> None:
    """Until end of file."""
    limits = TaskLimits(tasks=MANY, tasks_each=MANY, total=MANY * MANY, total_each=MANY * MANY)
    with tempfile.TemporaryDirectory() as folder:
        store = open_tasks(f"sqlite:{folder}/tasks.db", limits)
        numbers, now = count(), await store.now()
        await store.beat("runner")

        def made() -> TaskRecord:
            number = next(numbers)
            return TaskRecord(
                id=f"{number:032x}",
                server="reports",
                method="tools/call",
                name="check",
                owner=f"{number % 100:064x}",
                created=now,
                updated=now,
                keep=3600.0,
                params=PARAMS,
                runner="runner",
            )

        def done(record: TaskRecord) -> TaskRecord:
            return rules.completed(record, now, RESULT)

        async def created() -> TaskRecord:
            record = made()
            await store.create(record)
            return record

        async def completed() -> TaskRecord | None:
            return await store.change((await created()).id, done)

        async def create() -> object:
            return bytes((await asyncio.gather(*[created() for _ in range(AT_ONCE)]))[-1].params)

        async def complete() -> object:
            ended = (await asyncio.gather(*[completed() for _ in range(AT_ONCE)]))[-1]
            return None if ended is None or ended.result is None else bytes(ended.result)

        async def read() -> object:
            found = await store.read(known.id)
            return None if found is None else bytes(found.params)

        known = await created()
        await offer_async({"create": create, "complete": complete, "read": read})
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())
