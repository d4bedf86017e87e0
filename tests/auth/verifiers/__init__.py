"""Tests of dragoman.auth.verifiers."""
