"""Profiles of known agents (``profiles/*.toml``), and what reads them."""
