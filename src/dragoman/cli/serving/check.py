"""`dragoman serve --check`: every fault of what would be served, and nothing served."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...jsonrpc.errors import LocalError
from ...net.accept import check_shared
from ...net.scheme import SCHEMES
from ...net.urls import parse, printable, scheme_of
from ...schemes import known
from ...store.opening import form_of
from ...workers.worker import check_count
from .. import ends
from ..options import Output, Wire
from ..target import load
from ..terminal import say
from . import config
from .admin import place_of
from .announce import as_mcp
from .metrics import metrics_url
from .settings import DEFAULT_MCP_URL, DEFAULT_URL, TABLE, ServeOptions, completed
from .tracing import traces_url


def check(target: str | None, urls: tuple[str, ...], options: ServeOptions, wire: Wire, output: Output) -> int:
    """Print every fault, or what would be served where. Returns the exit status: 0 without a fault."""
    told, places = _faults(target, urls, options, wire)
    if output.json:
        output.write({"faults": told, "urls": list(places)}, "faults")
    elif told:
        for sentence in told:
            say(sentence, "red")
    else:
        print(f"in order: {', '.join(places)}")
    return ends.WRONG_USAGE if told else ends.FINE


def _faults(
    target: str | None, urls: tuple[str, ...], options: ServeOptions, wire: Wire
) -> tuple[list[str], tuple[str, ...]]:
    _, data, told = config.without_faults(options.config, TABLE)
    told += config.strangers(TABLE)

    def tried(what: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return what(*arguments)
        except (ends.Usage, LocalError) as fault:
            told.append(str(fault))

    found = tried(completed, target, urls, data)
    told += faults_of(options, wire)
    if found is None:
        return told, ()
    name, places = found
    served = tried(load, name)
    places = places or (DEFAULT_URL if served is None or as_mcp(served) is None else DEFAULT_MCP_URL,)
    for place in places:
        tried(_place, place, options.tls_cert is not None)
    if options.workers is not None:
        tried(check_shared, places)
    return told, places


def faults_of(options: ServeOptions, wire: Wire) -> list[str]:
    """What is wrong with options each by itself; SIGHUP asks that too."""
    told: list[str] = []
    asked: list[tuple[Any, Callable[[Any], object]]] = [
        (wire, options.limits),
        (options.metrics, metrics_url),
        (options.traces, traces_url),
        (options.admin, place_of),
        (options.workers, check_count),
        (options.bus, _bus),
        (options.store, form_of),
    ]
    looks: list[Callable[[], object]] = [
        options.tls,
        options.auth,
        *(partial(look, value) for value, look in asked if value is not None),
    ]
    for look in looks:
        try:
            look()
        except (ends.Usage, LocalError) as fault:
            told.append(str(fault))
    return told


def _place(url: str, secure: bool) -> None:
    scheme = known(url)
    parse(url)
    if SCHEMES[scheme].plain and SCHEMES[scheme].socket and not secure:
        raise ends.Usage(f"{url} needs a certificate: --tls-cert FILE, in the file tls-cert")


def _bus(url: str) -> None:
    known = [name for name, row in SCHEMES.items() if row.open_bus]
    if scheme_of(url) not in known:
        raise ends.Usage(
            f"--bus {printable(url)}: {ends.meant(scheme_of(url), known, 'there are ' + ', '.join(known))}"
        )
