"""Which era a server speaks, found out by asking (basic/versioning, basic/transports/stdio, basic/lifecycle)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dragoman.channel import ChannelError, Ended
from dragoman.jsonrpc.errors import BadAnswer, CallTimeout, LocalError, RpcError
from dragoman.mcp.client.client import Client
from dragoman.mcp.client.negotiation import RevisionMemory
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, R2026_07, REVISIONS

from ..scripted import META, Dies, Error, Message, Result, Scripted, discovered, initialized, legacy, modern, said


async def test_a_modern_server_is_discovered_and_spoken_to_statelessly() -> None:
    """basic/versioning: "Every request declares the protocol version it is using in its `_meta` field"."""
    server = modern(lambda message: [said("hi")], tools={})
    async with Client(server, name="ours", version="2", title="Ours") as client:
        assert client.revision is R2026_07
        assert client.server is not None
        assert client.server.name == "scripted"
        assert client.instructions == "be brief"
        await client.call_tool("greet")
    assert server.methods() == ["server/discover", "tools/call"]
    for message in server.heard:
        meta = message["params"]["_meta"]
        assert meta[f"{META}protocolVersion"] == "2026-07-28"
        assert meta[f"{META}clientInfo"] == {"name": "ours", "version": "2", "title": "Ours"}
        assert meta[f"{META}clientCapabilities"] == {}


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32000, -32002, 1])
async def test_any_other_error_means_a_legacy_server(code: int) -> None:
    """basic/transports/stdio: "The fallback MUST NOT be keyed to one specific error code"."""

    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "server/discover":
            return [Error(code)]
        return [initialized()] if message["method"] == "initialize" else []

    server = Scripted(script)
    async with Client(server) as client:
        assert client.revision is R2025_11
        assert client.instructions == "be brief"
    assert server.methods() == ["server/discover", "initialize", "notifications/initialized"]
    # "This SHOULD be the latest version supported by the client" (basic/lifecycle)
    assert server.of("initialize")[0]["params"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("answer", [Result({}), Result([]), Result({"tools": []})])
async def test_a_result_that_is_not_a_discovery_means_a_legacy_server(answer: Result) -> None:
    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "server/discover":
            return [answer]
        return [initialized()] if message["method"] == "initialize" else []

    async with Client(Scripted(script)) as client:
        assert client.revision is R2025_11


async def test_silence_means_a_legacy_server_and_the_question_is_taken_back() -> None:
    """basic/transports/stdio: "or does not respond within a reasonable timeout: the server is legacy"."""

    def script(message: Message) -> Iterable[Any]:
        return [initialized()] if message["method"] == "initialize" else []

    server = Scripted(script)
    async with Client(server, probe=0.01) as client:
        assert client.revision is R2025_11
        await client._session.peer.notify("notifications/roots/list_changed")
    assert server.methods()[:2] == ["server/discover", "initialize"]
    assert server.of("notifications/cancelled")[0]["params"]["requestId"] == server.heard[0]["id"]


async def test_a_modern_server_that_starts_slowly_is_modern_still() -> None:
    held: list[Message] = []

    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "server/discover":
            held.append(message)
        elif message["method"] == "initialize":
            server.say(discovered(), held[0])
            return [Error(-32601)]
        return []

    server = Scripted(script)
    async with Client(server, probe=0.01) as client:
        assert client.revision is R2026_07


@pytest.mark.parametrize("late", [discovered(), Error(-32022, data={"supported": ["2026-07-28"], "requested": "x"})])
async def test_a_server_of_both_eras_that_starts_slowly_is_reached_again_and_spoken_to_statelessly(late: Any) -> None:
    """basic/versioning: "An `initialize` request selects legacy semantics, scoped to the stdio process"."""
    held: list[Message] = []

    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "server/discover":
            if held:
                return [discovered()]
            held.append(message)
        elif message["method"] == "initialize":
            server.say(late, held[0])
            return [initialized()]
        return []

    server = Scripted(script)
    async with Client(server, probe=0.01) as client:
        assert client.revision is R2026_07
    assert server.methods() == ["server/discover", "initialize", "notifications/initialized", "server/discover"]


@pytest.mark.parametrize("late", [Error(-32601), Result({"tools": []}), discovered(("2025-11-25",))])
async def test_a_legacy_server_that_starts_slowly_is_reached_once(late: Any) -> None:
    held: list[Message] = []

    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "server/discover":
            held.append(message)
        elif message["method"] == "initialize":
            server.say(late, held[0])
            return [initialized()]
        return []

    server = Scripted(script)
    async with Client(server, probe=0.01) as client:
        assert client.revision is R2025_11
    assert server.methods() == ["server/discover", "initialize", "notifications/initialized"]


async def test_our_server_that_starts_slowly_is_started_again_and_spoken_to_statelessly(tmp_path: Path) -> None:
    """No program starts within 10 ms; its second start may take as long as a call."""
    program, starts = tmp_path / "server.py", tmp_path / "starts"
    program.write_text(
        f"from dragoman.mcp import Server\n\nopen({str(starts)!r}, 'a').write('x')\napp = Server('slow', version='1')\n"
    )
    command = [sys.executable, "-m", "dragoman", "serve", str(program), "stdio:"]
    async with Client(command, probe=0.01, stderr=lambda line: None) as client:
        assert client.revision is R2026_07
    assert starts.read_text() == "xx"


async def test_a_server_that_cannot_start_is_started_once(tmp_path: Path) -> None:
    """It has read nothing, so it did not die of the question."""
    program = tmp_path / "server.py"
    starts = tmp_path / "starts"
    program.write_text(f"open({str(starts)!r}, 'a').write('x')\nraise RuntimeError('no key in the environment')\n")
    with pytest.raises(Ended, match="no key in the environment"):
        async with Client([sys.executable, str(program)]):
            pass
    assert starts.read_text() == "x"


async def test_a_server_that_dies_of_the_question_is_started_again_and_asked_the_old_way(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    starts = tmp_path / "starts"
    program.write_text(f"open({str(starts)!r}, 'a').write('x')\ninput()\nraise RuntimeError('initialize first')\n")
    with pytest.raises(Ended, match="initialize first"):
        async with Client([sys.executable, str(program)]):
            pass
    assert starts.read_text() == "xx"


async def test_a_server_that_dies_of_the_question_is_reached_again_and_asked_the_old_way() -> None:
    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "server/discover":
            return [Dies()]
        return [initialized()] if message["method"] == "initialize" else []

    server = Scripted(script)
    async with Client(server) as client:
        assert client.revision is R2025_11
    assert server.attached == 2


@pytest.mark.parametrize("times", [1, 2])
async def test_a_refused_version_is_asked_again_with_a_common_one(times: int) -> None:
    """basic/versioning: "The client SHOULD select a mutually supported version from the `supported` list and retry"."""
    left = times
    data = {"supported": ["2099-01-01", "2026-07-28", "2025-11-25"], "requested": "x"}

    def answers(message: Message) -> Iterable[Any]:
        nonlocal left
        left -= 1
        return [Error(-32022, "Unsupported", data)] if left >= 0 else [said("hi")]

    server = modern(answers)
    async with Client(server) as client:
        if times == 1:
            await client.call_tool("greet")
        else:
            with pytest.raises(RpcError, match="Unsupported"):
                await client.call_tool("greet")
    assert len(server.of("tools/call")) == 2


async def test_a_modern_server_without_our_version_is_spoken_to_by_its_older_one() -> None:
    """basic/transports/stdio: "Use one of the versions in its advertised `supported` list"."""

    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "server/discover":
            return [Error(-32022, "Unsupported", {"supported": ["2099-01-01", "2025-06-18"], "requested": "x"})]
        return [initialized("2025-06-18")] if message["method"] == "initialize" else []

    server = Scripted(script)
    async with Client(server) as client:
        assert client.revision is R2025_06
    assert server.of("initialize")[0]["params"]["protocolVersion"] == "2025-06-18"


@pytest.mark.parametrize("supported", [["2099-01-01"], [], None, "2026-07-28"])
async def test_a_modern_server_with_nothing_in_common_is_a_clear_error(supported: Any) -> None:
    """basic/versioning: "or surface an error to the user if no compatible version exists"."""
    server = Scripted(lambda message: [Error(-32022, "Unsupported", {"supported": supported, "requested": "x"})])
    with pytest.raises(BadAnswer, match="no common revision"):
        await Client(server).__aenter__()
    assert server.methods() == ["server/discover"]  # "Do not fall back to `initialize`"


async def test_a_server_that_refuses_a_revision_and_says_that_it_speaks_it_is_asked_no_more() -> None:
    """One that has just been upgraded may do so once, which is worth one more question."""
    data = {"supported": ["2026-07-28"], "requested": "2026-07-28"}
    server = Scripted(lambda message: [Error(-32022, "Unsupported", data)] if len(server.heard) < 9 else [Dies()])
    with pytest.raises(BadAnswer, match="refuses revision 2026-07-28 and says that it speaks it"):
        await Client(server).__aenter__()
    assert server.methods() == ["server/discover"] * 2


def test_what_servers_speak_is_remembered_of_so_many() -> None:
    known = RevisionMemory(3)
    for place in ("a", "b", "c", "a", "d"):
        known.put(place, R2025_11)
    assert [known.get(place) for place in "abcd"] == [R2025_11, None, R2025_11, R2025_11], "the oldest goes"
    known.put("a", None)
    known.put(None, R2025_11)
    assert known.get("a") is known.get(None) is None
    assert known.get("c") is R2025_11


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_other_modern_errors_are_not_a_reason_to_fall_back(code: int) -> None:
    server = Scripted(lambda message: [Error(code, "modern")])
    with pytest.raises(RpcError) as caught:
        await Client(server).__aenter__()
    assert caught.value.code == code
    assert server.methods() == ["server/discover"]


@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", ""])
async def test_a_handshake_in_a_version_not_spoken_here_disconnects(version: str) -> None:
    """basic/lifecycle: "If the client does not support the version in the server's response, it SHOULD disconnect"."""
    server = legacy(version=version)
    with pytest.raises(BadAnswer, match="answers with revision"):
        await Client(server).__aenter__()
    assert "notifications/initialized" not in server.methods()
    assert server.channel is not None
    with pytest.raises(ChannelError):
        await server.channel.flush()


@pytest.mark.parametrize("result", [{}, [], "2025-11-25", {"protocolVersion": 20251125, "capabilities": {}}])
async def test_the_result_of_a_handshake_that_does_not_fit_is_named(result: Any) -> None:
    def script(message: Message) -> Iterable[Any]:
        return [Error(-32601) if message["method"] == "server/discover" else Result(result)] if "id" in message else []

    with pytest.raises(BadAnswer, match="initialize: the result does not fit"):
        await Client(Scripted(script)).__aenter__()


async def test_a_broken_description_of_a_modern_server_is_left_out() -> None:
    found = discovered()
    found.value.setdefault("_meta", {})[f"{META}serverInfo"] = {"name": 7}
    async with Client(Scripted(lambda message: [found])) as client:
        assert client.revision is R2026_07
        assert client.server is None


@pytest.mark.parametrize("date", [date for date, one in REVISIONS.items() if one.stateful])
async def test_every_stateful_revision_can_be_forced(date: str) -> None:
    server = legacy(version=date)
    async with Client(server, revision=date) as client:
        assert client.revision.date == date
    assert server.methods() == ["initialize", "notifications/initialized"]
    assert server.of("initialize")[0]["params"]["protocolVersion"] == date


async def test_a_forced_revision_is_not_traded_for_another() -> None:
    with pytest.raises(BadAnswer, match="2025-06-18"):
        await Client(legacy(version="2025-06-18"), revision="2025-11-25").__aenter__()
    with pytest.raises(BadAnswer, match="does not speak revision 2026-07-28"):
        await Client(legacy(), revision=R2026_07).__aenter__()
    with pytest.raises(LocalError, match="there is no revision"):
        Client(legacy(), revision="2025-01-07")


async def test_a_dead_server_is_an_error_at_once() -> None:
    server = Scripted(lambda message: [Dies()])
    with pytest.raises(ChannelError):
        await Client(server).__aenter__()


async def test_a_silent_server_is_an_error_in_time() -> None:
    with pytest.raises(CallTimeout):
        await Client(Scripted(lambda message: []), timeout=0.02, probe=0.01).__aenter__()


async def test_an_answer_that_is_none_means_a_legacy_server() -> None:
    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "server/discover":
            return [{"jsonrpc": "2.0", "id": message["id"], "result": {}, "error": {"code": 1, "message": "and both"}}]
        return [initialized()] if message["method"] == "initialize" else []

    async with Client(Scripted(script)) as client:
        assert client.revision is R2025_11


async def test_nonsense_is_an_error_at_once() -> None:
    both = {"jsonrpc": "2.0", "result": {}, "error": {"code": 1, "message": "and both"}}
    server = Scripted(lambda message: [both | {"id": message["id"]}] if "id" in message else [])
    with pytest.raises(BadAnswer):
        await Client(server).__aenter__()


async def test_the_error_of_a_refused_handshake_comes_out() -> None:
    server = Scripted(lambda message: [Error(-32602, "Unsupported protocol version")] if "id" in message else [])
    with pytest.raises(RpcError, match="Unsupported protocol version"):
        await Client(server).__aenter__()


SERVER = """
import json, sys
log = open(sys.argv[1], "a")
for line in sys.stdin:
    message = json.loads(line)
    print(message["method"], file=log, flush=True)
    if message["method"] == "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    if message["method"] == "ping":
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}), flush=True)
    if message["method"] == "die":
        sys.exit(3)
"""


@pytest.fixture
def command(tmp_path: Any) -> list[str]:
    """A server of the stateful era as a command; it writes what it was called by into `log`."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return [sys.executable, str(script), str(tmp_path / "log")]


def heard(command: list[str]) -> list[str]:
    """What the command was called by."""
    return Path(command[-1]).read_text().split()


async def test_what_a_command_speaks_is_remembered(command: list[str]) -> None:
    """basic/versioning: "Clients SHOULD cache the result for the lifetime of the server process (stdio) or origin"."""
    for _ in range(2):
        async with Client(command) as client:
            assert client.revision is R2025_11
    assert heard(command) == [
        "server/discover",
        *["initialize", "notifications/initialized"] * 2,
    ]


async def test_a_command_that_dies_fails_its_calls_and_is_started_again(command: list[str]) -> None:
    """basic/transports/stdio: "If the server process exits unexpectedly, the client SHOULD restart it"."""
    async with Client(command, restart=True) as client:
        with pytest.raises(ChannelError, match="exit status 3"):
            await client.call("die")
        await client.ping()


async def test_without_restart_a_dead_command_stays_dead(command: list[str]) -> None:
    async with Client(command) as client:
        with pytest.raises(ChannelError):
            await client.call("die")
        with pytest.raises(ChannelError, match="exit status 3"):
            await client.ping()
