# [test]
import pytest
from weather import Forecast, app, forecast

from dragoman.mcp import Client

pytestmark = pytest.mark.asyncio
BOTH_ERAS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


@BOTH_ERAS
async def test_forecast(revision: str) -> None:
    async with Client(app, revision=revision) as client:  # no wire, the whole protocol
        found = await client.call_tool("forecast", {"city": "Lhasa"}, result=Forecast)
        assert found.sky == "sunny in Lhasa, CN"


@BOTH_ERAS
async def test_a_model_is_told_every_fault(revision: str) -> None:
    async with Client(app, revision=revision) as client:
        failed = await client.call_tool("forecast", {"ciyt": "Lhasa"})
        assert failed.is_error
        assert "city: Missing argument" in failed.content[0].text
        assert "did you mean 'city'?" in failed.content[0].text


async def test_the_function() -> None:
    assert forecast("Lhasa").celsius == 21.5  # it stays a function


# [/test]
