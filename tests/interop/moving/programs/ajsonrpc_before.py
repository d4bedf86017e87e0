# mypy: ignore-errors
# [program]
from aiohttp import web
from ajsonrpc.core import JSONRPC20DispatchException
from ajsonrpc.dispatcher import Dispatcher
from ajsonrpc.manager import AsyncJSONRPCResponseManager

stock = {"tea": 3, "rice": 0}
rpc = Dispatcher()


@rpc.add_function
def count(item):
    return stock[item]


@rpc.add_function
async def take(item, amount=1):
    if stock[item] < amount:
        raise JSONRPC20DispatchException(1001, "Out of stock", {"left": stock[item]})
    stock[item] -= amount
    return f"{amount} {item}"


class Reports:
    def low(self, below):
        return [item for item, left in stock.items() if left < below]


rpc.add_object(Reports())
manager = AsyncJSONRPCResponseManager(rpc)


async def handle(request):
    answer = await manager.get_payload_for_payload(await request.text())
    return web.Response(text=answer, content_type="application/json")


app = web.Application()
app.router.add_post("/", handle)

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=5000)
# [/program]
