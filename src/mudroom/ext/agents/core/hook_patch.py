"""Paths of a patch in the format of ``apply_patch``, which codex and opencode have: replaced, the rest as it is. Pure.

The grammar is that of codex (``apply_patch`` in its instructions): ``*** Begin Patch``, then ``*** Add File: PATH``,
``*** Delete File: PATH`` or ``*** Update File: PATH`` with an optional ``*** Move to: PATH``, then ``*** End Patch``.
Lines of a file begin with ``+``, ``-``, a space or ``@@``, so that none of them is taken for a heading.
"""

from __future__ import annotations

from collections.abc import Callable

BEGIN, END = "*** Begin Patch", "*** End Patch"
HEADINGS = ("*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: ")
_OTHER = ("*** End of File",)


class PatchError(ValueError):
    """Not a patch of this format. The message is one line."""


def with_paths(patch: str, replace: Callable[[str], str]) -> str:
    """Return the patch with each path replaced. Raise PatchError if a line of it is not known."""
    lines = patch.split("\n")
    if lines[0].strip() != BEGIN or END not in (line.strip() for line in lines):
        raise PatchError(f"it does not begin with {BEGIN} and end with {END}")
    named = 0
    for number, line in enumerate(lines):
        text = line.replace("\ufeff", "").strip()  # JavaScript's trim() takes it for white space
        if not text.startswith("***") or line.startswith(("+", "-")):
            continue
        heading = next((heading for heading in HEADINGS if text.startswith(heading.strip())), None)
        if not line.startswith("***"):  # context, or a heading to a reader that ignores white space
            if heading is not None or text in (BEGIN, END):
                raise PatchError(f"line {number + 1} may be a heading: {text[:60]!r}")
            continue
        if heading is not None:
            if not text.startswith(heading):
                raise PatchError(f"line {number + 1} names no file")
            named += 1
            lines[number] = heading + replace(text[len(heading) :].strip())
        elif text not in (BEGIN, END, *_OTHER):
            raise PatchError(f"line {number + 1} is not known: {text[:60]!r}")
    if not named:
        raise PatchError("it names no file")
    return "\n".join(lines)
