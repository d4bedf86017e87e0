"""One server, clients of every revision, on one port; the client finds out what the server speaks."""

import asyncio

from weather import Forecast, app

from dragoman import serve
from dragoman.mcp import Client


async def main() -> None:
    async with serve(app, urls="http://127.0.0.1:8000/mcp"):
        async with Client("http://127.0.0.1:8000/mcp") as client:
            print(client.revision.date)  # 2026-07-28
            forecast = await client.call_tool("forecast", {"city": "Lhasa"}, result=Forecast)
            print(forecast.sky)  # sunny in Lhasa, CN
        for revision in ("2025-03-26", "2025-06-18", "2025-11-25"):
            async with Client("http://127.0.0.1:8000/mcp", revision=revision) as client:
                forecast = await client.call_tool("forecast", {"city": "Lhasa"}, result=Forecast)
                print(client.revision.date, forecast.celsius)  # 2025-...


if __name__ == "__main__":
    asyncio.run(main())
