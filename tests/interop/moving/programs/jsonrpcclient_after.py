# [program]
from dragoman import RpcError
from dragoman.sync import connect

with connect("http://127.0.0.1:5000") as peer:

    def call(method: str, params: dict[str, object]) -> object:
        try:
            return peer.call(method, params)
        except RpcError as error:
            return f"{error.code} {error.message}, {error.data['left']} left"

    print(call("take", {"item": "tea", "amount": 2}))
    print(call("take", {"item": "tea", "amount": 2}))

    peer.notify("take", ["tea"])

    with peer.batch() as batch:
        answers = [batch.call("count", ["tea"]), batch.call("reports.low", [1])]
    for answer in answers:
        print(answer.result())
# [/program]
