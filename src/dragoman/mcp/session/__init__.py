"""Sessions of the stateful era, their streams, and the stores that keep them."""
