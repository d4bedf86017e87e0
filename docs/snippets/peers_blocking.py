# served: calculator:api tcp://127.0.0.1:9000
# [blocking]
from dragoman import sync

with sync.connect("tcp://127.0.0.1:9000") as peer:
    print(peer.call("subtract", [42, 23]))  # 19
    with peer.batch() as batch:
        total = batch.call("sum", [1, 2, 4])
    print(total.result())  # 7
# [/blocking]
