"""Runs the blocks of a document, and says what is different from what it shows."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import yaml

from documents.block import Block, Hidden, Project, Typed, commands_of, parts_of
from documents.machine import ROOT, Machine
from documents.match import as_shown, matches

NOT_RUN = Path(__file__).with_name("not_run.toml")
LANGUAGES = frozenset({"console", "sh", "python", "yaml", "json", "toml", "text", "nginx"})
ELSEWHERE = {
    "docs/LIBRARY.md": "tests/library/test_library_document.py",
    "docs/evidence/DAY.md": "tests/test_transcript.py",
    "docs/evidence/TRANSCRIPT.md": "tests/test_transcript.py",
    "docs/REVIEW.md": "dev/screens",
}
"""Documents whose blocks another test plays; those of docs/reference/agents are made by ``agent_pages.py``."""


def is_typed(document: Path) -> bool:
    """Return whether a reader types the commands of a document at a terminal, where mudroom asks."""
    return document == ROOT / "docs/tutorial.md" or document.parent == ROOT / "docs/howto"


def documents() -> list[Path]:
    """Return every document whose blocks are run here."""
    named = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("examples/*/README.md"))]
    found = sorted((ROOT / "docs").rglob("*.md"))
    inner = (ROOT / "docs/decisions", ROOT / "docs/reference/agents")
    return named + [path for path in found if path.parent not in inner and str(path.relative_to(ROOT)) not in ELSEWHERE]


class Difference(NamedTuple):
    block: Block
    problem: str

    def __str__(self) -> str:
        where = self.block.document.relative_to(ROOT)
        return f"{where}:{self.block.line}: {self.problem}"


class Played(NamedTuple):
    differences: list[Difference]
    ran: int
    text: str
    """The document with what was printed in place of what was shown."""


def play(document: Path, root: Path, *, network: bool = False) -> Played:
    """Run all blocks of a document in order, in one throw-away home below ``root``."""
    machine: Machine | None = None
    differences: list[Difference] = []
    changes: list[tuple[tuple[int, int], str]] = []
    ran = 0
    for part in parts_of(document):
        if isinstance(part, Block) and (part.language == "text" or part.note("not run") is not None):
            continue
        if isinstance(part, Block) and part.note("network") is not None and not network:
            continue
        if machine is None:
            machine = Machine(root)
            if not isinstance(part, Project):
                machine.new_project("app")
        if isinstance(part, Project):
            machine.new_project(part.kind)
        elif isinstance(part, Hidden):
            done = machine.run(f"set -e\n{part.script}")
            assert done.exit_code == 0, f"{document}: {part.script}: {done.printed}"
        else:
            ran += 1
            problems, shown = _run(part, machine)
            differences += [Difference(part, problem) for problem in problems]
            if shown is not None and shown != part.text:
                changes.append((part.span, shown))
    text = document.read_text()
    for (start, end), shown in reversed(changes):
        text = text[:start] + shown + text[end:]
    return Played(differences, ran, text)


def is_mirrored(host: str) -> bool:
    """Return whether a mirror in a private network stands for this host: the gate wants that said (``--private``)."""
    try:
        return not all(ipaddress.ip_address(row[4][0]).is_global for row in socket.getaddrinfo(host, 443))
    except OSError:
        return False  # the block says so itself


def _run(block: Block, machine: Machine) -> tuple[list[str], str | None]:
    name = block.note("file")
    if name is not None:
        path = machine.directory / os.path.expanduser(name).replace(os.path.expanduser("~"), str(machine.home))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
    if block.language == "console":
        mirrored = block.note("network") is not None and is_mirrored("registry.npmjs.org")
        return _run_console(block, machine, (" allow @", " allow --private @") if mirrored else ("", ""))
    if block.language == "sh" and name is None:
        done = machine.run(f"set -e\n{block.text}")
        return ([] if done.exit_code == 0 else [f"exit {done.exit_code}\n{block.text}{done.printed}"]), None
    if block.language == "python" and name is None:
        script = machine.root / "block.py"
        script.write_text(block.text)
        modules = os.pathsep.join(filter(None, sys.path))
        done = machine.run(f"PYTHONPATH='{modules}' '{sys.executable}' -W error '{script}'")
        return ([] if done.exit_code == 0 else [f"exit {done.exit_code}\n{done.printed}"]), None
    try:
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "yaml" and name is None:
            yaml.safe_load(block.text)
            (machine.root / "policy.yaml").write_text(block.text)
            done = machine.run(f"mudroom policy check '{machine.root}/policy.yaml'")
            return ([] if done.exit_code == 0 else [f"the policy is wrong\n{done.printed}"]), None
    except ValueError as error:
        return [f"{block.language}: {error}"], None
    return [], None


def _run_console(block: Block, machine: Machine, instead: tuple[str, str]) -> tuple[list[str], str]:
    """``instead``: words of a command, and those that run in their place."""
    problems, shown = [], []
    answers = (block.note("types") or "").split()
    is_wide = is_typed(block.document)  # a line that is folded in a page would be hard to read
    has_terminal = block.note("types") is not None or is_wide
    for typed in commands_of(block.text):
        command = typed.command.replace(*instead)
        at_terminal = has_terminal and command.startswith("mudroom") and block.note("piped") is None
        done = (
            machine.run_at_terminal(command, answers, 240 if is_wide else 110) if at_terminal else machine.run(command)
        )
        wanted = typed.exit_code or 0
        if done.exit_code != wanted:
            problems.append(f"$ {typed.command}\nexit {done.exit_code}, not {wanted}\n{done.printed}")
        same = matches(typed.expected, done.printed)
        if not same:
            problems.append(f"$ {typed.command}\nprints\n{done.printed}\nand not\n{typed.expected}")
        shown.append(_as_text(typed, typed.expected if same else as_shown(done.printed, typed.expected)))
    if answers:
        problems.append(f"no question for {' '.join(answers)}")
    blank = "\n\n" if "\n\n$ " in block.text else "\n"
    return problems, blank.join(shown) + "\n"


def _as_text(typed: Typed, printed: str) -> str:
    return f"$ {typed.command}" + (f"\n{printed}" if printed else "")
