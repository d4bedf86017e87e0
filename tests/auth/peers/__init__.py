"""Authorization against programs that are not ours."""
