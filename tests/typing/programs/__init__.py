"""Small programs as users write them, to be read by type checkers; `test_programs.py` says how. They do not run."""
