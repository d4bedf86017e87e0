# [program]
from dragoman import RpcError
from dragoman.sync import connect


class OutOfStock(RpcError):
    code = 1001
    message = "Out of stock"


with connect("http://127.0.0.1:5000/rpc", errors=[OutOfStock]) as peer:
    print(peer.proxy().count(item="tea"))
    print(peer.call("take", {"order": {"item": "tea", "amount": 2}}))
    try:
        peer.call("take", {"order": {"item": "tea", "amount": 2}})
    except OutOfStock as error:
        print(error.message, error.data["left"])

    peer.notify("take", {"order": {"item": "tea"}})

    with peer.batch() as batch:
        counts = [batch.call("count", {"item": item}) for item in ("tea", "rice")]
    print([one.result() for one in counts])
# [/program]
