"""What FastMCP and FastAPI make of signatures: run by `signatures`, in an environment that has them.

Reads {"signatures": [...], "pool": [...]}, writes {signature: {"fastmcp": ..., "fastapi": ...}}, both as JSON.
"""

import asyncio
import json
import sys
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
sys.path.insert(0, str(Path(__file__).parent))


def function(signature: str, taken: list[str]) -> Any:
    """A function with this signature that keeps what it receives."""
    import signature_types  # type: ignore[import-not-found, unused-ignore]

    names: dict[str, Any] = dict(vars(signature_types)) | {"_taken": taken}
    if "Body(" in signature:
        from fastapi import Body

        names["Body"] = Body
    exec(f"def tried({signature}) -> None:\n    _taken.append(repr(it))", names)
    return names["tried"]


async def fastmcp(signature: str, pool: list[Any]) -> dict[str, Any]:
    """What FastMCP makes of it."""
    from fastmcp.tools import Tool  # type: ignore[import-not-found, unused-ignore]

    taken: list[str] = []
    try:
        tool = Tool.from_function(function(signature, taken))
    except Exception as error:
        return {"refused": str(error).partition("\n")[0]}
    (name,) = tool.parameters["properties"] or ("it",)
    verdicts: list[str | None] = []
    for params in [{}, *({name: value} for value in pool)]:
        taken.clear()
        try:
            await tool.run(params)
        except Exception:
            verdicts.append(None)
        else:
            verdicts.append(taken[0])
    return {"name": name, "schema": tool.parameters, "verdicts": verdicts}


def of_a_body(signature: str) -> str:
    """The signature with its parameter as a member of FastAPI's body."""
    hint, _, default = signature.removeprefix("it: ").partition(" = ")
    if default.startswith("Field("):
        return f"it: {hint} = Body(embed=True, " + default.removeprefix("Field(").replace("default=", "default=")
    return f"it: Annotated[{hint}, Body(embed=True)]" + (f" = {default}" if default else "")


def fastapi(signature: str, pool: list[Any]) -> dict[str, Any]:
    """What FastAPI makes of it."""
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    taken: list[str] = []
    app = FastAPI()
    try:
        text = of_a_body(signature)
        if "Body(embed=True, " in text:  # a default that stands by position comes first
            head, _, rest = text.partition("Body(embed=True, ")
            first = rest.split(",")[0].rstrip(")")
            text = f"{head}Body({rest[:-1]}, embed=True)" if "=" not in first or first == "..." else text
        app.post("/")(function(text, taken))
        document = app.openapi()
        parts = document["components"]["schemas"]
        schema = parts.get("Body_tried__post") or {"properties": {}}
        (name,) = schema["properties"] or ("it",)
    except Exception as error:
        return {"refused": str(error).partition("\n")[0]}
    client = TestClient(app, raise_server_exceptions=False)
    verdicts: list[str | None] = []
    for params in [{}, *({name: value} for value in pool)]:
        taken.clear()
        answer = client.post("/", json=params)
        verdicts.append(taken[0] if answer.status_code == 200 and taken else None)
    text = json.dumps({"schema": schema, "$defs": {k: v for k, v in parts.items() if not k.startswith("Body_")}})
    found = json.loads(text.replace("#/components/schemas/", "#/$defs/"))
    return {"name": name, "schema": found["schema"] | {"$defs": found["$defs"]}, "verdicts": verdicts}


def main() -> None:
    """Answer what was asked."""
    asked = json.load(sys.stdin)
    found = {}
    for one in asked["signatures"]:
        found[one] = {"fastmcp": asyncio.run(fastmcp(one, asked["pool"])), "fastapi": fastapi(one, asked["pool"])}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
