"""The generated files' texts: ``dev/completion`` writes them, and a test compares them."""

from __future__ import annotations

from mudroom import __version__
from mudroom.ext.completion.fish import fish
from mudroom.ext.completion.grammar import lines
from mudroom.ext.completion.manual import man
from mudroom.ext.completion.posix import bash, zsh


def texts() -> dict[str, str]:
    """Return each file's text, by the names in ``completion.FILES``."""
    rows = lines()
    return {"bash": bash(rows), "zsh": zsh(rows), "fish": fish(rows), "man": man(rows, __version__)}
