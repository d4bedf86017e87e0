"""Tests of dragoman.cli.auth."""
