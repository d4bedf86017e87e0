from collections.abc import Mapping
from typing import Any

from dragoman import Context, Identity, Service

# [demands]
api = Service("shop")


@api.method(scopes="orders:read")
def orders(who: Identity) -> list[str]:
    return [f"an order of {who.subject}"]


@api.method(scopes=["orders:read", "orders:write"])
def cancel(order: int, context: Context) -> str:
    return "" if context.identity is None else context.identity.subject


@api.method(roles=["admin", "auditor"])
def ledger() -> list[int]:
    return [1, 2, 3]


def of_own(who: Identity, arguments: Mapping[str, Any] | None) -> bool:
    return arguments is None or arguments["customer"] == who.subject


@api.method(allow=of_own)
def profile(customer: str) -> str:
    return f"all about {customer}"


# [/demands]
# [answer]
from dragoman.channel import Caller

ada = Caller(identity=Identity(subject="ada", scopes=frozenset({"orders:read"})))
answer = api.answer(b'{"jsonrpc":"2.0","method":"profile","params":["ada"],"id":1}', caller=ada)
print(answer)  # b'{"jsonrpc":"2.0","result":"all about ada","id":1}'
answer = api.answer(b'{"jsonrpc":"2.0","method":"ledger","id":2}', caller=ada)
print(answer)  # b'{"jsonrpc":"2.0","error":{"code":-32004,"message":"Forbidden: this caller may not make this call"...
# [/answer]
