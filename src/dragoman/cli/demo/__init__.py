"""`dragoman demo`, and the services that it serves."""
