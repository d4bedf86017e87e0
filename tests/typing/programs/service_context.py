"""The context of a call: what is known, calls back, progress, the store."""

from __future__ import annotations

from dragoman import Context, LocalError, Peer, Service

api = Service("chat")
peers: dict[str, Peer] = {}


@api.method
async def join(name: str, ctx: Context) -> list[str]:
    if ctx.peer is None:
        raise LocalError("this wire carries no calls back")
    peers[name] = ctx.peer
    greeted = await ctx.peer.call("greet", [name], result=str, timeout=5)
    await ctx.notify("joined", {"name": name})
    sent: bool = await ctx.progress({"step": 1})
    answers = await ctx.call_all([("a", []), ("b", [])], result=int, timeout=None)
    await ctx.store.set("greeted", greeted, ttl=60)
    keys: list[str] = await ctx.store.keys("gr")
    ctx.log.info("%s of %s: %s, %s", ctx.method, ctx.caller.remote, sent, answers)
    return keys


@api.method
def leave(name: str, ctx: Context) -> float | None:
    ctx.notify("left", {"name": name})
    ctx.store.set("left", name)
    keys: list[str] = ctx.store.keys()
    ctx.values["keys"] = keys
    who = None if ctx.identity is None else ctx.identity.subject
    ctx.log.info("%s", who)
    return ctx.time_left


@api.method
async def mistaken(ctx: Context) -> None:
    await ctx.peer.call("greet")  # wrong: it may be None
    await ctx.call("greet", timeout="3")  # wrong: seconds are a number
    await ctx.cancelled  # wrong: a bool
    await ctx.store.set("a", 1, ttl="60")  # wrong: seconds are a number
    count: int = await ctx.store.keys()  # wrong: a list of text
    print(ctx.headers["accept"] + 1, count)  # wrong: text
    print(ctx.identiy)  # wrong: misspelt
