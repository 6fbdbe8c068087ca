"""Profiles of known agents (``profiles/*.toml``), and the code that reads them."""
