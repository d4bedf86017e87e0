"""A world for flows: documents by URL, answers of endpoints in turn, and a person who says yes."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from msgspec import Struct

from dragoman.auth.client.person import DeviceCode
from dragoman.auth.client.tokens import Registration
from dragoman.auth.client.world import World
from dragoman.auth.fetch import By, Fetched

T = TypeVar("T")
RESOURCE = "https://mcp.example/mcp"
ISSUER = "https://as.example"
REDIRECT = "http://127.0.0.1:4711/callback"
AS = f"{ISSUER}/.well-known/oauth-authorization-server"
OIDC = f"{ISSUER}/.well-known/openid-configuration"
PRM = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
ROOT_PRM = "https://mcp.example/.well-known/oauth-protected-resource"


def server(**fields: Any) -> dict[str, Any]:
    """The metadata of an authorization server that can do all."""
    return {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "registration_endpoint": f"{ISSUER}/register",
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    } | fields


def resource(**fields: Any) -> dict[str, Any]:
    """The metadata of the resource."""
    return {"resource": RESOURCE, "authorization_servers": [ISSUER]} | fields


class Get(Struct, frozen=True):
    """A document was requested."""

    url: str


class Post(Struct, frozen=True):
    """A form or JSON was posted."""

    url: str
    form: Mapping[str, str] = {}
    content: Any = None
    headers: Mapping[str, str] = {}
    by: By = "document"


class Browse(Struct, frozen=True):
    """A browser was sent to a URL."""

    url: str


class Said(Struct, frozen=True):
    """The person was told something."""

    text: str


class ScriptedWorld(World):
    """Plays flows. `documents`: by URL; `answers`: by URL, in turn, a dict or (status, dict); `response`: what the
    authorization server's answer has beside, or instead of, code, state and iss."""

    def __init__(self, documents: Mapping[str, Any] | None = None) -> None:
        self.documents: dict[str, Any] = {PRM: resource(), AS: server()} if documents is None else dict(documents)
        self.answers: dict[str, list[Any]] = {
            f"{ISSUER}/register": [(201, {"client_id": "client-1"})],
            f"{ISSUER}/token": [{"access_token": "token-1", "token_type": "Bearer", "refresh_token": "refresh-1"}],
        }
        self.response: dict[str, str | None] = {}
        self.steps: list[Any] = []
        self.known: dict[str, Registration] = {}
        self.redirect = REDIRECT
        self.waited = 0.0

    def play(self, flow: Coroutine[Any, Any, T]) -> T:
        """Run a flow to its end, which waits for nothing."""
        try:
            flow.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("a flow waits for something that is not of its world")

    async def get(self, url: str, *, by: By = "document", why: str) -> Fetched:
        self.steps.append(Get(url))
        found = self.documents.get(url)
        return _fetched((404, {}) if found is None else found)

    async def post_form(
        self, url: str, form: Mapping[str, str], *, headers: Mapping[str, str], by: By = "document"
    ) -> Fetched:
        return self._post(Post(url, form, None, headers, by))

    async def post_json(self, url: str, content: Any, *, by: By = "document") -> Fetched:
        return self._post(Post(url, {}, content, {}, by))

    def _post(self, step: Post) -> Fetched:
        self.steps.append(step)
        left = self.answers[step.url]
        return _fetched(left.pop(0) if len(left) > 1 else left[0])

    async def listen(self, port: int, *, exact: bool) -> str:
        return self.redirect

    async def browse(self, url: str, state: str) -> str:
        self.steps.append(Browse(url))
        asked = dict(parse_qsl(urlsplit(url).query))
        fields = {"code": "code-1", "state": asked["state"], "iss": ISSUER} | self.response
        return urlencode({name: value for name, value in fields.items() if value is not None})

    async def show_code(self, code: DeviceCode) -> None:
        self.steps.append(code)

    async def wait(self, seconds: float) -> None:
        self.waited += seconds

    def say(self, text: str) -> None:
        self.steps.append(Said(text))

    async def recall(self, issuer: str) -> Registration | None:
        return self.known.get(issuer)

    async def remember(self, issuer: str, client: Registration | None) -> None:
        if client is None:
            self.known.pop(issuer, None)
        else:
            self.known[issuer] = client

    @property
    def gets(self) -> list[str]:
        """The documents that were asked for."""
        return [step.url for step in self.steps if isinstance(step, Get)]

    def posts(self, path: str) -> list[Post]:
        """What was posted there."""
        return [step for step in self.steps if isinstance(step, Post) and step.url == ISSUER + path]

    @property
    def windows(self) -> list[dict[str, str]]:
        """The parameters of each authorization request."""
        return [dict(parse_qsl(urlsplit(step.url).query)) for step in self.steps if isinstance(step, Browse)]

    @property
    def said(self) -> str:
        """What the person was told."""
        return "\n".join(step.text for step in self.steps if isinstance(step, Said))


def _fetched(answer: Any) -> Fetched:
    status, content = answer[:2] if isinstance(answer, tuple) else (200, answer)
    headers = answer[2] if isinstance(answer, tuple) and len(answer) > 2 else {}
    body = content if isinstance(content, bytes) else msgspec.json.encode(content)
    return Fetched(status, headers, body)
