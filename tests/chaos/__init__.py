"""Chaos: workers, brokers and wires that die at the worst moment, under load, and what became of every call.

`nursery` has the workers, `ledger` their notes of runs, `load` the caller, `scenarios` which process is killed when;
the tests run them short, `python -m tests.chaos` long. `tasks` and `events` kill servers (`servers`), and keep in a
`journal` what they have seen, so that a run can be stopped and taken up again. Everything random has a seed. The tests
count, and print what they counted.
"""
