# [traces]
import asyncio

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from calculator import api
from dragoman import connect, serve
from dragoman.telemetry import Traces

spans = InMemorySpanExporter()  # or OTLPSpanExporter(endpoint="http://127.0.0.1:4318/v1/traces")
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
traces = Traces(provider)  # Traces() takes the global provider


async def main() -> None:
    async with serve(api, urls="http://127.0.0.1:0", observers=[traces]) as serving:
        async with connect(serving.urls[0], observers=[traces]) as peer:
            await peer.call("subtract", [42, 23])
    server, client = spans.get_finished_spans()
    print(server.name, server.kind.name, client.kind.name)
    print(server.parent.span_id == client.context.span_id)


# [/traces]
asyncio.run(main())
# print(...)  # subtract SERVER CLIENT
# print(...)  # True
