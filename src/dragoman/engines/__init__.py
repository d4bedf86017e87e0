"""Brokers and stores, a folder each; only it imports the engine's library."""
