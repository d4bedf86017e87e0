# [metrics]
import asyncio

from calculator import api
from dragoman import connect, serve
from dragoman.telemetry import Metrics, MetricsPage

metrics = Metrics()


async def main() -> None:
    async with (
        serve(api, urls="http://127.0.0.1:0", observers=[metrics]) as serving,
        serve(MetricsPage(metrics.text), urls="http://127.0.0.1:0"),  # GET /metrics
        connect(serving.urls[0]) as peer,
    ):
        print(await peer.call("subtract", [42, 23]))
        print(metrics.text().decode().splitlines()[2])


# [/metrics]
asyncio.run(main())
# print(...)  # 19
# print(...)  # dragoman_calls_total{service="calculator",method="subtract",outcome="result"} 1
