# [wire]
import msgspec

from dragoman.jsonrpc import Malformed, Request, Result, RpcError, decode, encode, failure


def answer(raw: bytes) -> bytes | None:
    "A server of one method, `add`, on a wire of your own."
    message = decode(raw)
    if isinstance(message, Malformed):
        return failure(message.id, RpcError("Invalid Request", code=-32600)) if message.answerable else None
    if isinstance(message, Request) and message.method == "add":
        return encode(Result(sum(msgspec.json.decode(message.params)), message.id))
    if isinstance(message, Request):
        return failure(message.id, RpcError("Method not found", code=-32601))
    return None


print(answer(b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":"a"}').decode())
# [/wire]
print(answer(b"5"))
