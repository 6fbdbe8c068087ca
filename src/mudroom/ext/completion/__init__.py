"""Shell completions and the manual page: generated files, and their generator.

``dev/completion`` writes ``mudroom.bash``, ``_mudroom`` (zsh), ``mudroom.fish`` and ``mudroom.1`` from the verbs'
parsers (``grammar.py``); tests/ext/completion compares them. They are stored because loading all verbs takes half a
second, and a shell reads its completion at each start.
"""

from __future__ import annotations

import os

FILES = {"bash": "mudroom.bash", "zsh": "_mudroom", "fish": "mudroom.fish", "man": "mudroom.1"}
VALUES = ("forks", "paths", "presets", "profiles", "tries", "workers")
"""Kinds of words that a shell asks mudroom for: ``mudroom completion --values forks``."""


def generated(name: str) -> str:
    """Return a generated file: a shell's name, or ``man``."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), FILES[name]), encoding="utf-8") as stream:
        return stream.read()
