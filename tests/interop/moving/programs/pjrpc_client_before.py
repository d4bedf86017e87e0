# mypy: ignore-errors
# [program]
from pjrpc.client.backend.requests import Client
from pjrpc.client.exceptions import TypedError


class OutOfStock(TypedError):
    CODE = 1001
    MESSAGE = "Out of stock"


client = Client("http://127.0.0.1:5000/rpc")

print(client.proxy.count(item="tea"))
print(client.call("take", order={"item": "tea", "amount": 2}))
try:
    client("take", order={"item": "tea", "amount": 2})
except OutOfStock as error:
    print(error.message, error.data["left"])

client.notify("take", order={"item": "tea"})

with client.batch() as batch:
    batch.call("count", item="tea")
    batch.call("count", item="rice")
print(list(batch.get_results()))
# [/program]
