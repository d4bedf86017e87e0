"""Tests of dragoman.auth.presets."""
