"""Writes ESCAPES.md and BYPASSES.md: one row for each attempt, one column for each way in which it was made."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from .attempt import Attempt, Table
from .outside import Outcome, Outcomes, got_out

_DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = _DOCS / "evidence"
"""Where both documents are."""
THREATS = f"[THREATS.md]({os.path.relpath(_DOCS / 'THREATS.md', FOLDER)})"
SYSTEM = f"Linux {platform.release()} {platform.machine()}"
USER = "root" if os.geteuid() == 0 else "an ordinary user"


def made() -> str:
    return f"{datetime.date.today().isoformat()}, {SYSTEM}, as {USER}."


def head(names: Iterable[str]) -> Iterator[str]:
    """Yield the head of a table."""
    names = list(names)
    yield f"| {' | '.join(names)} |"
    yield "|" + " --- |" * len(names)


def cell(_attempt: Attempt, outcome: Outcome | None) -> str:
    return "-" if outcome is None else "**out**" if outcome.evidence else "·"


def table(
    attempts: Table,
    columns: Mapping[str, Outcomes],
    key: str,
    cell: Callable[[Attempt, Outcome | None], str] = cell,
    bare: str = "",
) -> Iterator[str]:
    """Yield the table of all attempts. ``key``: what **out** stands for. ``bare``: as of ``rows``."""
    yield from ("", f"**out**: {key}. · it did not. - not tried.", "")
    yield from head(("attempt", "what it tries", "known from", *columns))
    for group in dict.fromkeys(attempt.group for attempt in attempts.values()):
        yield f"| **{group}** | | |" + " |" * len(columns)
        members = [attempt for attempt in attempts.values() if attempt.group == group]
        cells = [[cell(attempt, column.get(attempt.name)) for column in columns.values()] for attempt in members]
        yield from rows(members, list(columns), cells, bare)


class Named(Protocol):
    """An attempt, or a pair."""

    @property
    def name(self) -> str: ...
    @property
    def tries(self) -> str: ...
    @property
    def source(self) -> str: ...


def rows(members: Iterable[Named], columns: Sequence[str], cells: Iterable[Sequence[str]], bare: str) -> Iterator[str]:
    """Yield the rows of a group. ``bare``: the column without a sandbox; those that all other columns hold are one row,
    with the number of them that get out there."""
    held = list[tuple[Named, Sequence[str]]]()
    for member, shown in zip(members, cells, strict=True):
        if bare in columns and all(text == "·" for name, text in zip(columns, shown, strict=True) if name != bare):
            held.append((member, shown))
        else:
            yield _row(member, shown)
    if len(held) == 1:
        yield _row(*held[0])
    elif held:
        out = sum(shown[columns.index(bare)].startswith("**") for _member, shown in held)
        texts = [
            f"{each.name}: {_plain(each.tries)}" + f" ({_plain(each.source)})" * bool(each.source) for each, _ in held
        ]
        marks = " | ".join(f"**{out}**" if name == bare else "·" for name in columns)
        yield f"| *{len(held)} held by all* | {'; '.join(texts)} | | {marks} |"


def _row(member: Named, cells: Sequence[str]) -> str:
    return f"| {member.name} | {_plain(member.tries)} | {_plain(member.source)} | {' | '.join(cells)} |"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("[", "\\[").replace("<", "\\<")


class Section(NamedTuple):
    """A part of a document between two marks."""

    name: str
    made: Callable[[], Iterable[str]] | None = None
    """Makes it whenever the document is written; None: it stays as it was."""

    @property
    def begin(self) -> str:
        return f"<!-- {self.name}: generated -->"

    @property
    def end(self) -> str:
        return f"<!-- end of {self.name} -->"

    def put(self, document: str, lines: Iterable[str]) -> str:
        """Return the document with these lines as this section: in the place of the old ones, else at the end."""
        text = "\n".join((self.begin, "", *lines, "", self.end))
        if self.of(document):
            before, _begin, rest = document.partition(self.begin)
            return before + text + rest.partition(self.end)[2]
        return document.rstrip("\n") + "\n\n" + text + "\n"

    def of(self, document: str) -> str:
        """Return the section's lines as a document has them; empty if it has none."""
        _before, _begin, rest = document.partition(self.begin)
        inside, end, _rest = rest.partition(self.end)
        return inside.strip("\n") if end else ""

    def keep(self, old: str, document: str) -> str:
        """Return the document with the section made anew, or as the old document has it."""
        lines = self.made() if self.made else self.of(old).splitlines()
        return self.put(document, lines) if self.made or lines else document

    def write(self, path: Path, lines: Iterable[str]) -> None:
        path.write_text(self.put(path.read_text(), lines))


def parser(prog: str, description: str, names: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m tests.conformance.{prog}", description=description)
    parser.add_argument("--only", action="append", choices=names, help="one of them; repeatable")
    parser.add_argument("--write", metavar="FILE", type=Path, help="write the document there")
    return parser


def write(
    args: argparse.Namespace,
    columns: Mapping[str, Outcomes | str],
    lines: Iterable[str],
    sections: Iterable[Section] = (),
) -> None:
    """Write the document, or print it, and how attempts got out if ``--only`` asks for a column."""
    text = "\n".join(lines) + "\n"
    if args.write:
        old = args.write.read_text() if args.write.exists() else ""
        for section in sections:
            text = section.keep(old, text)
        args.write.write_text(text)
    else:
        sys.stdout.write(text)
    for name in args.only or ():
        if not isinstance(column := columns[name], str):
            for attempt, evidence in got_out(column).items():
                sys.stdout.write(f"{name}: {attempt}: {evidence[:200]}\n")
