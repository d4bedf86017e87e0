"""Runs functions in child processes: work that holds the interpreter holds nobody else, and is killed when its call
ends."""
