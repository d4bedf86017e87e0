from dragoman import Service
from dragoman.mcp.extensions.events import EventReceiver, ReceivedEvent


async def handle(event: ReceivedEvent) -> None:
    if "order" not in event.data:
        raise ValueError("an event without an order")


hooks = Service("hooks")
receiver = EventReceiver(handle)
receiver.begin("whsec_b25seSBmb3IgdHJ5aW5nLCBub3QgdXNl")
receiver.mount(hooks, "/hooks")
