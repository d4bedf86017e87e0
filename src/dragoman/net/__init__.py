"""What all wires share: URLs, sockets, accepting, reconnecting, replies."""
