import asyncio

from calculator import api

# [trace]
from dragoman import connect, serve
from dragoman.rpc.tracing import Event, json_lines


def watch(event: Event) -> None:
    print(event.kind, event.direction, event.method, event.outcome)


async def main() -> None:
    async with serve(api, urls="memory:traced", trace=json_lines(lines.append)):
        async with connect("memory:traced", trace=watch) as peer:
            await peer.call("subtract", [42, 23])


lines: list[str] = []
# [/trace]
asyncio.run(main())
print(len(lines))  # 2
