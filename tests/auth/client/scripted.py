"""A world for flows: documents by URL, answers of endpoints in turn, and a person who says yes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from dragoman.auth.client.steps import Browse, Flow, Get, Keep, Listen, Post, Recall, Say, ShowCode, Step, Wait
from dragoman.auth.client.tokens import Registration
from dragoman.auth.fetch import Fetched

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


class World:
    """Plays flows. `documents`: by URL; `answers`: by URL, in turn, a dict or (status, dict); `response`: what the
    authorization server's answer has beside, or instead of, code, state and iss."""

    def __init__(self, documents: Mapping[str, Any] | None = None) -> None:
        self.documents: dict[str, Any] = {PRM: resource(), AS: server()} if documents is None else dict(documents)
        self.answers: dict[str, list[Any]] = {
            f"{ISSUER}/register": [(201, {"client_id": "client-1"})],
            f"{ISSUER}/token": [{"access_token": "token-1", "token_type": "Bearer", "refresh_token": "refresh-1"}],
        }
        self.response: dict[str, str | None] = {}
        self.steps: list[Step] = []
        self.known: dict[str, Registration] = {}
        self.redirect = REDIRECT
        self.waited = 0.0

    def play(self, flow: Flow[T]) -> T:
        """Run a flow to its end."""
        outcome: Any = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            self.steps.append(step)
            outcome = self._done(step)

    def _done(self, step: Step) -> Any:
        match step:
            case Get():
                found = self.documents.get(step.url)
                return _fetched((404, {}) if found is None else found)
            case Post():
                left = self.answers[step.url]
                return _fetched(left.pop(0) if len(left) > 1 else left[0])
            case Listen():
                return self.redirect
            case Browse():
                asked = dict(parse_qsl(urlsplit(step.url).query))
                fields = {"code": "code-1", "state": asked["state"], "iss": ISSUER} | self.response
                return urlencode({name: value for name, value in fields.items() if value is not None})
            case Recall():
                return self.known.get(step.issuer)
            case Keep():
                if step.client is None:
                    self.known.pop(step.issuer, None)
                else:
                    self.known[step.issuer] = step.client
            case Wait():
                self.waited += step.seconds
            case ShowCode() | Say():
                pass
        return None

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
        return "\n".join(step.text for step in self.steps if isinstance(step, Say))


def _fetched(answer: Any) -> Fetched:
    status, content = answer[:2] if isinstance(answer, tuple) else (200, answer)
    headers = answer[2] if isinstance(answer, tuple) and len(answer) > 2 else {}
    body = content if isinstance(content, bytes) else msgspec.json.encode(content)
    return Fetched(status, headers, body)
