# mypy: ignore-errors
# [program]
import requests
from jsonrpcclient import Ok, notification, parse, request

URL = "http://127.0.0.1:5000"


def call(method, params):
    answer = parse(requests.post(URL, json=request(method, params)).json())
    return answer.result if isinstance(answer, Ok) else f"{answer.code} {answer.message}, {answer.data['left']} left"


print(call("take", {"item": "tea", "amount": 2}))
print(call("take", {"item": "tea", "amount": 2}))

requests.post(URL, json=notification("take", ("tea",)))

batch = [request("count", ("tea",)), request("reports.low", (1,))]
for answer in parse(requests.post(URL, json=batch).json()):
    print(answer.result)
# [/program]
