"""The fenced blocks of a document, and the comments that say how they are run.

A comment of HTML stands directly before its block. A reader of the page does not see it.

    <!-- block: not run: it needs an account -->   the block is not run; ``not_run.toml`` has the count of each reason
    <!-- block: file app.py -->                    the text is written to this file, before it is looked at
    <!-- block: network -->                        only in the tier that has a package registry
    <!-- block: types a -->                        at a terminal, where these words are typed, each at a prompt; the
                                                   tutorial and the how-tos are always at a terminal
    <!-- block: piped -->                          but not this block
    <!-- project: todo -->                         a new throw-away project of this kind begins here
    <!-- hidden: mudroom fork new f -->            commands that are run here and not shown

Without a comment a block is run by its language: ``console`` (commands after ``$``, with what they print), ``sh``,
``python``, ``yaml`` (a policy), ``json``, ``toml``. A block of ``text`` is a picture or an output; it holds no command.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(
    r"^<!-- (?P<comment>block|project|hidden): (?P<value>.*?) -->$"
    r"|^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    document: Path
    line: int
    """Of the fence, from 1."""
    language: str
    text: str
    span: tuple[int, int]
    """Offsets of ``text`` in the document."""
    notes: tuple[str, ...] = ()
    """Values of the ``block`` comments before it."""

    def note(self, name: str) -> str | None:
        """Return the rest of the note that begins with ``name``, or None."""
        for note in self.notes:
            if note == name or note.startswith((f"{name} ", f"{name}: ")):
                return note[len(name) :].removeprefix(":").strip()
        return None


class Project(NamedTuple):
    kind: str


class Hidden(NamedTuple):
    script: str


Part = Block | Project | Hidden


def parts_of(path: Path) -> list[Part]:
    """Return the blocks of a document, and what happens between them, in order. Raise ValueError for a comment without
    its block."""
    text = path.read_text()
    parts: list[Part] = []
    notes: list[str] = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        kind, value = match["comment"], match["value"]
        if kind == "block":
            notes.append(value)
        elif notes and kind:
            raise ValueError(f"{path}:{line}: a comment of a block is not before its block")
        elif kind == "project":
            parts.append(Project(value))
        elif kind == "hidden":
            parts.append(Hidden(value))
        else:
            parts.append(Block(path, line, match["language"], match["text"], match.span("text"), tuple(notes)))
            notes = []
    if notes:
        raise ValueError(f"{path}: a comment of a block is not before its block: {notes}")
    return parts


class Typed(NamedTuple):
    """A command of a ``console`` block with what it printed."""

    command: str
    expected: str
    exit_code: int | None
    """As a comment after the command says it (``# exit 126``); None: 0."""


_EXIT = re.compile(r"#\s*exit (\d+)")


def commands_of(text: str) -> list[Typed]:
    """Return the commands of a ``console`` block. A line that ends with a backslash, or opens a here-document, goes on
    in the next line."""
    found: list[tuple[list[str], list[str]]] = []
    until: str | None = None
    for line in text.splitlines():
        if until is not None:
            found[-1][0].append(line)
            until = None if line == until else until
        elif line.startswith("$ "):
            found.append(([line[2:]], []))
            here = re.search(r"<<\s*'?(\w+)'?", line)
            until = here[1] if here else None
        elif found and not found[-1][1] and found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        elif found:
            found[-1][1].append(line)
        else:
            raise ValueError(f"a console block begins with a command, not with {line!r}")
    typed = []
    for words, printed in found:
        command = "\n".join(words)
        exit_code = _EXIT.search(command)
        text = "\n".join(printed).rstrip("\n")
        typed.append(Typed(command, text, int(exit_code[1]) if exit_code else None))
    return typed
