"""Commands of authorization."""
