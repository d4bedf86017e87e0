"""The pages of an authorization server: plain HTML without scripts. Pure.

All text of clients and callers is escaped. Each page forbids framing (RFC 6749, 10.13; RFC 9700, 4.16), scripts and
foreign content by its Content-Security-Policy, and caches may not keep it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape

from .messages import EndpointResponse

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:0;background:#f4f4f2;color:#1d1d1b}
main{max-width:30rem;margin:3rem auto;padding:2rem;background:#fff;border:1px solid #d8d8d3;border-radius:.5rem}
h1{font-size:1.3rem;margin:0 0 1rem}dl{margin:1rem 0}dt{font-weight:600}dd{margin:0 0 .6rem;overflow-wrap:anywhere}
label{display:block;margin:.6rem 0}input{font:inherit;width:100%;box-sizing:border-box;padding:.4rem}
button{font:inherit;padding:.5rem 1.2rem;margin:1rem .5rem 0 0}.w{background:#fff3cd;padding:.6rem .8rem;margin:1rem 0}
.e{background:#fbe3e4;padding:.6rem .8rem;margin:1rem 0}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def page(title: str, body: str, *, status: int = 200, leads_away: bool = False, cookie: str = "") -> EndpointResponse:
    """Return a page. `body`: HTML; `leads_away`: whether its form may redirect to other servers; `cookie`: the one to
    set."""
    form = "" if leads_away else "form-action 'self'; "
    policy = f"default-src 'none'; style-src 'sha256-{_HASH}'; {form}frame-ancestors 'none'; base-uri 'none'"
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="robots" content="noindex">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main><h1>{escape(title)}</h1>{body}"
        "</main></body></html>"
    )
    headers: tuple[tuple[str, str], ...] = (
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Security-Policy", policy),
        ("X-Frame-Options", "DENY"),
        ("X-Content-Type-Options", "nosniff"),
        # not "no-referrer": a browser would then send the form with "Origin: null"
        ("Referrer-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
    )
    if cookie:
        headers = (*headers, ("Set-Cookie", cookie))
    return EndpointResponse(status=status, headers=headers, body=text.encode("utf-8", "replace"))


def error_page(description: str, *, status: int = 400) -> EndpointResponse:
    """Return the page for an error where no redirect is safe (RFC 6749, 4.1.2.1)."""
    return page("This request cannot be answered", f"<p>{escape(description)}</p>", status=status)


def plain(title: str, sentence: str, *, cookie: str = "") -> EndpointResponse:
    """Return a page with one sentence."""
    return page(title, f"<p>{escape(sentence)}</p>", cookie=cookie)


def warning(text: str) -> str:
    """Return the HTML of a warning; "" without a text."""
    return f'<p class="w">{escape(text)}</p>' if text else ""


def wrong(text: str) -> str:
    """Return the HTML that says what was wrong with the last answer; "" without a text."""
    return f'<p class="e" role="alert">{escape(text)}</p>' if text else ""


def rows(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the HTML of a list of names and values."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def hidden(name: str, value: str) -> str:
    """Return the HTML of a hidden field."""
    return f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'


def field(label: str, name: str, value: str = "", *, kind: str = "text", autocomplete: str = "off") -> str:
    """Return the HTML of a field to fill in."""
    return (
        f'<label>{escape(label)}<input type="{kind}" name="{escape(name)}" value="{escape(value)}" '
        f'autocomplete="{autocomplete}" required></label>'
    )


def form(action: str, inside: str, *buttons: tuple[str, str]) -> str:
    """Return the HTML of a form that is posted. `buttons`: for each the value of `answer`, and its text."""
    made = "".join(
        f'<button name="answer" value="{escape(value)}"{" formnovalidate" * (value == "deny")}>{escape(text)}</button>'
        for value, text in buttons
    )
    return f'<form method="post" action="{escape(action)}">{inside}{made}</form>'
