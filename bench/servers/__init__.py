"""dragoman as a contestant, by its public face alone."""
