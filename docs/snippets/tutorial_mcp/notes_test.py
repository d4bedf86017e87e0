import pytest
from notes import NOTES, app

from dragoman.mcp import Client, ElicitRequestParams

pytestmark = pytest.mark.asyncio
BOTH_ERAS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


@BOTH_ERAS
async def test_a_note_is_found_and_read(revision: str) -> None:
    async with Client(app, revision=revision) as client:
        await client.call_tool("add", {"name": "rice", "text": "Two parts of water."})
        assert await client.call_tool("search", {"words": "water"}, result=list[dict[str, str]]) == [
            {"name": "rice", "text": "Two parts of water."}
        ]
        read = await client.read_resource("note:///rice")
        assert read.contents[0].text == "Two parts of water."


@BOTH_ERAS
async def test_nothing_is_deleted_without_consent(revision: str) -> None:
    def refuse(asked: ElicitRequestParams) -> bool:
        return False

    async with Client(app, revision=revision, on_elicit=refuse) as client:
        assert await client.call_tool("delete", {"name": "tea"}, result=str) == "kept"
    assert "tea" in NOTES
