"""What is behind a service: what it registers, with what is around it, and what answers its calls."""
