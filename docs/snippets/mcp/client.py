# [client]
import asyncio
import sys

from weather import Forecast

from dragoman.mcp import Client

COMMAND = [sys.executable, "-m", "dragoman", "serve", "weather.py", "stdio:"]


async def main() -> None:
    async with Client(COMMAND, stderr=lambda line: None) as client:
        print(client.server.name, client.revision.date)  # weather 2026-07-28
        [tool] = await client.list_tools()
        print(tool.name, tool.input_schema["required"])  # forecast ['city']
        result = await client.call_tool("forecast", {"city": "Beijing"})
        print(result.structured_content["celsius"])  # 21.5
        forecast = await client.call_tool("forecast", {"city": "Beijing"}, result=Forecast, timeout=5)
        print(forecast)  # Forecast(sky='sunny in Beijing, CN', celsius=21.5)


asyncio.run(main())
# [/client]
