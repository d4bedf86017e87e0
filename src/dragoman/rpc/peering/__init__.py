"""The peer of a channel: what `connect` makes, and serving for each channel that comes in."""
