"""Tests of dragoman.auth.proxy."""
