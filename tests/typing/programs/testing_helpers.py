"""What tests of servers use."""

from __future__ import annotations

from dragoman import Caller, Identity, Service
from dragoman.auth.testing import LocalIssuer
from dragoman.mcp import Client, Server
from dragoman.middleware import rate_limit
from dragoman.testing import Answers, Clock, assert_contract, contract

clock = Clock()
app = Server("app", middleware=[rate_limit(5, clock=clock)])
api = Service("api")


def database() -> str:
    return "real"


def fake() -> str:
    return "fake"


async def test_it() -> None:
    answers = Answers({"seat": "window"}, None, ValueError("no"))
    async with Client(app, on_elicit=answers, on_sample=Answers("text")) as client:
        await client.call_tool("book")
    clock.advance(1)
    with app.override(database, fake):
        result = await app.call_tool("book", {"day": "Monday"}, caller=Caller(identity=Identity(subject="ada")))
    left: int = answers.left
    text: str = await contract(api)
    await assert_contract(app, "contract.json", update=True)
    print(result.text, left, text)


def test_login() -> None:
    with LocalIssuer(resources=["http://127.0.0.1:8000/mcp"], registration=False) as issuer:
        token: str = issuer.token("alice", scopes="read", life=60)
        issuer.client("id", "secret", redirect_uris=("http://127.0.0.1/",))
        print(token, issuer.expired("bob", client="other"))


async def mistaken() -> None:
    Clock("now")  # wrong: a number
    clock.advance("1 s")  # wrong: a number
    await assert_contract(app, 3)  # wrong: a path
    await assert_contract({"app": app}, "contract.json")  # wrong: a service or a server
    number: int = await contract(app)  # wrong: text
    app.override("database", fake)  # wrong: the function
    await app.call_tool("book", ["Monday"])  # wrong: arguments have names
    LocalIssuer(users=["alice"])  # wrong: Users
    LocalIssuer(registered=True)  # wrong: misspelt
    print(number)
