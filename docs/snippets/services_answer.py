# [answer]
from calculator import api

print(api.answer(b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}').decode())
print(api.answer(b'{"jsonrpc":"2.0","method":"subtract","params":[42,23]}'))  # None
# [/answer]
