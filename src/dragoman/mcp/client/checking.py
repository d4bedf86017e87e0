"""Checks JSON values against JSON Schemas from a far end: the structured results of tools.

The work is bounded (see `rpc.binding.bounded_schema`). It needs a library of the extra "mcp". Where that is missing
nothing is checked, and the log says so once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from ...jsonrpc.errors import LocalError, installing
from ...repeats import Repeats
from ...rpc.binding.bounded_schema import BoundedSchema
from ...rpc.binding.json_schema import Validate

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

_warned = False


def checker(schema: Mapping[str, Any]) -> Validate:
    """Return a function that finds the first fault of a value, in a bounded number of steps. A schema that cannot be
    used (an unknown dialect, a `$ref` to the network, which is never followed) is "rejected rather than silently
    treated as permissive" (basic/index, `$ref` Resolution): the log warns. The results are not checked then, and still
    returned, since the tool has run already."""
    if not _can_check():
        return lambda value: []
    try:
        return BoundedSchema(dict(schema))
    except LocalError as error:
        repeats.warning("results of a tool are not checked: its output schema cannot be used: %s", error)
        return lambda value: []


def _can_check() -> bool:
    global _warned
    if find_spec("jsonschema_rs") is not None:
        return True
    if not _warned:
        _warned = True
        logger.warning("jsonschema-rs is not installed, so nothing is checked against schemas: %s", installing("mcp"))
    return False
