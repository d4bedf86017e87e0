"""`dragoman doctor`: finds the first fault on the way to a far end, and says how to fix it."""
