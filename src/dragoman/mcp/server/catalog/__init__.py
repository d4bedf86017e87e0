"""What a server offers: how it is registered."""
