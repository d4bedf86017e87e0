# [clients]
from dragoman.auth.server import AuthorizationServer, Client, User, secret_hash

server = AuthorizationServer(
    "http://127.0.0.1:9000",
    users=[User(name="alice", password="wonderland", claims={"roles": ["editor"]})],
    clients=[
        Client(id="notes", name="Notes", redirect_uris=("http://127.0.0.1/callback",)),
        Client(
            id="nightly",
            method="client_secret_basic",
            secret_hash=secret_hash("a long random text"),
            grants=("client_credentials",),
        ),
    ],
    scopes=["notes:read", "notes:write"],
    resources=["http://127.0.0.1:8000/mcp"],
)
# [/clients]
token = server.token("alice", scopes="notes:read")
assert token.count(".") == 2
