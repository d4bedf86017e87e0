# [decode]
from dragoman.jsonrpc import Batch, Failure, Malformed, Notification, Request, Result, decode, encode


def describe(raw: bytes) -> str:
    match decode(raw):
        case Request(method, params, id):
            return f"call {method} with {bytes(params).decode()}, answer as {id!r}"
        case Notification(method):
            return f"notification {method}"
        case Result(result, id):
            return f"result {bytes(result).decode()} for {id!r}"
        case Failure(error, id):
            return f"error {error.code} for {id!r}"
        case Batch(messages):
            return f"batch of {len(messages)}"
        case Malformed(kind, reason):
            return f"{kind}: {reason}"


print(describe(b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'))
print(describe(b'{"jsonrpc":"2.0","method":"update"}'))  # notification update
print(describe(b'{"jsonrpc":"2.0","result":19,"id":1}'))  # result 19 for 1
print(describe(b"[]"))  # invalid: Invalid Request: an empty array is not a batch
print(encode(Result(19, 1)).decode())  # {"jsonrpc":"2.0","result":19,"id":1}
# [/decode]
