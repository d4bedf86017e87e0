"""Services and peers: named functions, the calls that come in and go out, on no wire in particular."""
