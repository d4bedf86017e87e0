"""Who may call: verifiers on what is served."""

from __future__ import annotations

from dragoman import Identity, Service, connect, http_app, serve
from dragoman.auth import Bearer, Login, Static, TokenRefused, Verifier
from dragoman.channel import Handshake
from dragoman.mcp import Client, Server


class Own:
    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        if token == "old":
            raise TokenRefused("expired")
        return Identity(subject=token, scopes=frozenset({"read"}))


bearer = Bearer("https://issuer.example", resource="https://api.example/mcp", audience=["api"])
tokens = Static({"0123456789": Identity(subject="ada"), "9876543210": "bob"})
several: list[Verifier] = [bearer, tokens, Own()]
api = Service("api", auth=bearer)
app = Server("app", auth=[bearer, tokens])


class Mute:
    async def verify(self, token: str) -> Identity | None:
        return None


async def main() -> None:
    async with serve(app, api, urls="http://127.0.0.1:0", auth=several, public=["stdio:"]):
        pass
    http_app(app, auth=Own())
    Service("a", auth=Mute())  # wrong: it gets the handshake too
    Service("a", auth=Login())  # wrong: of clients
    serve(app, urls="http://127.0.0.1:0", auth="secret")  # wrong: a verifier
    http_app(app, auth=("user", "password"))  # wrong: of clients
    Server("a", auth={"token": "ada"})  # wrong: a verifier
    Bearer("https://issuer.example")  # wrong: for which resource
    Bearer("https://issuer.example", resource="https://api.example", dpop=True)  # wrong: one of three words
    Static(["0123456789"])  # wrong: whose they are
    Identity("ada")  # wrong: by name
    connect("https://api.example", auth=bearer)  # wrong: of servers
    Client("https://api.example/mcp", auth=tokens)  # wrong: of servers
