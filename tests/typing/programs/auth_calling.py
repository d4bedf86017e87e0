"""What a client shows of itself."""

from __future__ import annotations

import ssl

from dragoman import connect
from dragoman.auth import ClientCredentials, Login, MemoryStore, Workload
from dragoman.mcp import Client
from dragoman.sync import connect as connect_blocking

connect("https://api.example", auth=("ada", "secret"), tls=ssl.create_default_context())
connect("https://api.example", auth="token")
connect_blocking("https://api.example", auth=ClientCredentials("id", secret="secret"))
Client("https://api.example/mcp", auth=Login(scopes=["read"], store=MemoryStore(), timeout=60))
Client("https://api.example/mcp", auth=Workload("/var/run/token", client_id="id", resource=None))

connect("https://api.example", auth=("ada",))  # wrong: the password is missing
connect("https://api.example", auth=b"token")  # wrong: text
connect("https://api.example", auth={"user": "ada"})  # wrong: a pair
connect_blocking("https://api.example", auth=3)  # wrong: text
Client("https://api.example/mcp", auth=Login)  # wrong: an instance
Login(timeout="60")  # wrong: seconds are a number
Login(store="memory")  # wrong: a store
Login(scope="read")  # wrong: misspelt
ClientCredentials(secret="secret")  # wrong: whose it is
