"""A person approves what a tool is about to do. One handler, both eras.

    dragoman tool mcp_approval.py transfer to=Ada amount=250

Up to 2025-11-25 the server calls the client to ask. From 2026-07-28 on it may not: the first run of the
handler ends at the question, and the client calls again with the answer. So: ask before you act.
"""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from dragoman.mcp import Client, Context, ElicitRequestParams, Server

app = Server("bank", version="1.0.0")
done: list[str] = []


class Approval(Struct):
    approve: Annotated[bool, Meta(description="Send the money")] = False
    note: Annotated[str, Meta(description="What the other side will read", max_length=80)] = ""


@app.tool
async def transfer(to: str, amount: float, ctx: Context) -> str:
    "Send money; a person has to approve more than 100."
    note = ""
    if amount > 100:
        answer = await ctx.elicit(f"Send {amount:.2f} to {to}?", Approval)
        if answer.content is None or not answer.content.approve:
            return "not sent: the person said no"
        note = answer.content.note
    done.append(f"{amount:.2f} to {to} {note}".strip())  # acting comes last
    return "sent"


async def main() -> None:
    def approve(asked: ElicitRequestParams) -> dict[str, object]:
        print("asked:", asked.message)
        return {"approve": True, "note": "for the tea"}  # accepted

    def refuse(asked: ElicitRequestParams) -> bool:
        return False  # declined; None would be cancelled

    arguments = {"to": "Ada", "amount": 250}
    for revision in ("2025-11-25", "2026-07-28"):
        async with Client(app, revision=revision, on_elicit=approve) as client:
            print(await client.call_tool("transfer", arguments, result=str))  # sent
        async with Client(app, revision=revision, on_elicit=refuse) as client:
            print(await client.call_tool("transfer", arguments, result=str))  # not sent: the person said no
    print(done)  # ['250.00 to Ada for the tea', '250.00 to Ada for the tea']


if __name__ == "__main__":
    asyncio.run(main())
