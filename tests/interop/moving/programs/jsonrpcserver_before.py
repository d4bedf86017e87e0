# mypy: ignore-errors
# [program]
from jsonrpcserver import Error, InvalidParams, Success, method, serve

stock = {"tea": 3, "rice": 0}


@method
def count(item):
    return Success(stock[item])


@method
def take(item, amount=1):
    if amount < 1:
        return InvalidParams("amount must be 1 at least")
    if stock[item] < amount:
        return Error(1001, "Out of stock", {"left": stock[item]})
    stock[item] -= amount
    return Success(f"{amount} {item}")


@method(name="reports.low")
def low(below):
    return Success([item for item, left in stock.items() if left < below])


if __name__ == "__main__":
    serve("127.0.0.1", 5000)
# [/program]
