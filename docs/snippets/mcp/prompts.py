# [prompts]
from dragoman.mcp import Context, PromptMessage, Server, TextContent

app = Server("review", version="1.0.0")


@app.prompt
def review(code: str, language: str = "python") -> str:
    "Ask for a review of some code."
    return f"Review this {language} code:\n\n{code}"


@app.prompt("interview", title="An interview")
async def prepare_interview(role: str) -> list[PromptMessage]:
    return [
        PromptMessage("user", TextContent(f"Interview me for the job of {role}.")),
        PromptMessage("assistant", TextContent("Gladly. What did you do last?")),
    ]


# [/prompts]
# [completion]
LANGUAGES = {"web": ["javascript", "typescript"], "data": ["python", "r", "sql"]}


@app.completion("review", "language")
async def languages(value: str, ctx: Context, arguments: dict[str, str]) -> list[str]:
    known = LANGUAGES.get(arguments.get("field", ""), ["python", "javascript", "rust"])
    return [name for name in known if name.startswith(value)]


# [/completion]
import asyncio

from dragoman.mcp import Client


async def main() -> None:
    async with Client(app) as client:
        assert [prompt.name for prompt in await client.list_prompts()] == ["review", "interview"]
        # [get]
        [prompt, *_] = await client.list_prompts()
        print([argument.name for argument in prompt.arguments])  # ['code', 'language']
        result = await client.get_prompt("review", {"code": "print(1)"})
        print(result.messages[0].role, result.messages[0].content.text.splitlines()[0])  # user Review this python code:
        print((await client.complete("review", "language", "p")).values)  # ['python']
        # [/get]
        assert len((await client.get_prompt("interview", {"role": "cook"})).messages) == 2


asyncio.run(main())
