"""The text of a shell's completion, or of the manual page."""

from __future__ import annotations

from mudroom import __version__
from mudroom.ext.completion.fish import fish
from mudroom.ext.completion.grammar import lines
from mudroom.ext.completion.manual import man
from mudroom.ext.completion.posix import bash, zsh


def generated(name: str) -> str:
    """Return the completion of a shell, or the manual page (``man``)."""
    if name == "man":
        return man(lines(), __version__)
    return {"bash": bash, "zsh": zsh, "fish": fish}[name](lines())
