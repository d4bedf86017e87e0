"""Sessions of the stateful era, their streams, and who keeps them."""
