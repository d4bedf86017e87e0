"""Tools (and a prompt) that ask the client: by a request of their own where the server may call, by `input_required`
where it may not. The same handlers serve both."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from dragoman.mcp import Context, CreateMessageResult, Elicit, Elicited, Roots, Sample, Server, TextContent


class Name(Struct):
    """A form with one field."""

    name: str


class Color(Struct):
    """A form with one field."""

    color: str


class Confirmation(Struct):
    """A form with one switch."""

    ok: bool


class Circumstances(Struct):
    """A form with one field."""

    context: str


class User(Struct):
    """A form with two fields."""

    username: str
    email: str


class Profile(Struct):
    """A form with a default for every kind of value."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def titled(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Choices with titles."""
    return [{"const": value, "title": title} for value, title in pairs]


OPTIONS = ["option1", "option2", "option3"]
ENUMS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {
            "type": "string",
            "oneOf": titled([("value1", "First Option"), ("value2", "Second Option"), ("value3", "Third Option")]),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": titled([("value1", "First Choice"), ("value2", "Second Choice"), ("value3", "Third Choice")])
            },
        },
    },
}


def questions(app: Server) -> None:
    """Register them."""
    calls(app)
    single(app)
    several(app)
    capabilities(app)

    @app.prompt
    async def test_input_required_result_prompt(ctx: Context) -> str:
        """Asks for the context before it answers."""
        answer = await ctx.elicit("What context should the prompt use?", Circumstances, key="user_context")
        return f"Use this context: {answer.content.context if answer.content else 'none'}"


def outcome(answer: Elicited[Any]) -> str:
    """What the user did, in the suite's words."""
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


def said(answer: CreateMessageResult) -> str:
    """The text of a sampled message."""
    blocks = answer.content if isinstance(answer.content, list) else [answer.content]
    return " ".join(block.text for block in blocks if isinstance(block, TextContent))


def calls(app: Server) -> None:
    """What the suite asks under the stateful revisions."""

    @app.tool
    async def test_sampling(prompt: str, ctx: Context) -> str:
        """Has the client's model answer a prompt."""
        return f"LLM response: {said(await ctx.sample(prompt, max_tokens=100))}"

    @app.tool
    async def test_elicitation(message: str, ctx: Context) -> str:
        """Asks the user for a name and an address."""
        answer = await ctx.elicit(message, User)
        return f"User response: action={answer.action}, content={answer.content}"

    @app.tool
    async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
        """Asks with a default for every kind of value."""
        return outcome(await ctx.elicit("Please review and update your profile", Profile))

    @app.tool
    async def test_elicitation_sep1330_enums(ctx: Context) -> str:
        """Asks with every kind of choice."""
        return outcome(await ctx.elicit("Please choose", ENUMS))


def single(app: Server) -> None:
    """One question, or one after the other."""

    @app.tool
    async def test_input_required_result_elicitation(ctx: Context) -> str:
        """Asks for a name."""
        answer = await ctx.elicit("What is your name?", Name, key="user_name")
        return f"Hello, {answer.content.name}!" if answer.content else f"No name: {answer.action}"

    @app.tool
    async def test_input_required_result_sampling(ctx: Context) -> str:
        """Has the client's model answer."""
        return said(await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question"))

    @app.tool
    async def test_input_required_result_list_roots(ctx: Context) -> str:
        """Lists the client's roots."""
        return "Roots: " + ", ".join(root.uri for root in await ctx.roots(key="client_roots"))

    @app.tool
    async def test_input_required_result_request_state(ctx: Context) -> str:
        """Asks for a confirmation; the state must come back whole."""
        answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
        return f"state-ok: {answer.content.ok if answer.content else answer.action}"

    @app.tool
    async def test_input_required_result_tampered_state(ctx: Context) -> str:
        """Asks for a confirmation; a state that was tampered with is refused."""
        answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
        return f"confirmed: {answer.content.ok if answer.content else answer.action}"

    @app.tool
    async def test_input_required_result_multi_round(ctx: Context) -> str:
        """Asks twice, one after the other."""
        first = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
        second = await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
        name, color = first.content and first.content.name, second.content and second.content.color
        return f"{name} likes {color}"


def several(app: Server) -> None:
    """Three questions together."""

    @app.tool
    async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
        """Asks the user, the model and the client at once."""
        name, greeting, roots = await ctx.ask(
            Elicit("What is your name?", Name, key="user_name"),
            Sample(messages="Generate a greeting", max_tokens=50, key="greeting"),
            Roots(key="client_roots"),
        )
        who = name.content.name if name.content else name.action
        return f"{said(greeting)} {who}: {len(roots)} roots"


def capabilities(app: Server) -> None:
    """What is asked depends on what the client has declared."""

    @app.tool
    async def test_missing_capability(ctx: Context) -> str:
        """Needs a client that samples."""
        return said(await ctx.sample("Say hello", max_tokens=10))

    @app.tool
    async def test_input_required_result_capabilities(ctx: Context) -> str:
        """Asks the user where it can, and the model otherwise."""
        if ctx.capabilities.elicitation:
            answer = await ctx.elicit("What is your name?", Name, key="user_name")
            return f"Hello, {answer.content.name if answer.content else answer.action}!"
        return said(await ctx.sample("Generate a greeting", max_tokens=50, key="greeting"))

    @app.tool
    async def test_streaming_elicitation(ctx: Context) -> str:
        """Speaks, asks where it can, and answers."""
        await ctx.progress(1, 2)
        if ctx.capabilities.elicitation:
            answer = await ctx.elicit("What is your name?", Name)
            return f"{answer.action} after progress"
        return "No person to ask"
