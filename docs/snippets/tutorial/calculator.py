# [imports]
from msgspec import Struct

from dragoman import Context, RpcError, Service

# [/imports]

# [service]
api = Service("calculator", version="1.0.0")


@api.method(inline=True)
def subtract(minuend: int, subtrahend: int) -> int:
    "Subtract `subtrahend` from `minuend`."
    return minuend - subtrahend


@api.method("sum", inline=True)
def total(*numbers: int) -> int:
    "Add up any number of numbers."
    return sum(numbers)


# [/service]


# [errors]
class Divided(Struct):
    dividend: float
    divisor: float


class DivisionByZero(RpcError):
    "There is no such number."

    code = 1001
    message = "Division by zero"
    data: Divided


@api.method(inline=True, errors=[DivisionByZero])
def divide(dividend: float, divisor: float) -> float:
    "Divide `dividend` by `divisor`."
    if divisor == 0:
        raise DivisionByZero(data=Divided(dividend, divisor))
    return dividend / divisor


# [/errors]


# [progress]
@api.method
async def mean(numbers: list[float], context: Context) -> float:
    "The mean, and after each number how far it is."
    so_far = 0.0
    for done, number in enumerate(numbers, 1):
        so_far += number
        await context.progress({"done": done, "total": len(numbers)})
    return so_far / len(numbers)


# [/progress]


# [ask]
@api.method
async def clear(context: Context) -> str:
    "Forget everything, if the caller confirms it."
    sure = await context.call("confirm", ["Clear all?"], result=bool)
    return "cleared" if sure else "kept"


# [/ask]
