"""The benchmarks: dragoman beside today's peers and beside what the machine can do at best.

`python -m bench` measures every row of the speed table, each contestant in a process of its own,
in interleaved rounds; `python -m bench --help` says the rest. Rules of the house are in `bench/README.md`.
"""
