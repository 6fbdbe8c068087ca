"""One-line summary of an apply, undo or redo, shared by the command line, the page and the terminal review. Pure.

If the user chose the project's version, no project file changes: the fork's version is removed from the fork, and an
undo puts it back. Such files are not summarised as "0 written".
"""

from __future__ import annotations

from mudroom.typing import Literal

RECOVERY_WORDS = {
    "deferred": "was cut off before it touched the project; the fork is whole",
    "finished": "was cut off in the middle; it is finished now",
    "undone": "was being undone when it was cut off; that is finished now",
}
"""What became of an apply that was cut off, by the outcome of its recovery."""


def apply_words(written: int, removed: int, kept: int, refs: int = 0) -> str:
    """Summarise an apply by its counts. ``kept``: files for which the project's version was chosen. ``refs``: git refs
    that moved."""
    if refs and not written and not removed:
        return _refs_words(refs, "moved")
    if kept and not written and not removed:
        return "the project stays as it is"
    return f"{written:,} written" + (f", {removed:,} removed" if removed else "")


def _refs_words(refs: int, verb: str) -> str:
    return f"{refs:,} ref{'' if refs == 1 else 's'} of git {verb}"


def undo_words(
    what: Literal["undo", "redo"], written: int, removed: int, again: int, holder: str, refs: int = 0
) -> str:
    """Summarise an undo or redo by its counts. ``again``: files that are back in the fork, or removed from it again;
    ``holder``: that fork's present name. ``refs``: git refs that moved."""
    moved = _refs_words(refs, "moved back" if what == "undo" else "moved") if refs else ""
    if moved and not written and not removed and not again:
        return moved
    files = _files_words(what, written, removed, again, holder)
    return f"{files}, {moved}" if moved else files


def _files_words(what: Literal["undo", "redo"], written: int, removed: int, again: int, holder: str) -> str:
    where = f"{'in' if what == 'undo' else 'out of'} {holder} again"
    if again and not written and not removed:
        return f"the project stays as it is, {again:,} {'file is' if again == 1 else 'files are'} {where}"
    verb = "brought back" if what == "undo" else "written"
    return f"{written:,} {verb}, {removed:,} removed" + (f", {again:,} {where}" if again else "")
