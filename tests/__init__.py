"""Tests. Their folders are those of `src/dragoman`: what one room does is tested in the folder of that name.

What goes through several rooms has a place of its own: `chaos` (workers and brokers that die under load), `conformance`
(the official suite of MCP), `faults` (far ends and children that die, stand still or say too much, on every wire),
`fuzz`, `interop` (libraries and programs of others), and the modules `test_*` beside this one: those of the files in
`src/dragoman` itself, those that look at the whole package (its names, options, imports), the table of wire cases over
every wire, documentation and examples. `cases` are tables as data. The real brokers are `engines.brokers`.
"""
