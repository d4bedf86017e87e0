"""Logins on devices without a browser (RFC 8628): the endpoint for the device, and the page for its user."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

from msgspec import structs

from ...allowance import Allowance, NoRoom, Slots
from ..errors import OAuthError
from ..grant_types import DEVICE_CODE
from ..jose import encode_base64url
from .authorize import Authorization
from .clients import Clients
from .messages import EndpointRequest, EndpointResponse, Parameters, json, oauth_error, of_form, of_query
from .model import Client, Device, Pending, Settings
from .pages import error_page, field, form, page, wrong
from .records import Records
from .scopes import resources_of, scopes_of
from .seals import digest

LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""The letters of user codes. RFC 8628, 6.1: no vowels, so no words; 8 of 20 letters are 34 bits."""
GUESSES = 30
"""Wrong user codes of one address within `PAUSE` (RFC 8628, 5.1: "the authorization server SHOULD rate-limit")."""
GUESSES_IN_ALL = 1_000
"""Wrong user codes of all addresses together within `PAUSE`: a chance of one in 25 million a minute to guess a given
code."""
PAUSE = 60.0
"""Seconds for which a wrong code counts, and up to twice as long."""
WAITING = 1_000
"""Devices that may wait for their users at once, for one process: anyone may begin such a login. Beyond that, the
oldest one of the address that has most is forgotten."""
_SLOW_DOWN = 5.0


class Devices:
    """Answers devices that ask for a login, and the users who enter their codes."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        clients: Clients,
        records: Records,
        authorization: Authorization,
        at: Callable[[str], str],
    ) -> None:
        self._settings, self._clients, self._records = settings, clients, records
        self._authorization, self._at = authorization, at
        self._guesses = Allowance(GUESSES_IN_ALL, PAUSE, each=GUESSES)
        self._waiting: Slots[tuple[str, str]] = Slots(WAITING, settings().lives.device)

    async def begin(self, request: EndpointRequest) -> EndpointResponse:
        """Answer a POST of the device authorization endpoint. Raises OAuthError."""
        parameters = of_form(request)
        client = await self._clients.authenticate(request, parameters, endpoint=self._at("/token"))
        if DEVICE_CODE not in client.grants:
            raise oauth_error("unauthorized_client", "This client has not the grant device_code")
        settings = self._settings()
        lives, secret, code = settings.lives, encode_base64url(os.urandom(32)), _user_code()
        device = Device(
            client=client.id,
            scopes=scopes_of(parameters.scopes(), client, settings),
            resources=resources_of(parameters, client, settings),
            interval=lives.interval,
        )
        key = digest(secret)
        try:
            gone = self._waiting.take(self._clients.owner(client, request), (key, code), self._records.clock())
        except NoRoom:
            raise oauth_error(
                "temporarily_unavailable", f"{WAITING} devices wait already; try again later", 503
            ) from None
        if gone is not None:
            await self._forget(*gone)
        await self._records.put("device", key, device, lives.device)
        await self._records.put("user code", code, key, lives.device)
        page_url = self._at("/device")
        return json(
            {
                "device_code": secret,
                "user_code": code,
                "verification_uri": page_url,
                "verification_uri_complete": f"{page_url}?user_code={code}",
                "expires_in": int(lives.device),
                "interval": int(lives.interval) or 1,
            }
        )

    async def _forget(self, key: str, code: str) -> None:
        """Forget the request of a device that has to give way, unless its user has answered."""
        await self._records.take("user code", code, str)
        await self._records.change(
            "device", key, Device, lambda found: (None if found is None or found.state == "pending" else found, None)
        )

    async def show(self, request: EndpointRequest) -> EndpointResponse:
        """Answer a GET of the page: a field for the code."""
        try:
            given = of_query(request.query).get("user_code")
        except OAuthError as error:
            return error_page(error.description)
        return self._page(given[:20])

    def _page(self, given: str = "", fault: str = "") -> EndpointResponse:
        inside = field("The code that the device shows", "user_code", given)
        body = wrong(fault) + form(self._at("/device"), inside, ("next", "Next"))
        return page("Connect a device", body)

    async def choose(self, request: EndpointRequest) -> EndpointResponse:
        """Answer a POST of the page with the consent page for this code."""
        try:
            parameters = of_form(request)
        except OAuthError as error:
            return error_page(error.description)
        if not self._authorization.from_here(request):
            return error_page("This form was sent by another site", status=403)
        now, owner = self._records.clock(), request.owner
        if not self._guesses.take(owner, now):  # before anything is awaited: codes that are sent at once count too
            return error_page(f"Too many wrong codes; try again in {self._guesses.after(now)} seconds", status=429)
        code = _normalize(parameters.get("user_code"))
        key = await self._records.get("user code", code, str)
        device = None if key is None else await self._records.get("device", key, Device)
        client = None if device is None else await self._clients.find(device.client, owner)
        if device is None or client is None or device.state != "pending":
            return self._page("", "There is no such code, or it has expired")
        self._guesses.give_back(owner)  # it was not wrong
        pending = Pending(
            id=encode_base64url(os.urandom(16)),
            client=client.id,
            until=now + self._settings().lives.consent,
            cookie="",
            scopes=device.scopes,
            resources=device.resources,
            device=code,
        )
        return self._authorization.ask(pending, client)

    async def poll(self, parameters: Parameters, client: Client) -> Device:
        """Answer a poll at the token endpoint: return the approved request, once. Raises OAuthError (RFC
        8628, 3.5)."""
        now = self._records.clock()

        def edit(found: Device | None) -> tuple[Device | None, Device | str]:
            if found is None or found.client != client.id:
                return found, "expired_token" if found is None else "invalid_grant"
            if found.state == "denied":
                return None, "access_denied"
            if found.state == "approved":
                return None, found
            if now < found.polled + found.interval:
                # "the interval MUST be increased by 5 seconds for this and all subsequent requests"
                return structs.replace(found, polled=now, interval=found.interval + _SLOW_DOWN), "slow_down"
            return structs.replace(found, polled=now), "authorization_pending"

        found = await self._records.change("device", digest(parameters.need("device_code")), Device, edit)
        if isinstance(found, str):
            raise oauth_error(found, _DESCRIPTIONS[found])
        return found


_DESCRIPTIONS = {
    "expired_token": "The device code has expired, or there is none",
    "invalid_grant": "The device code was issued to another client",
    "access_denied": "The user said no",
    "slow_down": "Polled too soon: wait five seconds longer between two polls",
    "authorization_pending": "The user has not answered yet",
}


def _user_code() -> str:
    text = "".join(secrets.choice(LETTERS) for _ in range(8))
    return f"{text[:4]}-{text[4:]}"


def _normalize(text: str) -> str:
    """Return a code in the form in which it was issued; "" for text that is none. RFC 8628, 6.1: case and punctuation
    that a user adds do not matter."""
    letters = "".join(each for each in text.upper() if each in LETTERS)
    return f"{letters[:4]}-{letters[4:]}" if len(letters) == 8 else ""
