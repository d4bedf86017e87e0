# served: calculator:api tcp://127.0.0.1:9000
# [errors]
import asyncio

from calculator import DivisionByZero
from dragoman import InvalidParams, RpcError, connect


async def main() -> None:
    async with connect("tcp://127.0.0.1:9000", errors=[DivisionByZero]) as peer:
        try:
            await peer.call("divide", [1, 0])
        except DivisionByZero as error:
            print(error.data.dividend)  # 1.0
        try:
            await peer.call("subtract", ["many"])
        except InvalidParams as error:
            print([fault["field"] for fault in error.data["errors"]])  # ['minuend', 'subtrahend']
        try:
            await peer.call("multiply", [6, 7])
        except RpcError as error:
            print(error.code, error.message)  # -32601 Method not found


asyncio.run(main())
# [/errors]
