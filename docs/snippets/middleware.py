# [middleware]
from dragoman import RpcError, Service
from dragoman.middleware import audit, map_errors, rate_limit, response_cache, timing


class NotFound(RpcError):
    code, message = 404, "Not found"


prices = {"tea": 4, "coffee": 3}
entries = []

shop = Service(
    "shop",
    middleware=[
        audit(entries.append),  # who called what, and how it ended
        rate_limit(10, burst=20),  # calls a second, for each caller
        response_cache(["price"], ttl=60, shared=True),  # the same for all callers
        map_errors({KeyError: NotFound}),
        timing(),  # a line of the log for each call
    ],
)


@shop.method
def price(name: str) -> int:
    return prices[name]


print(shop.answer(b'{"jsonrpc":"2.0","method":"price","params":["tea"],"id":1}'))
# b'{"jsonrpc":"2.0","result":4,"id":1}'
print(shop.answer(b'{"jsonrpc":"2.0","method":"price","params":["milk"],"id":2}'))
# b'{"jsonrpc":"2.0","error":{"code":404,"message":"Not found"},"id":2}'
print([(entry.name, entry.outcome) for entry in entries])  # [('price', 'ok'), ('price', '404')]
# [/middleware]
