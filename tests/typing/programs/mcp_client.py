"""The client of MCP."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.mcp import Client, ElicitRequestParams, ElicitResult, ProgressNotificationParams, Server, Tool


@dataclass
class Weather:
    degrees: float


def asked(params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="decline")


def told(step: ProgressNotificationParams) -> None:
    print(step.progress)


async def main(server: Server) -> None:
    async with Client(server, on_elicit=asked, roots=["/tmp"], timeout=None) as client:
        tools: list[Tool] = await client.list_tools()
        found = await client.call_tool("forecast", {"city": "Beijing"}, result=Weather, on_progress=told)
        degrees: float = found.degrees
        plain = await client.call_tool("forecast", {"city": "Beijing"}, timeout=3, total=9)
        print(tools, degrees, plain.is_error, client.revision.date)
    async with Client(["python", "server.py"], env={"A": "b"}, restart=True) as client:
        await client.read_resource("note://a", version="2")
        async with client.subscribe(["note://a"], tools=True) as changes:
            async for change in changes:
                print(change.kind)


async def mistaken(client: Client) -> None:
    Client(7)  # wrong: a URL, a command or a server
    Client("http://a.example/mcp", timeout="3")  # wrong: seconds are a number
    Client("http://a.example/mcp", tls="cert.pem")  # wrong: an SSLContext
    Client("http://a.example/mcp", on_elicit=lambda: True)  # wrong: it gets the params
    Client("http://a.example/mcp", elicit=asked)  # wrong: misspelt
    with Client("http://a.example/mcp"):  # wrong: async with
        pass
    await client.call_tool("forecast", ["Beijing"])  # wrong: arguments have names
    name: str = await client.call_tool("forecast", result=Weather)  # wrong: a Weather
    tools: list[Tool] = client.list_tools()  # wrong: not awaited
    await client.capabilities  # wrong: nothing to await
    await client.get_prompt("greet", {"times": 3})  # wrong: arguments of prompts are text
    print(name, tools)
