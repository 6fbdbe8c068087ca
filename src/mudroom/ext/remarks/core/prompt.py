"""One prompt of several remarks, for an agent. Pure.

Every line that quotes something begins with a mark: ``|`` a line of a file, ``>`` the reviewer's words, ``+`` a line
that the reviewer suggests, ``<`` the agent's own words. Line breaks and acting characters inside a line are escaped, so
that no quoted text can be taken for another one, or for the prompt's own words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mudroom.core.text.escaping import WIDEST, escape_line
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show_path
from mudroom.ext.remarks.core.value import ReviewRemark
from mudroom.typing import Literal, NamedTuple

LARGEST = 100_000
"""Bytes in a prompt: an argument of execve(2) has at most 128 KiB (MAX_ARG_STRLEN)."""
FETCHED = 30_000
"""Bytes in a prompt that is fetched by a tool: Claude Code warns of a longer result."""
_MOST_QUOTED = 40
"""Lines that are quoted from a file; of more the first and the last."""

Place = Literal["", "here", "answered", "outdated", "unknown"]


class LocatedRemark(NamedTuple):
    """A remark with the place of its lines in the file as it is."""

    name: str
    remark: ReviewRemark
    where: Place = ""
    """As in ``CarriedLines``; ``unknown`` if the file cannot be read; empty without lines."""
    first: int = 0
    last: int = 0
    lines: tuple[bytes, ...] = ()
    """The lines there; of lines that are gone, as they were."""

    @property
    def label(self) -> str:
        """The place in words: ``shop/basket.py:3-4``."""
        remark = self.remark
        if not remark.path and not remark.path_base64:
            return "the whole"
        path, side = show_path(remark.place), " (removed)" if remark.side == "old" else ""
        first, last = (self.first, self.last) if self.where in ("here", "answered") else (remark.first, remark.until)
        if not remark.first:
            return path
        return f"{path}:{first}{'' if last == first else f'-{last}'}{side}"


def prompt_of(remarks: Sequence[LocatedRemark]) -> str:
    """Return the prompt, in the order of files and lines; remarks about the whole come first."""
    lines = [
        f"The user has reviewed your changes in this project, and has {counted(len(remarks), 'remark')}. Take each of "
        "them into account in the files, then say for each, by its name, what you have done.",
        "A line that begins with | is quoted from a file with its number, one with > is the user's, one with + is what "
        "the user suggests in its place, one with < is your own earlier answer.",
    ]
    for remark in sorted(remarks, key=lambda one: (one.remark.place, one.first or one.remark.first, one.name)):
        lines += ["", *_section(remark)]
    return "\n".join(lines) + "\n"


def _section(one: LocatedRemark) -> Iterator[str]:
    remark = one.remark
    yield f"Remark {one.name}, {_where(one)}:"
    if remark.first and one.lines:
        yield from _quoted(one)
    yield from _marked(">", remark.text)
    for answer in remark.answers:
        yield from _marked(">" if answer.by == "reviewer" else "<", answer.text)
    if remark.suggestion == "":
        yield "The user suggests to remove these lines."
    elif remark.suggestion is not None:
        yield from _marked("+", remark.suggestion.removesuffix("\n"))


def _where(one: LocatedRemark) -> str:
    remark = one.remark
    if not remark.place:
        return "about all of it"
    path = show_path(remark.place)
    if not remark.first:
        return f"about the file {path}"
    first, last = (one.first, one.last) if one.where in ("here", "answered") else (remark.first, remark.until)
    lines = f"line {first}" if first == last else f"lines {first} to {last}"
    if remark.side == "old":
        return f"about {lines} of the original {path}, which you have removed"
    is_one = first == last
    states = {
        "answered": f", which {'has' if is_one else 'have'} changed since",
        "outdated": f", which {'is' if is_one else 'are'} gone since",
    }
    return f"about {lines} of {path}{states.get(one.where, '')}"


def _quoted(one: LocatedRemark) -> Iterator[str]:
    first = one.first if one.where in ("here", "answered") else one.remark.first
    numbered = list(enumerate(one.lines, first))
    half, left = _MOST_QUOTED // 2, len(numbered) - _MOST_QUOTED
    shown = [*numbered[:half], None, *numbered[-half:]] if left > 0 else numbered
    for row in shown:
        yield f"| {row[0]}: {_text(row[1])}" if row is not None else f"(and {counted(left, 'line')} between)"


def _marked(mark: str, text: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield f"{mark} {_text(line.encode(), LARGEST)}"


def _text(line: bytes, widest: int = WIDEST) -> str:
    text, _odd, cut, _until = escape_line(line.rstrip(b"\r\n"), widest=widest)
    return f"{text}{f' (and {cut:,} bytes)' if cut else ''}"
