"""The name for a checkpoint that is made before a command."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mudroom.core.text.redaction import redact, redact_words
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show

_STEM = 40
"""Longest stem, without ``before-``."""
_READ = 4096
"""Bytes read from each word."""
_UNUSUAL = regex(r"[^A-Za-z0-9_.]+")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def checkpoint_stem(argv: Sequence[bytes], known: Collection[str] = ()) -> str:
    """Return a checkpoint's name before this command, without its number: ``before-rm-rf-build``. Names are shown in
    more places than commands, so secrets are removed; ``known``: secret values."""
    words = [show(word[:_READ]) for word in argv]
    if len(words) > 2 and words[0].rpartition("/")[2] in _SHELLS and words[1] in ("-c", "-lc"):
        words = redact(words[2].strip().partition("\\n")[0], known).split(" ")
    else:
        words = redact_words(words, known)
    line = " ".join((words[0].rpartition("/")[2], *words[1:]))
    stem = _UNUSUAL.sub("-", line).strip("-.")[:_STEM].rstrip("-.")
    return f"before-{stem}" if stem else "before"
