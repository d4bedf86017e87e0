# served: calculator:api redis://127.0.0.1:6379/bare
# [raw]
import json

from redis import Redis

redis = Redis.from_url("redis://127.0.0.1:6379", decode_responses=True)
redis.xadd("bare:to:me", {"made": ""}, maxlen=0, approximate=False)  # a mailbox: a stream, empty
redis.expire("bare:to:me", 60)

request = {"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}
head = {"to": "bare:to:me", "id": "call 1"}
redis.xadd("bare", {"head": json.dumps(head), "body": json.dumps(request)}, nomkstream=True)

((_, [(_, answer)]),) = redis.xread({"bare:to:me": "0"}, block=5000)
print(answer["head"])  # {"id":"call 1"}
print(answer["body"])  # {"jsonrpc":"2.0","result":19,"id":1}
# [/raw]
