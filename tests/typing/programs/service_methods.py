"""Methods of a service, and their options."""

from __future__ import annotations

from dragoman import InvalidParams, Service, method

api = Service("shop", version="1.0.0", title="Shop", errors=[InvalidParams])


@api.method
async def price(item: str) -> float:
    return len(item) * 1.5


@api.method("stock.count", inline=True, tags=["stock"], idempotent=True)
def count(item: str) -> int:
    return len(item)


@api.method(timeout=None, concurrency=2, queue=8, scopes="shop:write", roles=["clerk"])
def order(item: str, number: int = 1) -> dict[str, int]:
    return {item: number}


@api.service
class Till:
    @method(name="till.pay")
    def pay(self, sum: float) -> bool:
        return sum > 0


@api.method(timeout="3")  # wrong: seconds are a number
async def late() -> None: ...


@api.method(inlined=True)  # wrong: no such option
def quick() -> None: ...


@api.method(errors=[ValueError])  # wrong: not an RpcError
def failing() -> None: ...


@api.method(allow=lambda identity: True)  # wrong: it gets the arguments too
def allowed() -> None: ...


total: int = count("tea")
cost: str = order("tea")  # wrong: the function is not changed, and returns a dict
api.include(Service("more"), namespace="more", tags={"extra"})
api.disable(tag=3)  # wrong: a tag is text
api.run("tcp://127.0.0.1:9000")
api.run(port="8000")  # wrong: a port is a number
