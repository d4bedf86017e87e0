"""The last messages, on the console that was asked to show them."""

from __future__ import annotations

from dragoman import Service, connect, serve

from .ends import Ends, with_console


async def test_messages_are_shown_where_that_was_asked_for_and_secrets_are_not() -> None:
    api = Service("shop")

    @api.method
    async def login(user: str, password: str) -> str:
        return user

    async with serve(api, urls="tcp://127.0.0.1:0", console=0, console_messages=True) as serving:
        assert serving.console is not None
        port, _, secret = serving.console.removeprefix("http://127.0.0.1:").partition("/#")
        ends = Ends(serving, None, None, int(port), secret)  # type: ignore[arg-type]
        async with connect(serving.urls[0]) as peer:
            assert await peer.call("login", {"user": "ada", "password": "hunter2"}) == "ada"
        found = await ends.get("/api/messages")
        assert (found["kept"], found["count"]) == (2, 2)
        answer, question = found["messages"]
        assert (question["direction"], question["method"], question["wire"]) == ("in", "login", "tcp")
        assert '"user":"ada"' in question["text"]
        assert "hunter2" not in question["text"]
        assert (answer["direction"], answer["outcome"]) == ("out", "result")
        assert [one["seq"] for one in (await ends.get("/api/messages?q=status:result"))["messages"]] == [answer["seq"]]
        assert len((await ends.get("/api/messages?limit=1"))["messages"]) == 1
        for wrong in ("q=size:x", "q=nothing:x", "limit=0", "before=x"):
            assert (await ends.send(ends.request(f"/api/messages?{wrong}"))).status == 400


async def test_without_asking_none_are_kept() -> None:
    async with with_console(Service("s")) as ends:
        answer = await ends.send(ends.request("/api/messages"))
        assert (answer.status, answer.json["error"].split(":")[0]) == (404, "No messages are kept here")
