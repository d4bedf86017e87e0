"""A service as an OpenRPC 1.3 document (https://spec.open-rpc.org).

Rules: methods are sorted by name; every named type is one entry of `components.schemas`; a type whose output schema
differs from its input schema (by pydantic's defaults, say), itself or in what it refers to, is named `X-Output` there.
OpenRPC 1.3 says JSON Schema draft 7, which writes the items of a tuple in another way than 2020-12.
A method that `tasks.start` may start has `x-task`: true.
For *args and **kwargs the schema is that of one item, and `x-variadic` is "items" or "members".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from ..jsonrpc.errors import LocalError, RpcError
from .binding.annotations import translate_result
from .binding.hooks import schemas
from .binding.rewriting import as_draft_7, references, renamed
from .binding.schema import Parameter, described
from .binding.signature import tidy, without_parameters
from .method import Method

VERSION = "1.3.2"
_PREFIX = "#/components/schemas/"
_REFS = _PREFIX + "{name}"


def document(
    registered: Mapping[str, Method], *, title: str, version: str, description: str | None, servers: Sequence[str]
) -> dict[str, Any]:
    """Return the document of these methods. `servers`: URLs where they can be reached."""
    methods = [registered[name] for name in sorted(registered)]
    parameters = [p for method in methods for p in method.signature.parameters]
    inputs, components = described(parameters, refs=_REFS)
    kinds = list(dict.fromkeys(error for method in methods for error in method.errors))
    outgoing = [method.signature.result.shown for method in methods] + [_data_type(kind) for kind in kinds]
    outputs, others = schemas(outgoing, refs=_REFS, result=True)
    names = {name: f"{name}-Output" for name in _different(components, others)}
    outputs = [renamed(schema, names, _REFS) for schema in outputs]
    components |= {names.get(name, name): renamed(schema, names, _REFS) for name, schema in others.items()}
    given, data = iter(inputs), dict(zip(kinds, outputs[len(methods) :], strict=True))
    entries = [
        _method(method, [next(given) for _ in method.signature.parameters], result, data)
        for method, result in zip(methods, outputs, strict=False)
    ]
    info = {"title": title, "version": version}
    if description:
        info["description"] = description
    found: dict[str, Any] = {"openrpc": VERSION, "info": info}
    if listed := [{"url": url} for url in servers]:
        found["servers"] = listed
    found["methods"] = entries
    if components:
        found["components"] = {"schemas": {name: as_draft_7(part) for name, part in sorted(components.items())}}
    return found


def _method(
    method: Method,
    inputs: list[dict[str, Any]],
    result: dict[str, Any],
    data: Mapping[type[RpcError], dict[str, Any]],
) -> dict[str, Any]:
    parameters = method.signature.parameters
    text = without_parameters(tidy(method.description or method.signature.documentation))
    summary, _, rest = text.partition("\n\n")
    entry: dict[str, Any] = {"name": method.name}
    if summary:
        entry["summary"] = " ".join(summary.split())
    if rest.strip():
        entry["description"] = rest.strip()
    if method.tags:
        entry["tags"] = [{"name": tag} for tag in sorted(method.tags)]
    entry["paramStructure"] = _structure(parameters)
    entry["params"] = [_descriptor(p, schema) for p, schema in zip(parameters, inputs, strict=True)]
    entry["result"] = {"name": "result", "schema": as_draft_7(result)}
    if method.errors:
        entry["errors"] = [_error(kind, data[kind]) for kind in method.errors]
    if method.deprecated:
        entry["deprecated"] = True
    if method.task is not None:
        entry["x-task"] = True
    return entry


def _structure(parameters: Sequence[Parameter]) -> str:
    kinds = {p.kind for p in parameters}
    if any(p.required and p.kind == "positional" for p in parameters):
        return "by-position"
    if any(p.required and p.kind == "named" for p in parameters):
        return "by-name"
    if "rest" in kinds:
        return "by-position"
    return "by-name" if "named" in kinds or "members" in kinds else "either"


def _descriptor(p: Parameter, schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": p.name}
    if p.description:
        found["description"] = p.description
    found["required"] = p.required
    schema = {key: value for key, value in schema.items() if key != "description" or value != p.description}
    found["schema"] = as_draft_7(schema)
    if p.kind in ("rest", "members"):
        found["x-variadic"] = "items" if p.kind == "rest" else "members"
    return found


def _error(kind: type[RpcError], schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"code": kind.code, "message": kind.message or kind().message}
    return found | ({"data": as_draft_7(schema)} if schema else {})


def _data_type(kind: type[RpcError]) -> Any:
    """The type of a declared error's `data`, if it has a schema."""
    declaring = next(cls for cls in kind.__mro__ if "data" in getattr(cls, "__annotations__", {}))
    if declaring is RpcError:
        return Any
    try:
        hint = get_type_hints(kind, include_extras=True)["data"]
        return translate_result(hint, f"{kind.__qualname__}, data").shown
    except (NameError, LocalError):  # a document with a gap is better than none
        return Any


def _different(given: Mapping[str, Any], results: Mapping[str, Any]) -> set[str]:
    """The names of types that are not the same as results, or refer to one of those."""
    found = {name for name in results if given.get(name, results[name]) != results[name]}
    uses = {
        name: {ref.removeprefix(_PREFIX) for ref in references(schema)}
        for name, schema in results.items()
        if name in given
    }
    while more := {name for name, used in uses.items() if name not in found and used & found}:
        found |= more
    return found
