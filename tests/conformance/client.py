"""The client that the official conformance suite drives: `python -m tests.conformance.client URL`.

The suite names the scenario in MCP_CONFORMANCE_SCENARIO and further facts in MCP_CONFORMANCE_CONTEXT. Which revision
its server speaks (MCP_CONFORMANCE_PROTOCOL_VERSION, not always true) the client finds out by itself. Exit status 0 says
that the scenario was played to its end.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from dragoman.auth import ClientCredentials, Enterprise, Login, MemoryStore, Workload
from dragoman.mcp import (
    Client,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    TextContent,
)

Play = Callable[[Client], Awaitable[None]]

SCENARIOS: dict[str, Play] = {}
"""What to do with a client that is open."""


def scenario(*names: str) -> Callable[[Play], Play]:
    """Register a play."""

    def register(play: Play) -> Play:
        SCENARIOS.update(dict.fromkeys(names, play))
        return play

    return register


def context() -> dict[str, Any]:
    """The scenario's further facts."""
    found: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    return found


def accept(params: ElicitRequestParams) -> ElicitResult:
    """A user who presses Enter: every field keeps its default."""
    return ElicitResult(action="accept", content={})


def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
    """A model that has one thing to say."""
    return CreateMessageResult(role="assistant", content=TextContent("Hello"), model="none")


@scenario("initialize", "json-schema-ref-no-deref", "request-metadata")
async def listing(client: Client) -> None:
    """Only list."""
    await client.list_tools()


@scenario("tools_call")
async def adding(client: Client) -> None:
    """List, then add."""
    names = [tool.name for tool in await client.list_tools()]
    assert "add_numbers" in names, names
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


@scenario("elicitation-sep1034-client-defaults")
async def defaults(client: Client) -> None:
    """The client fills the defaults in."""
    await client.list_tools()
    await client.call_tool("test_client_elicitation_defaults")


@scenario("sse-retry")
async def reconnecting(client: Client) -> None:
    """The answer comes after the stream was closed and opened again."""
    await client.list_tools()
    await client.call_tool("test_reconnection")


@scenario("sep-2322-client-request-state")
async def asked(client: Client) -> None:
    """Answer what is asked, and carry the state."""
    await client.list_tools()
    names = ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type")
    for name in names:
        await client.call_tool(name)


@scenario("http-standard-headers")
async def everything(client: Client) -> None:
    """List, call, read and get whatever there is."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name)
    if client.capabilities.resources:
        for resource in await client.list_resources():
            await client.read_resource(resource.uri)
    if client.capabilities.prompts:
        for prompt in await client.list_prompts():
            await client.get_prompt(prompt.name)


@scenario("http-custom-headers")
async def custom(client: Client) -> None:
    """The calls that the context names."""
    await client.list_tools()
    for call in context()["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


@scenario("http-invalid-tool-headers")
async def invalid(client: Client) -> None:
    """Only the tool whose annotations are valid is left in the list."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, dict.fromkeys(tool.input_schema.get("properties", {}), "value"))


@scenario("json-schema-2020-12-preservation")
async def preserved(client: Client) -> None:
    """Hand the schema of one tool to another as it came."""
    schemas = {tool.name: tool.input_schema for tool in await client.list_tools()}
    await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


# -- authorization


CIMD = "https://conformance-test.local/client-metadata.json"
"""The client id metadata document that the suite expects."""


def browse(url: str) -> str | None:
    """The browser of a user who says yes: where the authorization server sends it, which is not visited."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=10)
    try:
        connection.request("GET", f"{place.path}?{place.query}")
        return connection.getresponse().getheader("location")
    finally:
        connection.close()


def authorization(name: str) -> Any:
    """What the client is given as `auth`, by scenario."""
    given = context()
    match name:
        case "auth/client-credentials-jwt":
            return ClientCredentials(given["client_id"], key=given["private_key_pem"])
        case "auth/client-credentials-basic":
            return ClientCredentials(given["client_id"], secret=given["client_secret"])
        case "auth/enterprise-managed-authorization":
            return Enterprise(
                idp=given["idp_issuer"],
                idp_token_endpoint=given["idp_token_endpoint"],
                idp_client_id=given["idp_client_id"],
                id_token=given["idp_id_token"],
                client_id=given["client_id"],
                client_secret=given["client_secret"],
            )
        case "auth/wif-jwt-bearer":
            return Workload(lambda: str(given["valid_jwt"]), client_id=given["client_id"])
        case _:
            return Login(
                store=MemoryStore(),
                on_url=lambda url: asyncio.to_thread(browse, url),
                client_id=given.get("client_id"),
                client_secret=given.get("client_secret"),
                client_metadata_url=None if "client_id" in given else CIMD,
                dpop="dpop" in name,
            )


async def authorized(client: Client) -> None:
    """List, and call the first tool."""
    tools = await client.list_tools()
    if tools:
        await client.call_tool(tools[0].name)


async def main(url: str) -> int:
    """Play the scenario."""
    name = os.environ.get("MCP_CONFORMANCE_SCENARIO", "initialize")
    protected = name.startswith("auth/")
    play = authorized if protected else SCENARIOS.get(name)
    if play is None:
        print(f"{name} is not played here", file=sys.stderr)
        return 2
    async with Client(
        url,
        name="conformance",
        version="1.0.0",
        on_elicit=accept,
        on_sample=sample,
        roots=["file:///work"],
        auth=authorization(name) if protected else None,
    ) as client:
        await play(client)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
