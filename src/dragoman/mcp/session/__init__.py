"""Sessions of the stateful era, their streams, and where they are kept."""
