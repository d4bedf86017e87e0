"""The names of grants and of tokens at token endpoints (RFC 6749, 7523, 8628, 8693; the draft of ID-JAG)."""

from __future__ import annotations

from typing import Final

AUTHORIZATION_CODE: Final = "authorization_code"
REFRESH_TOKEN: Final = "refresh_token"
CLIENT_CREDENTIALS: Final = "client_credentials"
DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"

ACCESS_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"
ID_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:id_token"
JWT_TYPE: Final = "urn:ietf:params:oauth:token-type:jwt"
ID_JAG_TYPE: Final = "urn:ietf:params:oauth:token-type:id-jag"
