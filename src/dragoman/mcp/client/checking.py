"""Checks JSON values against JSON Schemas from a far end: the structured results of tools.

The validator is an extra (see `rpc.binding.json_schema`). Where it is missing nothing is checked, and the log says so
once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from ...jsonrpc.errors import LocalError, installing
from ...rpc.binding.faults import fault
from ...rpc.binding.json_schema import Validate, validator

logger: logging.Logger = logging.getLogger("dragoman.mcp")

_said = False


def checker(schema: Mapping[str, Any]) -> Validate:
    """What finds every fault of a value. A schema that cannot be used (an unknown dialect, a `$ref` to the
    network, which is never followed) fits nothing: "SHOULD be rejected rather than silently treated as permissive"
    (basic/index, `$ref` Resolution)."""
    if not _can_check():
        return lambda value: []
    try:
        return validator(dict(schema))
    except LocalError as error:
        unusable = [fault("", f"the schema cannot be used: {error}")]
        return lambda value: unusable


def _can_check() -> bool:
    global _said
    if find_spec("jsonschema_rs") is not None:
        return True
    if not _said:
        _said = True
        logger.warning("jsonschema-rs is not there, so nothing is checked against schemas: %s", installing("mcp"))
    return False
