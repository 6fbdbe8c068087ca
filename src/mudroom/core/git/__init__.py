"""Formats of git, as values."""
