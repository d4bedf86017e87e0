"""A bank made of two servers: one looks at accounts, one moves money and asks a person before much of it leaves.

    dragoman serve mcp_bank.py
    dragoman tool mcp_bank.py accounts_balance owner=ada
    dragoman tool mcp_bank.py money_send source=ada target=bob amount=200

Each call has a transaction, which ends before the answer leaves; middleware takes the time of every call.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from dragoman import Depends
from dragoman.mcp import Client, Context, Server, ToolError
from dragoman.middleware import timing
from dragoman.testing import Answers

FILE = Path(tempfile.mkdtemp()) / "bank.db"
ASK_ABOVE = 100.0
took: list[str] = []


async def opened(server: Server) -> AsyncIterator[None]:
    "The lifespan: the accounts that there are when the serving begins."
    with closing(sqlite3.connect(FILE)) as db, db:
        db.execute("create table if not exists account (owner text primary key, euros real check (euros >= 0))")
        db.executemany("insert or replace into account values (?, ?)", [("ada", 1000.0), ("bob", 20.0)])
    yield


def transaction() -> Iterator[sqlite3.Connection]:
    "The dependency, made for each call. What a call did that fails, or that ends in a question, is undone."
    with closing(sqlite3.connect(FILE)) as db, db:
        yield db


Transaction = Annotated[sqlite3.Connection, Depends(transaction)]
Owner = Annotated[str, Meta(description="Whose account it is", max_length=40)]

accounts = Server("accounts")


@accounts.tool
def balance(owner: Owner, db: Transaction) -> float:
    "What is in an account, in euros."
    found = db.execute("select euros from account where owner = ?", [owner]).fetchone()
    if found is None:
        raise ToolError(f"{owner} has no account here")
    return float(found[0])


@accounts.resource("accounts://owners")
def owners(db: Transaction) -> list[str]:
    "Who has an account."
    return [owner for (owner,) in db.execute("select owner from account order by owner")]


money = Server("money")


class Approval(Struct):
    sure: Annotated[bool, Meta(description="Send it")] = False


@money.tool
def send(source: Owner, target: Owner, amount: Annotated[float, Meta(gt=0)], ctx: Context, db: Transaction) -> str:
    "Send euros to another account. A person is asked first if it is much."
    left, _ = balance(source, db), balance(target, db)  # look before you ask
    if amount > left:
        raise ToolError(f"{source} has {left:.2f} euros only")
    if amount > ASK_ABOVE:
        answer = ctx.elicit(f"Send {amount:.2f} euros from {source} to {target}?", Approval)
        if answer.content is None or not answer.content.sure:
            return "not sent"
    db.execute("update account set euros = euros - ? where owner = ?", [amount, source])  # act after you asked
    db.execute("update account set euros = euros + ? where owner = ?", [amount, target])
    return "sent"


app = Server("bank", version="1.0.0", lifespan=opened)
app.use(timing(lambda name, seconds: took.append(f"{name} {seconds * 1000:.1f} ms")))
app.include(accounts, namespace="accounts")
app.include(money, namespace="money")


async def main() -> None:
    answers = Answers({"sure": True}, None)
    async with Client(app, on_elicit=answers) as client:
        print([tool.name for tool in await client.list_tools()])  # ['accounts_balance', 'money_send']
        much = {"source": "ada", "target": "bob", "amount": 300}
        print(await client.call_tool("money_send", much, result=str))  # sent
        print(await client.call_tool("money_send", much, result=str))  # not sent
        print(await client.call_tool("accounts_balance", {"owner": "bob"}, result=float))  # 320.0
        try:
            await client.call_tool("money_send", {"source": "bob", "target": "eve", "amount": 1}, result=str)
        except ToolError as error:
            print(error)  # eve has no account here
    print(took[-1])  # money_send ...


if __name__ == "__main__":
    asyncio.run(main())
