"""A chat room: clients call the server, and the server calls them back on the same channel.

python examples/chat.py                    two people meet, and it ends
"""

import asyncio

from dragoman import ChannelError, Context, Peer, Service, connect, serve

room = Service("room", version="1.0.0")
people: dict[str, Peer] = {}


@room.method
async def join(name: str, context: Context) -> list[str]:
    "Enter under a name; the answer is the names of those present."
    assert context.peer is not None  # it is None where nothing can be called back: HTTP, UDP
    people[name] = context.peer
    return sorted(people)


@room.method
async def say(name: str, text: str) -> dict[str, str]:
    "Tell all others; the answer is what they said to it."
    replies = {}
    for other, peer in list(people.items()):
        if other != name:
            try:
                replies[other] = await peer.call("hear", [name, text], timeout=5)
            except ChannelError:
                del people[other]
    return replies


def person(name: str) -> Service:
    "What the server may call at a client."
    service = Service(name)

    @service.method(inline=True)
    def hear(speaker: str, text: str) -> str:
        print(f"{name} hears {speaker}: {text}")
        return f"hello {speaker}"

    return service


async def main() -> None:
    async with serve(room, urls="tcp://127.0.0.1:0") as serving:
        url = serving.urls[0]
        async with connect(url, service=person("Ada")) as ada, connect(url, service=person("Bob")) as bob:
            print(await ada.call("join", ["Ada"]))  # ['Ada']
            print(await bob.call("join", ["Bob"]))  # ['Ada', 'Bob']
            print(await ada.call("say", {"name": "Ada", "text": "good morning"}))  # {'Bob': 'hello Ada'}


if __name__ == "__main__":
    asyncio.run(main())
