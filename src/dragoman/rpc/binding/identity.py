"""Gives the caller's identity to parameters annotated `Identity` or `Identity | None`, as dependencies are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, get_args, get_origin

from ...channel import Identity
from ...jsonrpc.errors import NO_IDENTITY, CallRefused
from .tree import UNION


def identified(context: Any) -> Identity:
    """Return who the caller is, for a parameter annotated `Identity`. Raises CallRefused ("forbidden") if the caller
    has no identity."""
    found = perhaps_identified(context)
    if found is None:
        raise CallRefused(NO_IDENTITY)
    return found


def perhaps_identified(context: Any) -> Identity | None:
    """Return who the caller is, for a parameter annotated `Identity | None`; None if the caller has none."""
    from ...access import identity_of  # noqa: PLC0415  (start-up: for functions that want to know)

    return identity_of(context._site.caller)


IDENTITY_GIVERS: Final = frozenset({identified, perhaps_identified})


def identity_giver(annotation: Any) -> Callable[[Any], Identity | None] | None:
    """Return the function that gives a parameter with this annotation its value; None if the annotation is neither
    `Identity` nor `Identity | None`."""
    if annotation is Identity:
        return identified
    inner = annotation.__origin__ if get_origin(annotation) is Annotated else annotation
    if inner is Identity:
        return identified
    if get_origin(inner) in UNION and set(get_args(inner)) == {Identity, type(None)}:
        return perhaps_identified
    return None
