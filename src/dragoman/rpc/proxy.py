"""The far end as an object whose attributes are methods, for async and blocking peers: they differ only in `call`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct

from ..jsonrpc.errors import LocalError


class _Spec(Struct):
    """One method of a Protocol class."""

    signature: inspect.Signature
    result: Any
    by_name: bool


class Proxy:
    """Attributes are methods, and dots join: `proxy.math.add(1, 2)` calls `math.add`."""

    __slots__ = ("_call", "_name")

    def __init__(self, call: Callable[..., Any], name: str) -> None:
        self._call = call
        self._name = name

    def __getattr__(self, name: str) -> Proxy:
        if name.startswith("__"):
            raise AttributeError(name)
        return Proxy(self._call, f"{self._name}.{name}" if self._name else name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and kwargs:
            raise LocalError(f"{self._name}: JSON-RPC params are by position or by name, not both")
        return self._call(self._name, list(args) if args else kwargs or UNSET)

    def __repr__(self) -> str:
        return f"<Proxy {self._name or '(root)'}>"


class _Typed:
    """A proxy that knows the methods of a Protocol class."""

    def __init__(self, call: Callable[..., Any], protocol: type[Any], specs: dict[str, _Spec], prefix: str) -> None:
        self._call = call
        self._protocol = protocol
        self._specs = specs
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Any]:
        spec = self._specs.get(name)
        if spec is None:
            raise AttributeError(f"{self._protocol.__name__} has no method {name!r}; it has {', '.join(self._specs)}")

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._call(self._prefix + name, _params(spec, name, args, kwargs), result=spec.result)

        return method

    def __repr__(self) -> str:
        return f"<Proxy of {self._protocol.__name__}>"


def _params(spec: _Spec, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        bound = spec.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise LocalError(f"{name}{spec.signature}: {error}") from None
    if not kwargs and not spec.by_name:
        return list(args) if args else UNSET
    named: dict[str, Any] = {}
    for parameter, value in bound.arguments.items():
        kind = spec.signature.parameters[parameter].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            raise LocalError(f"{name}: *{parameter} cannot be given by name; give every argument by position")
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[parameter] = value
    return named


def proxy(call: Callable[..., Any], protocol: type[Any] | None, prefix: str) -> Any:
    """A proxy over `call(method, params, result=...)`; LocalError when the class has no public methods."""
    if protocol is None:
        return Proxy(call, prefix.rstrip("."))
    if not isinstance(protocol, type):
        raise LocalError(f"peer.proxy takes a class with the far end's methods, or nothing, not {protocol!r:.100}")
    specs: dict[str, _Spec] = {}
    for name, function in inspect.getmembers(protocol, inspect.isfunction):
        if name.startswith("_"):
            continue
        signature = inspect.signature(function)
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        hints = typing.get_type_hints(function, include_extras=True)
        keyword_only = any(p.kind is inspect.Parameter.KEYWORD_ONLY for p in signature.parameters.values())
        specs[name] = _Spec(signature, hints.get("return", Any), keyword_only)
    if not specs:
        raise LocalError(
            f"{protocol.__name__} has no public methods to call: write `def name(self, ...) -> ...: ...` in it"
        )
    return _Typed(call, protocol, specs, prefix)
