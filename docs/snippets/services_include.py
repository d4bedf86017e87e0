# [include]
from dragoman import Service

math = Service("math")


@math.method(inline=True)
def add(a: int, b: int) -> int:
    return a + b


@math.method("triple", inline=True)
def times_three(a: int) -> int:
    return 3 * a


api = Service("everything")
api.include(math, namespace="math")
print(list(api.methods))  # ['math.add', 'math.triple']
# [/include]
