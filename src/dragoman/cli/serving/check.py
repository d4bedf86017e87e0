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
from .. import exit_status
from ..options import Output, WireOptions
from ..target import load
from ..terminal import say
from . import config
from .admin import endpoint_of
from .announce import as_mcp
from .metrics import metrics_url
from .settings import DEFAULT_MCP_URL, DEFAULT_URL, TABLE, ServeOptions, complete_options


def check(target: str | None, urls: tuple[str, ...], options: ServeOptions, wire: WireOptions, output: Output) -> int:
    """Print every fault, or what would be served where. Returns the exit status: 0 without a fault."""
    faults, served_urls = _faults(target, urls, options, wire)
    if output.json:
        output.write({"faults": faults, "urls": list(served_urls)}, "faults")
    elif faults:
        for sentence in faults:
            say(sentence, "red")
    else:
        print(f"in order: {', '.join(served_urls)}")
    return exit_status.WRONG_USAGE if faults else exit_status.FINE


def _faults(
    target: str | None, urls: tuple[str, ...], options: ServeOptions, wire: WireOptions
) -> tuple[list[str], tuple[str, ...]]:
    _, data, faults = config.read_sources(options.config, TABLE)
    faults += config.unknown_variables(TABLE)

    def collect(what: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return what(*arguments)
        except (exit_status.Usage, LocalError) as fault:
            faults.append(str(fault))

    found = collect(complete_options, target, urls, data)
    faults += faults_of(options, wire)
    if found is None:
        return faults, ()
    name, served_urls = found
    served = collect(load, name)
    served_urls = served_urls or (DEFAULT_URL if served is None or as_mcp(served) is None else DEFAULT_MCP_URL,)
    for url in served_urls:
        collect(_check_url, url, options.tls_cert is not None)
    if options.workers is not None:
        collect(check_shared, served_urls)
    return faults, served_urls


def faults_of(options: ServeOptions, wire: WireOptions) -> list[str]:
    """What is wrong with options each by itself; SIGHUP asks that too."""
    faults: list[str] = []
    checks: list[tuple[Any, Callable[[Any], object]]] = [
        (wire, options.limits),
        (options.metrics, metrics_url),
        (options.admin, endpoint_of),
        (options.workers, check_count),
        (options.bus, _bus),
        (options.store, form_of),
    ]
    looks: list[Callable[[], object]] = [
        options.tls,
        options.auth,
        options.collector,
        *(partial(look, value) for value, look in checks if value is not None),
    ]
    for look in looks:
        try:
            look()
        except (exit_status.Usage, LocalError) as fault:
            faults.append(str(fault))
    return faults


def _check_url(url: str, secure: bool) -> None:
    scheme = known(url)
    parse(url)
    if SCHEMES[scheme].plain and SCHEMES[scheme].socket and not secure:
        raise exit_status.Usage(f"{url} needs a certificate: --tls-cert FILE, in the file tls-cert")


def _bus(url: str) -> None:
    known = [name for name, row in SCHEMES.items() if row.open_bus]
    if scheme_of(url) not in known:
        raise exit_status.Usage(
            f"--bus {printable(url)}: {exit_status.suggest_name(scheme_of(url), known, 'there are ' + ', '.join(known))}"
        )
