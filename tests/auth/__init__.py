"""Tests of dragoman.auth."""
