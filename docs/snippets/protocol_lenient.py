# [lenient]
from calculator import total
from dragoman import Service
from dragoman.jsonrpc import Leniency, decode

old = Service("calculator", accept_v1=True)
old.method("sum", inline=True)(total)
print(old.answer(b'{"jsonrpc":"1.0","method":"sum","params":[1,2,4],"id":1}').decode())
# {"result":7,"error":null,"id":1}

picky = Service("calculator", lenient=Leniency(null_id="notification", any_media_type=True))

words = Leniency(string_codes=True)
message = decode(b'{"jsonrpc":"2.0","error":{"code":"TOOL_NOT_FOUND","message":"no"},"id":1}', lenient=words)
print(message.error.code, message.error.name)  # -32602 TOOL_NOT_FOUND
# [/lenient]
