"""A user's day at a terminal, for docs/evidence/DAY.md.

Two agents in forks, own commands beside them, edits meanwhile, a choice by hunks, a conflict, an undo, two of five
files again, a script that writes to the home, a new clone at the old path, gc.
"""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from documents.machine import Machine, Ran
from documents.match import as_shown

WIDTHS = (80, 50)
HEAD = """\
# A day at a terminal

Written by `python -m tests.transcript`: typed at a terminal of {width} columns, then of {narrow} where the lines
differ; `tests/test_transcript.py` plays it. Lines after `#` are done by other programs. What is typed at a question
stands after it.

"""
FIVE = "for name in a b c d e; do echo new > $name; done"


class Step(NamedTuple):
    typed: str
    says: str = ""
    """A part of its output."""
    answers: str = ""
    code: int = 0
    before: str = ""
    """What the user's editor, or git, does first."""
    beside: bool = False
    """In another terminal, until the next step has ended."""


STEPS = (
    Step("mudroom exec --fork one --agent claude -- sh -c 'sed -i s/text/words/ app/count.py; echo 1 > one.txt'",
         "would change 2 files"),
    Step("mudroom exec --fork two --agent codex -- sh -c 'sed -i s/Counts/Tells/ README.md; echo 2 > two.txt'",
         "would change 2 files"),
    Step("mudroom run --timeout 2s --no -- python3 -m http.server 8000", "ran out of time", code=124, beside=True),
    Step("mudroom run -- npm install --offline --no-progress --no-audit ./lib", "applied: ", answers="a",
         before="mkdir -p lib; echo '{\"name\": \"lib\", \"version\": \"1.0.0\"}' > lib/package.json"),
    Step("mudroom apply two -p", "applied: 1 written", answers="n y", before="echo mine >> app/__init__.py"),
    Step("mudroom apply one --yes", "conflict", code=3, before="sed -i s/text/string/ app/count.py"),
    Step("mudroom resolve one app/count.py --mine", ""),
    Step("mudroom apply one --yes", ""),
    Step(f"mudroom run -- sh -c '{FIVE}'", "applied: 5 written", answers="a"),
    Step("mudroom undo", "5 removed"),
    Step("mudroom redo u5 b d", "applied: 2 written"),
    Step("mudroom run --yes -- sh -c 'echo notes > ~/report.txt; echo TOKEN=1 > ~/.env'", "for a day, mudroom keep"),
    Step("mudroom keep", "report.txt"),
    Step("mudroom ls", "two"),
    Step("mudroom undo", "another directory", code=125,
         before="cd ~; git clone -q app new; rm -rf app; mv new app; cd app"),
    Step("mudroom vault archive", "put aside"),
    Step("mudroom undo", "nothing to undo", code=125),
    Step("mudroom vault gc", "nothing has expired"),
)  # fmt: skip


def play(root: Path, columns: int) -> list[tuple[Step, Ran]]:
    """Play the day on a terminal of this width."""
    machine = Machine(root)
    machine.new_project("app")
    done: list[tuple[Step, Ran]] = []
    beside: list[tuple[int, Future[Ran]]] = []
    with ThreadPoolExecutor(1) as other:
        for number, step in enumerate(STEPS):
            if step.before:
                ran = machine.run(f"set -e\n{step.before}")
                assert ran.exit_code == 0, ran.printed
            if step.beside:
                beside.append((number, other.submit(machine.run_at_terminal, step.typed, [], columns)))
                continue
            answers = step.answers.split()
            ran = machine.run_at_terminal(step.typed, answers, columns)
            assert not answers, f"{step.typed} never asked for {answers}: {ran.printed}"
            done.append((step, ran))
            while beside:
                at, future = beside.pop()
                done.insert(at, (STEPS[at], future.result()))
    return done


def as_markdown(wide: list[tuple[Step, Ran]], narrow: list[tuple[Step, Ran]]) -> str:
    text = HEAD.format(width=WIDTHS[0], narrow=WIDTHS[1])
    for (step, ran), (_step, other) in zip(wide, narrow, strict=True):
        typed = f"# {step.before}\n" * bool(step.before) + f"$ {step.typed}" + "  # beside the next" * step.beside
        code = f"\n(exit {ran.exit_code})" if ran.exit_code else ""
        shown, thin = as_shown(ran.printed), as_shown(other.printed)
        text += f"```text\n{typed}\n{shown}{code}\n```\n\n"
        if re.sub(r"\s+", " ", thin) != re.sub(r"\s+", " ", shown) or thin != shown:
            text += f"```text\n{thin}\n```\n\n"
    return text.rstrip("\n") + "\n"
