"""Compiles JSON Schemas with jsonschema-rs (extra `mcp`), and measures how deep values are nested.

- A schema is 2020-12 unless `$schema` names another dialect; 2019-09, 7, 6 and 4 are known, too.
- A `$ref` out of the document is refused, and never fetched.
"""

from __future__ import annotations

from typing import Any, Final

from ...jsonrpc.errors import LocalError, needs

DEEPEST: Final = 64
"""How many levels of arrays and objects a schema or a value may have."""
_BACKTRACKS: Final = 100_000
"""How often the search for a `pattern` may backtrack; a value that takes more does not fit."""


def compile_schema(schema: Any, where: str, *, linear: bool = False) -> Any:
    """Return jsonschema-rs's validator of a schema. `linear`: patterns run without backtracking, and formats are not
    checked.

    Raises LocalError, whose text begins with `where`, for what is not a JSON Schema of its dialect, for an unknown
    dialect and for a `$ref` out of the document; and another LocalError if jsonschema-rs is not installed.
    """
    try:
        import jsonschema_rs  # noqa: PLC0415  (an extra, imported when used)
    except ImportError:
        raise needs("reading JSON Schemas", "jsonschema-rs", "mcp") from None
    backtracks = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS)
    try:
        # without `$schema` it is 2020-12 ("Default dialect")
        return jsonschema_rs.validator_for(
            schema,
            retriever=_refused,
            pattern_options=jsonschema_rs.RegexOptions() if linear else backtracks,
            validate_formats=False if linear else None,
        )
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError) as error:
        raise LocalError(f"{where}: {reason_of(error)}") from None


def _refused(uri: str) -> Any:
    # basic/index, `$ref` Resolution: "Implementations MUST NOT automatically dereference `$ref` values that
    # resolve to a network URI"
    raise LookupError("it is not in the document, and nothing is fetched")


def reason_of(error: BaseException) -> str:
    """Return the message of an error of jsonschema-rs, in at most 300 characters."""
    text = str(getattr(error, "message", None) or error)
    if text.startswith("Unknown meta-schema"):
        return f"its dialect is not known ({text.partition('. ')[0].partition(': ')[2]}); use JSON Schema 2020-12"
    return text if len(text) <= 300 else text[:297] + "..."


def deep(value: Any) -> bool:
    """Return whether a value has more levels than `DEEPEST`."""
    return measured(value)[0] > DEEPEST


def measured(value: Any) -> tuple[int, list[int]]:
    """Return how many levels of arrays and objects a value has, and how many values there are at each depth. Counting
    ends one level beyond `DEEPEST`."""
    todo: list[Any] = [value] if isinstance(value, dict | list) else []
    levels, counts = 0, [1]
    while todo and levels <= DEEPEST:
        levels += 1
        counts.append(sum(map(len, todo)))
        inner = (one for part in todo for one in (part.values() if isinstance(part, dict) else part))
        todo = [one for one in inner if isinstance(one, dict | list)]
    return levels, counts
