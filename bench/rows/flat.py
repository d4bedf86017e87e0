"""The cost of a call against calls in flight, methods registered and connections, at 1, 1,000 and 10,000: flat?

The goal allows a quarter: caches are finite, and ten thousand of anything leave them.
"""

from __future__ import annotations

from bench.environments import Missing
from bench.figures import Figure, Row, at_most, ratio
from bench.referee import Contestant, Failed, Referee
from bench.rows.idle import SPARE, raise_file_limit

SIZES = (1, 1_000, 10_000)
TCP = ["-m", "bench.servers.wires", "tcp://127.0.0.1:%", "PORT"]
ALLOWED = 1.25


def row(key: str, what: str, figures: dict[int, Figure]) -> Row:
    """The largest beside the smallest."""
    small, *rest = figures.values()
    made = Row(key, f"cost of a call at 10,000 {what}", "us", rest[-1], None, [], [small, *rest[:-1]])
    for size, figure in figures.items():
        figure.name = f"at {size:,}" if figure is not rest[-1] else "dragoman"
    made.goals = [at_most("flat (within 25 % of 1)", ratio(rest[-1], small), ALLOWED)]
    return made


def methods(referee: Referee) -> Row:
    """In process: the lookup by name."""
    ones = {size: Contestant(f"{size}", ["-m", "bench.servers.in_process", str(size)], 100_000) for size in SIZES}
    referee.in_process(list(ones.values()))
    return row("flat-methods", "methods registered", {size: one.figure for size, one in ones.items()})


def on_tcp(referee: Referee, key: str, what: str, order: dict[str, object]) -> Row:
    """A server for each size, brought to that size by `order`, then measured in turn with 32 calls in flight."""
    figures = {size: Figure(f"{size}") for size in SIZES}
    for _ in range(max(1, referee.rounds // 3)):
        for size, figure in figures.items():
            one = Contestant("dragoman", TCP, 20_000)
            try:
                with referee.generator() as load, referee.server(one) as (pid, address):
                    load.ask(do="open", name="a", framing="newline", address=address, pid=pid)
                    load.ask(**order, name="a", count=size)
                    calls = referee.calls(one)
                    for _ in range(2):
                        load.ask(do="run", name="a", calls=calls, window=32)
                    for _ in range(3):
                        spent = load.ask(do="run", name="a", calls=calls, window=32)["cpu"]
                        figure.samples.append(spent / calls * 1e6)
                    load.ask(do="close", name="a")
            except (Missing, Failed, OSError) as error:
                figure.missing = str(error)
    return row(key, what, figures)


def flat(referee: Referee) -> list[Row]:
    """The three lines."""
    rows = [methods(referee), on_tcp(referee, "flat-calls", "calls in flight", {"do": "pend", "method": "hold"})]
    if raise_file_limit(SIZES[-1] + SPARE) >= SIZES[-1] + SPARE:
        rows.append(on_tcp(referee, "flat-connections", "connections", {"do": "hold"}))
    else:
        gone = Figure("dragoman", missing="the limit of open files is too low")
        rows.append(Row("flat-connections", "cost of a call at 10,000 connections", "us", gone))
    return rows
