"""Services and peers: named functions, and calls in both directions, independent of the wire."""
