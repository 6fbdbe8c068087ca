"""The programs that are installed here, with what their help and manual pages say of their options."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from mudroom.core.command.program.classification import TABLES
from mudroom.core.command.program.git import SUBCOMMANDS

from .generation import Program, operands_of
from .option import options_of, variables_of
from .runner import Runner
from .world import words

_MANUAL = Path("/usr/share/man")
_NOT_TRIED = words("""
    reboot poweroff halt shutdown init telinit kill killall killall5 pkill skill xkill yes sleep busybox
""")
"""Programs that end what observes them, or whose options are not theirs."""


def installed(path: str) -> list[tuple[str, ...]]:
    """Return the programs of the tables that are installed, each with each of its subcommands."""
    found: list[tuple[str, ...]] = []
    for table in TABLES:
        for name, rule in table.items():
            text = name.decode()
            if "/" in text or text in _NOT_TRIED or shutil.which(text, path=path) is None:
                continue
            subcommands = SUBCOMMANDS if name == b"git" else rule.subcommands
            found.append((text,))
            for verb, inner in (subcommands or {}).items():
                found.append((text, verb.decode()))
                found += [(text, verb.decode(), third.decode()) for third in inner.subcommands or ()]
    return sorted(set(found))


def survey(runner: Runner, programs: Sequence[tuple[str, ...]]) -> list[Program]:
    """Return the programs with their options. Their help is asked for inside a sandbox."""
    asked: list[str] = []
    for called in programs:
        short = called[0] == "git" and len(called) > 1
        asked.append(" ".join((*called, "-h" if short else "--help")))
    texts = runner.output(asked)
    return [_program(called, help_text) for called, help_text in zip(programs, texts, strict=True)]


def _program(called: tuple[str, ...], help_text: str) -> Program:
    pages = list(_pages(["-".join(called), *(called[:1] if len(called) > 1 and called[0] != "git" else ())]))
    base = operands_of(called)
    if len(called) > 1 and " ".join(called) not in _own() and called[0] != "git":
        base = ((), ("README.md",), ("x",))
    return Program(called, options_of(help_text, *pages), base, variables_of(help_text, *pages))


def _own() -> Iterable[str]:
    from .generation import OPERANDS

    return OPERANDS


def _pages(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        for path in sorted(_MANUAL.glob(f"man[18]/{name}.[18]*")):
            if path.suffix == ".gz":
                yield gzip.decompress(path.read_bytes()).decode(errors="replace")
            else:
                yield path.read_text(errors="replace")
