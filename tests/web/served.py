"""What the page is looked at with: a shop with every kind of argument, and a travel desk that asks back."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from dragoman import RpcError, Service
from dragoman.mcp import Context, Server


class Priority(enum.Enum):
    low = "low"
    normal = "normal"
    urgent = "urgent"


class Address(Struct):
    street: str
    city: str
    postcode: Annotated[str, Meta(pattern="^[0-9]{5}$", description="Five digits.")]


class Card(Struct, tag="card"):
    number: Annotated[str, Meta(min_length=12, max_length=19)]
    holder: str


class Invoice(Struct, tag="invoice"):
    days: Annotated[int, Meta(ge=7, le=60)] = 30


class Item(Struct):
    sku: str
    amount: Annotated[int, Meta(ge=1, le=100)] = 1
    note: str | None = None


class Node(Struct):
    name: str
    children: list[Node] = []


class Order(Struct):
    id: int
    city: str
    total: float
    paid: bool


class OutOfStock(RpcError):
    """There is none left."""

    code = 4001
    message = "Out of stock"


class Consent(Struct):
    pay: Annotated[bool, Meta(description="Pay now with the card on file.")]
    seat: Literal["aisle", "window"] = "window"


def shop() -> Service:
    """A JSON-RPC service."""
    about = "Orders of a small shop. The handbook is at https://example.org/handbook."
    api = Service("orders", version="2.4.0", description=about)

    @api.method(tags=["orders"], errors=[OutOfStock])
    def place(
        items: Annotated[list[Item], Meta(min_length=1)],
        to: Address,
        pay: Card | Invoice,
        priority: Priority = Priority.normal,
        wanted: dt.date | None = None,
        gift: bool = False,
    ) -> Order:
        """Place an order.

        The items are reserved at once; `pay` decides when the order is sent.

        Parameters
        ----------
        items
            What to send.
        to
            Where to.
        wanted
            The day on which it should arrive, if that matters.
        """
        return Order(17, to.city, 12.5 * len(items), isinstance(pay, Card))

    @api.method(tags=["orders"])
    def find(city: str = "", limit: Annotated[int, Meta(ge=1, le=1000)] = 50) -> list[Order]:
        "List the orders for a city, newest first."
        cities = ["Lisbon", "Lima", "Ljubljana", "Lagos", "Lyon"]
        return [Order(17 + n, one, 12.5 * n + 3.2, n % 2 == 0) for n, one in enumerate(cities)][:limit]

    @api.method(tags=["orders"])
    def cancel(id: int, reason: str = "") -> bool:
        "Cancel an order that was not sent yet."
        return bool(id)

    @api.method
    def subtract(minuend: int, subtrahend: int) -> int:
        "Subtract `subtrahend` from `minuend`."
        return minuend - subtrahend

    @api.method
    def tree(root: Node) -> int:
        "Count the nodes of a tree."
        return 1 + sum(tree(one) for one in root.children)

    @api.method(deprecated=True)
    def total(*values: float) -> float:
        "Add values."
        return sum(values)

    @api.method
    async def slow(seconds: float = 30) -> str:
        "Answer late."
        await asyncio.sleep(seconds)
        return "done"

    return api


def desk(**options: Any) -> Server:
    """An MCP server."""
    words = "Plan and book trips. `book` asks before it pays."
    app = Server("travel", version="1.2.0", title="Travel desk", instructions=words, **options)

    @app.tool(tags={"booking"})
    async def book(
        city: Annotated[str, Meta(description="Where to.")],
        nights: Annotated[int, Meta(ge=1, le=30)],
        ctx: Context,
        breakfast: bool = False,
    ) -> str:
        "Book a room; asks before it pays."
        answer = await ctx.elicit(f"Book {nights} nights in {city} for {nights * 90} euros?", Consent)
        return f"{answer.action} {answer.content.seat if answer.content is not None else ''}".strip()

    @app.tool
    async def ask(question: str, ctx: Context) -> str:
        "Ask the client's model."
        answer = await ctx.sample(question, max_tokens=10)
        return f"it says {answer.text}"

    @app.tool
    async def convert(amount: float, ctx: Context, steps: int = 5) -> str:
        "Convert currencies, and tell how far it is."
        for n in range(steps):
            await ctx.progress(n + 1, steps, f"step {n + 1}")
            await ctx.info(f"asked source {n + 1}")
        return f"{amount * 1.1:.2f}"

    @app.tool
    async def wait(ctx: Context) -> str:
        "Wait until the caller leaves."
        await ctx.progress(1, 4, "waiting")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            left.set()
            raise
        return ""

    @app.tool
    def forecast(city: str, days: int = 3) -> list[dict[str, Any]]:
        "The weather of the next days."
        return [{"day": n, "sky": "clear", "high": 21 + n} for n in range(days)]

    @app.resource("trip://{id}/plan")
    def plan(id: str) -> str:
        "The plan of a trip."
        return f"Trip {id}: arrive, look, leave."

    @app.resource("trip://cities", mime_type="application/json")
    def cities() -> str:
        "All cities."
        return '["Lisbon","Lima"]'

    @app.prompt
    def pack(place: str, season: str = "summer") -> str:
        "What to pack."
        return f"What should I pack for {place} in {season}?"

    return app


left: asyncio.Event = asyncio.Event()
"""The caller of `wait` has left."""
