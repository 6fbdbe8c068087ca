"""Shell completions and the manual page, made from the verbs' parsers (``grammar.py``)."""

from __future__ import annotations

NAMES = ("bash", "zsh", "fish", "man")
VALUES = ("forks", "paths", "presets", "profiles", "tries", "workers")
"""Kinds of words that a shell asks mudroom for: ``mudroom completion --values forks``."""
