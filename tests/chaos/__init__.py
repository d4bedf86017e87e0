"""Chaos: workers, brokers and wires that die at the worst moment, under load, and what became of every call.

`nursery` has the workers, `ledger` their notes of runs, `load` the caller, `scenarios` which process is killed when;
the tests run them short, `python -m tests.chaos` long. Everything random has a seed. The tests count, and print
what they counted.
"""
