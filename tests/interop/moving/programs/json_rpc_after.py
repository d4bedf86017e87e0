# [program]
from dragoman import Context, RpcError, Service, method

stock = {"tea": 3, "rice": 0}
api = Service("shop")


class OutOfStock(RpcError):
    code = 1001
    message = "Out of stock"


@api.method(inline=True)
def count(item: str) -> int:
    return stock[item]


@api.method(inline=True)
def take(item: str, context: Context, amount: int = 1) -> str:
    if stock[item] < amount:
        raise OutOfStock(data={"left": stock[item]})
    stock[item] -= amount
    return f"{amount} {item} for {context.headers.get('x-user', 'no one')}"


class Reports:
    @method(inline=True)
    def low(self, below: int) -> list[str]:
        return [item for item, left in stock.items() if left < below]


api.include(Reports(), namespace="reports")

if __name__ == "__main__":
    api.run("http://127.0.0.1:5000")
# [/program]
