"""`dragoman call | notify | methods | check`: JSON-RPC at the terminal."""
