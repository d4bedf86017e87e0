from dragoman import Service

api = Service("calculator", version="1.0.0")


@api.method(inline=True)
def subtract(minuend: int, subtrahend: int) -> int:
    "Subtract `subtrahend` from `minuend`."
    return minuend - subtrahend


@api.method("sum", inline=True)
def total(*numbers: int) -> int:
    "Add up any number of numbers."
    return sum(numbers)
