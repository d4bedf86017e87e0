"""`dragoman events send`: plays the server to a receiver of webhooks: its challenge, then one signed event."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection
from ipaddress import ip_network
from typing import Annotated, Final

import msgspec
from cyclopts import App, Parameter
from msgspec import UNSET
from rich.text import Text

from ...events.limits import EVENT_SIZE
from ...mcp.extensions.events import EventLimits, new_secret
from ...mcp.extensions.events.model import subscription_id
from ...mcp.extensions.events.sender import Outcome, WebhookSender
from ...mcp.extensions.events.trial import LookedUp, TrialEvent, TrialReport, try_receiver
from ...net.address_kinds import kind_of
from ...net.urls import Url
from ..arguments import params_of
from ..exit_status import ANSWERED_WITH_ERROR, FINE, NO_ANSWER, Usage
from ..options import OUTPUT, AccessOptions, Output
from ..terminal import clean, out, say

LOOPBACK: Final = ("127.0.0.0/8", "::1/128")

app: App = App(
    name="send",
    usage="Usage: dragoman events send [OPTIONS] URL NAME [MEMBER=VALUE...]",
    help_epilogue="""\
Examples:

  dragoman events send http://127.0.0.1:8000/hooks orders.shipped order=42
  dragoman events send https://hooks.example.org/orders orders.shipped \\
      --data '{"order": "42"}' --secret whsec_...
  dragoman events send http://127.0.0.1:8000/hooks orders.shipped --chatgpt
  dragoman events send https://10.1.2.3/hooks orders.shipped --allow-private 10.0.0.0/8

Run it again with the same --event-id: a receiver handles an event once.

Exit status: 0 accepted, 1 the receiver has refused the challenge or the event,
2 wrong usage, 3 no connection or no answer in time.""",
)


@app.default
def send(
    url: str,
    name: str,
    /,
    *words: Annotated[str, Parameter(name="MEMBER=VALUE")],
    data: Annotated[str | None, Parameter(metavar="JSON", allow_leading_hyphen=True)] = None,
    secret: Annotated[str | None, Parameter(metavar="whsec_...", env_var="DRAGOMAN_WEBHOOK_SECRET")] = None,
    chatgpt: bool = False,
    event_id: Annotated[str | None, Parameter(metavar="ID")] = None,
    subscription: Annotated[str | None, Parameter(metavar="ID")] = None,
    allow_private: Annotated[list[str] | None, Parameter(metavar="NETWORK")] = None,
    timeout: Annotated[float, Parameter(alias="-t", metavar="SECONDS")] = EventLimits().answer_time,
    ca: Annotated[str | None, Parameter(metavar="FILE")] = None,
    insecure: bool = False,
    output: Output = OUTPUT,
) -> int:
    """Post a challenge and one signed event to the receiver of a webhook, as a server does.

    Parameters
    ----------
    url
        Where the receiver answers: https, or http on loopback.
    name
        The event type.
    words
        The members of its data.
    data
        The data as a JSON object; @FILE reads a file, - stdin.
    secret
        Sign by this secret, which the receiver knows; default: a new one, which is printed.
    chatgpt
        Speak ChatGPT's profile, whose webhook-id is the id of the event.
    event_id
        The id of the event; default: a new one.
    subscription
        The id of the subscription, by which the receiver may look for the secret.
    allow_private
        A network, or an address, in which the receiver may be, beside loopback; any number of times.
    timeout
        Wait this long for an answer.
    ca
        Trust the certificates in FILE.
    insecure
        Trust any certificate.
    """
    known = new_secret() if secret is None else secret
    event = TrialEvent(
        subscription=subscription or subscription_id("dragoman events send", url, name, {}),
        id=event_id or f"evt_{os.urandom(16).hex()}",
        name=name,
        data=_data(words, data),
        timestamp=time.time(),
        profile="chatgpt" if chatgpt else "sep",
    )
    if len(event.body) > EVENT_SIZE:
        raise Usage(f"the event has {len(event.body)} bytes, and receivers need to take no more than {EVENT_SIZE}")
    if not 0 < timeout < float("inf"):
        raise Usage(f"--timeout {timeout:g}: a time-out is a number of seconds above 0")
    looked_up = LookedUp()
    sender = WebhookSender(
        EventLimits(answer_time=timeout),
        allow_private=_networks(allow_private or ()),
        tls=AccessOptions(ca=ca, insecure=insecure).tls(),
        resolve=looked_up.resolve,
    )
    if secret is None and not output.json:
        say(f"the secret is {known}: give it to the receiver, and --secret the next time", "dim")
    report = asyncio.run(try_receiver(sender, url, known, event))
    _check_addresses(sender, sender.read_url(url), looked_up)
    if output.json:
        output.write(_as_json(report, event, known if secret is None else None))
    else:
        _show(report, event, looked_up, timeout)
    last = report.event or report.challenge
    return FINE if last.reason is None else ANSWERED_WITH_ERROR if last.status else NO_ANSWER


def _data(words: Collection[str], data: str | None) -> bytes:
    """Return the data of the event as JSON text. Raises Usage."""
    found = params_of(list(words), data, "--data")
    raw = b"{}" if found is UNSET else bytes(found)
    if not raw.startswith(b"{"):
        raise Usage("the data of an event is an object: write its members as MEMBER=VALUE, or --data '{...}'")
    return raw


def _networks(given: Collection[str]) -> list[str]:
    """Return the networks in which the receiver may be. Raises Usage."""
    for one in given:
        try:
            ip_network(one)
        except ValueError as fault:
            raise Usage(f"--allow-private {one}: write an address or a network, such as 10.0.0.0/8: {fault}") from None
    return [*LOOPBACK, *given]


def _check_addresses(sender: WebhookSender, url: Url, looked_up: LookedUp) -> None:
    """Raise Usage for a receiver that nothing was sent to because of its address."""
    refused = next((one for one in looked_up.addresses if not sender.allows(one, url.scheme)), None)
    if refused is None:
        return
    if (kind := kind_of(refused)) == "public":
        raise Usage(f"{url.host} has the public address {refused}, to which servers post by https:// alone")
    where = f"{url.host} has" if url.host != refused else "it is"
    raise Usage(
        f"{where} the address {refused}, which is {kind}: servers do not post there; --allow-private {refused} does"
    )


# -- what came back

_WHY: Final = {
    400: "it could not read the message",
    401: "it did not take the signature: it has another secret, or its clock differs by more than five minutes",
    403: "it wants something else of its callers, such as a cookie or a token: a webhook has its signature alone",
    404: "nothing answers at that path",
    405: "nothing takes a POST at that path",
    408: "the request came too slowly for it",
    410: "it knows no such subscription, and wants nothing more of it: a server would not try again",
    413: "the event is too large for it: a server would not try again",
    415: "it takes no application/json",
    429: "it has had too many requests",
    503: "it is busy, or does not know the subscription or its secret yet",
}
"""What a status says, of a receiver as `EventReceiver` is one or of the framework in front of it."""
_FAILED: Final = {
    "timeout": "no answer came within {timeout:g} s",
    "tls_error": "TLS failed: look at the certificate, or give --ca FILE",
    "connection_refused": "no connection: nothing listens there, or it was closed before an answer",
    "http_5xx": "what came is no answer of HTTP",
}


def _show(report: TrialReport, event: TrialEvent, looked_up: LookedUp, timeout: float) -> None:
    """Show what came back, a line for each post."""
    for what, one in (("challenge", report.challenge), ("event", report.event)):
        if one is None:
            line = Text("not sent, as a server does not without the challenge", "dim")
        elif one.reason is None:
            word = "returned" if what == "challenge" else "accepted"
            line = Text.assemble((f"{word} ({one.status})", "green"), "" if what == "challenge" else f"  {event.id}")
        else:
            line = Text(clean(_why(one, looked_up, timeout)), "red")
        out.print(Text.assemble(f"{what:<11}", line), soft_wrap=True)


def _why(one: Outcome, looked_up: LookedUp, timeout: float) -> str:
    """Return why a post failed, in words."""
    if looked_up.error is not None:
        return f"not sent: the name of the host is not found ({looked_up.error})"
    if not one.status:
        return f"failed: {_FAILED[one.reason or 'timeout'].format(timeout=timeout)}"
    if one.reason == "challenge_failed":
        said = one.body[:200].decode("utf-8", "replace")
        got = f"the body was {said!r}" if said else "there was none, or none that could be read"
        return f'not returned ({one.status}): the answer to a challenge is {{"challenge": "..."}}, and {got}'
    if 300 <= one.status < 400:
        return f"refused ({one.status}): it leads elsewhere, and servers do not follow"
    default = "it failed; its log says why" if one.status >= 500 else "it refused"
    again = "" if one.retry_after is None else f"; come again in {one.retry_after:g} s"
    return f"refused ({one.status}): {_WHY.get(one.status, default)}{again}"


def _as_json(report: TrialReport, event: TrialEvent, secret: str | None) -> dict[str, object]:
    """Return what came back for programs; `secret`: one that was made."""
    posts = {"challenge": report.challenge, "event": report.event}
    said = {
        name: None if one is None else {"accepted": one.reason is None, "status": one.status, "reason": one.reason}
        for name, one in posts.items()
    }
    about = {"id": event.id, "name": event.name, "data": msgspec.Raw(event.data), "subscription": event.subscription}
    return {"sent": about, **said} | ({} if secret is None else {"secret": secret})
