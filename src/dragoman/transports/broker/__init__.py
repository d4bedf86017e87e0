"""What the wires of all brokers share."""
