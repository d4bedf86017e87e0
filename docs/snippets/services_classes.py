# [classes]
from dragoman import Service, method


class Calculator:
    def __init__(self, places: int) -> None:
        self.places = places

    @method
    def divide(self, a: float, b: float) -> float:
        return round(a / b, self.places)


api = Service("calculators")
api.include(Calculator(1), prefix="rough.")
api.include(Calculator(5), prefix="exact.")


@api.service
class Greeter:  # without arguments: made here
    @method(inline=True)
    def greet(self, name: str) -> str:
        return f"hello {name}"


print(list(api.methods))  # ['rough.divide', 'exact.divide', 'greet']
# [/classes]
