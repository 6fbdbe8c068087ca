"""Deeds as a command: the words that try them elsewhere, and the lines that come back.

A line is what a command said, and the command may lie: it counts only as far as ``verdict.py`` lets it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

from mudroom.typing import Any, NamedTuple


class DeedCall(NamedTuple):
    """A deed that is to be tried. ``directory`` is new, and the deed's own; ``facts`` are told to the deed."""

    deed: str
    directory: str
    facts: Mapping[str, Any]


class DeedAnswer(NamedTuple):
    """``errno``: 0 if the deed was not refused; ``evidence``: its own word."""

    deed: str
    errno: int
    evidence: str


def program(calls: Sequence[DeedCall], directory: str) -> list[str]:
    """Return the words of a command that tries deeds in turn."""
    tail = "\nimport sys; main(sys.argv[1:])\n"
    # The text is too long for a Windows command line ("CreateProcessW": 32,767 characters), and a virtual environment's
    # Python starts another Python there.
    if sys.platform == "win32":
        path = directory + "/deeds.py"
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text_of("deed", "windows_deed") + tail)
        python = getattr(sys, "_base_executable", "") or sys.executable
        return [os.path.realpath(python), "-I", "-S", path, json.dumps(calls)]
    return [os.path.realpath(sys.executable), "-I", "-S", "-c", text_of("deed") + tail, json.dumps(calls)]


def text_of(*modules: str) -> str:
    """Return the source text of deeds that run elsewhere."""
    directory = os.path.dirname(os.path.abspath(__file__))
    texts = []
    for name in modules:
        with open(f"{directory}/{name}.py", encoding="utf-8") as stream:
            texts.append(stream.read())
    return "\n".join(texts)


def read_answers(output: bytes) -> list[DeedAnswer]:
    """Return a program's answers, or no answers if any line cannot be read."""
    try:
        rows = [json.loads(line) for line in output.splitlines()]
        return [DeedAnswer(str(deed), int(number), str(evidence)) for deed, number, evidence in rows]
    except (ValueError, TypeError):
        return []
