import os

os.environ |= {"NOTES_CLIENT_ID": "1234.apps.example", "NOTES_CLIENT_SECRET": "given by Google", "NOTES_KEY": "00" * 32}
# [proxy]
import os

from dragoman.auth import Bearer, Proxy
from dragoman.mcp import Server

proxy = Proxy(
    "https://notes.example",
    client_id=os.environ["NOTES_CLIENT_ID"],
    client_secret=os.environ["NOTES_CLIENT_SECRET"],
    key=bytes.fromhex(os.environ["NOTES_KEY"]),
    store="sqlite:grants.db",
    scopes=["notes:read", "notes:write"],
    admit=lambda user: user.get("hd") == "notes.example",
)
server = Server(
    "notes",
    auth=Bearer("https://accounts.google.com", resource="https://notes.example/mcp", proxy=proxy),
)
# [/proxy]
assert repr(proxy) == "<Proxy https://notes.example before https://accounts.google.com>"
