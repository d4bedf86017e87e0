"""What differs between operating systems: the one room that knows POSIX from Windows.

Each file is one concept and has a face for either world, with the same names; what is used by the others stands nowhere
else (a test forbids it). Nothing here knows a wire, a message or a service.
"""
