# [openrpc]
from calculator import api

document = api.openrpc()
print(document["info"]["title"], [method["name"] for method in document["methods"]])
# calculator ['subtract', 'sum']
# [/openrpc]
