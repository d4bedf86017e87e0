# [declares]
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from dragoman.mcp import Extension, ResultType, Row, StatefulForm, Topic


class JobParams(Struct, rename="camel"):
    job_id: str
    answers: dict[str, Raw] = {}


class Job(Struct, rename="camel"):
    """In place of a tool's result: it goes on as a job."""

    job_id: str


class OldJob(Struct):
    job: Job


class JobState(Struct, rename="camel"):
    questions: dict[str, Any] = {}
    result: Raw | UnsetType = UNSET


JOBS = Extension(
    name="com.example/jobs",
    stage="experimental",
    capabilities=lambda revision: {"com.example/jobs": {"since": revision.date}},
    methods=(Row("com.example/job", JobParams, JobState, named="jobId"),),
    results={"job": ResultType(type=Job, stateful=StatefulForm(type=OldJob, member="job", convert=OldJob))},
    topics=(Topic(name="jobs", method="notifications/com.example/job", member="jobIds"),),
    options={"tool": {"slow": bool}},
)
# [/declares]
# [server]
import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from dragoman.mcp import AskParked, Context, Server, ServerExtension, ServerHome, TopicGrant


@dataclass
class Work:
    """A job on the server."""

    owner: str | None
    questions: dict[str, Any] = field(default_factory=dict)
    answered: dict[str, asyncio.Future[Raw]] = field(default_factory=dict)
    result: Raw | UnsetType = UNSET


class ServerJobs(ServerExtension):
    declares = JOBS
    home: ServerHome

    def __init__(self) -> None:
        self.work: dict[str, Work] = {}
        self.ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self, home: ServerHome) -> AsyncIterator[None]:
        self.home = home
        home.lead("sweep", self.sweep)
        yield

    async def sweep(self) -> None:  # on one replica at a time
        while True:
            await asyncio.sleep(3600)
            self.work = {id: one for id, one in self.work.items() if one.result is UNSET}

    async def around(self, call: Any, next: Any) -> Any:
        admitted, id = call.params, secrets.token_urlsafe()
        if not (admitted.surroundings.extended.get("slow") and admitted.has_declared(JOBS.name)):
            return await next(call)
        one = self.work[id] = Work(admitted.principal)

        async def park(requests: dict[str, Any]) -> dict[str, Raw]:
            one.questions = requests
            one.answered = {key: asyncio.get_running_loop().create_future() for key in requests}
            self.home.notify("jobs", id, {"jobId": id})
            async with asyncio.timeout(3600):  # or the call keeps its place for ever
                return {key: await answer for key, answer in one.answered.items()}

        async def end() -> None:
            one.result = await detached.result
            self.home.notify("jobs", id, {"jobId": id})

        detached = self.home.run_detached(call, next, asker=AskParked(park), about=id)
        self.ending.add(task := asyncio.create_task(end()))
        task.add_done_callback(self.ending.discard)
        return Job(id)

    @property
    def handlers(self) -> dict[str, Any]:
        return {"com.example/job": self.state_of}

    async def state_of(self, params: JobParams, ctx: Context) -> JobState:
        one = self.work.get(params.job_id)
        if one is None or one.owner != ctx.principal:
            raise LookupError("there is no such job")
        for key, answer in params.answers.items():
            if key in one.questions and one.questions.pop(key) and not one.answered[key].done():
                one.answered[key].set_result(answer)
        return JobState(dict(one.questions), one.result)

    def grant(self, topic: str, caller: Any, value: Any) -> TopicGrant | None:
        owner = None if caller.identity is None else caller.identity.principal
        ids = [id for id in value if isinstance(id, str)] if isinstance(value, list) else []
        mine = [id for id in ids if id in self.work and self.work[id].owner == owner]
        return TopicGrant(mine, frozenset(mine)) if mine else None


app = Server("lab", extensions=[ServerJobs()])
SLOW: dict[str, Any] = {"slow": True}


@app.tool(**SLOW)
async def train(rows: int, ctx: Context) -> str:
    """Train a model."""
    name = await ctx.elicit("How is the model called?", str)
    return f"{name.content} of {rows} rows"


# [/server]
# [client]
from dragoman.mcp import Client, ClientExtension, PendingResult


class ClientJobs(ClientExtension):
    declares = JOBS

    async def settle(self, pending: PendingResult) -> Raw:
        result: Any = pending.result
        job: Job = result.job if isinstance(result, OldJob) else result
        params = JobParams(job.job_id)
        while True:
            state: JobState = await pending.client.request("com.example/job", params)
            if not isinstance(state.result, UnsetType):
                return state.result
            params = JobParams(job.job_id, await pending.client.answer(state.questions))
            await asyncio.sleep(0.05)


async def main() -> None:
    async with Client(app, extensions=[ClientJobs()], on_elicit=lambda question: {"value": "Ada"}) as client:
        print((await client.call_tool("train", {"rows": 3})).text)  # Ada of 3 rows


asyncio.run(main())
# [/client]
