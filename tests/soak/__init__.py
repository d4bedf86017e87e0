"""The soak: every kind of caller at once, as long as it is told, with every answer checked, and nothing left behind.

`python -m tests.soak` runs it. `scenes` are what callers do, `served` is what they call.
"""
