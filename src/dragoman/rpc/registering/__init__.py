"""What a service registers: methods, with what is around them."""
