# [problems]
from dragoman.jsonrpc.check import problems

for problem in problems(b'{"Method": "sum", "params": 7, "id": true}'):
    print(problem.path, "-", problem.message)
# [/problems]
