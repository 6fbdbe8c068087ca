"""What an apply, an undo or a redo has come to, in a line, as every front door says it. Pure.

Where somebody decided for what the project has, nothing of the project changes: the fork's is taken out of the fork,
and an undo puts it back there. That is no "0 written".
"""

from __future__ import annotations

from typing import Literal


def landed_words(written: int, removed: int, kept: int) -> str:
    """``kept``: where the project's was kept, as was decided."""
    if kept and not written and not removed:
        return "the project stays as it is"
    return f"{written:,} written" + (f", {removed:,} removed" if removed else "")


def turned_words(what: Literal["undo", "redo"], written: int, removed: int, again: int, holder: str) -> str:
    """``again``: files that are in the fork again, or out of it; ``holder``: how that fork is called now."""
    where = f"{'in' if what == 'undo' else 'out of'} {holder} again"
    if again and not written and not removed:
        return f"the project stays as it is, {again:,} {'file is' if again == 1 else 'files are'} {where}"
    verb = "brought back" if what == "undo" else "written"
    return f"{written:,} {verb}, {removed:,} removed" + (f", {again:,} {where}" if again else "")
