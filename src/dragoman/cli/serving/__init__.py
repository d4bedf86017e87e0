"""`dragoman serve`."""
