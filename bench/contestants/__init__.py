"""The contestants, a file each: dragoman by its public face (`ours*`), the same work with nothing around it (`bare*`,
`echo`), and peers, whose files import what is installed in environments of their own.

A file has parts, functions that serve or are measured: `python -m bench.contestants FILE PART WORD ...`.
"""
