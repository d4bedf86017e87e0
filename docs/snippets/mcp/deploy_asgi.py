import asyncio

# [asgi]
from starlette.applications import Starlette
from starlette.routing import Mount
from weather import app as weather

from dragoman import http_app

app = http_app({"/mcp": weather}, hosts=["weather.example", "127.0.0.1"], origins=["https://chat.example"])
site = Starlette(routes=[Mount("/tools", app=http_app(weather))])  # uvicorn deploy_asgi:site
# [/asgi]
import uvicorn

from dragoman.mcp import Client

HERE = "http://127.0.0.1:8000"


async def main() -> None:
    for application, path in ((app, "/mcp"), (site, "/tools/")):
        server = uvicorn.Server(
            uvicorn.Config(application, port=int(HERE.rpartition(":")[2]), log_level="error", lifespan="on")
        )
        running = asyncio.ensure_future(server.serve())
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with Client(HERE + path) as client:
            print((await client.call_tool("forecast", {"city": "Lhasa"}, result=dict))["celsius"])  # 21.5
        server.should_exit = True
        await running


asyncio.run(main())
