"""What the machine can do at best: the same work on the same wire with nothing around it."""
