# [raw]
import asyncio

import nats

from calculator import api
from dragoman import serve


async def main() -> None:
    async with serve(api, urls="nats://127.0.0.1:4222/bare"):
        client = await nats.connect("nats://127.0.0.1:4222")
        request = b'{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}'
        answer = await client.request("bare", request)
        print(answer.data.decode())  # {"jsonrpc":"2.0","result":19,"id":1}
        await client.close()


asyncio.run(main())
# [/raw]
