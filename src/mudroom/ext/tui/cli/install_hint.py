"""How what is missing gets installed, in the words of the tool that installed mudroom: pip in a Debian or Ubuntu of its
own refuses (PEP 668), and pipx and uv keep an environment for each program."""

from __future__ import annotations

import sys

PACKAGES = {"inspect": "'cryptography>=45' 'h2>=4.3'", "keyring": "'keyring>=25'", "tui": "'textual>=6'"}
"""Extras of pyproject.toml that users meet."""


def install_hint(extra: str, prefix: str = sys.prefix) -> str:
    """Return the command that adds an extra to this installation. ``prefix``: the directory of its environment."""
    if "/pipx/venvs/" in prefix:
        return f"pipx inject {prefix.rpartition('/')[2]} {PACKAGES[extra]}"
    if "/uv/tools/" in prefix:
        return f"uv pip install --python {prefix} {PACKAGES[extra]}"
    return f"pip install {PACKAGES[extra]}"  # not mudroom's name: before a version is published anybody could take it
