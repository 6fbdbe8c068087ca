"""docs/evidence/CERTIFICATION.md: which systems are certified, and the rows with the mutant that each kills.

    export PYTHONPATH=src:tests:tests/ext:tests/ext/macos
    .venv/bin/python -m certify.document             write the document again
    .venv/bin/python -m certify.document --measure   find the mutants again first

Records lie in src/mudroom/ext/certify/certified, as ``mudroom doctor --certify --json FILE`` writes them. The document
says "certified" of a system only if every row of it that closes the platform held.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from certify.lab import LOSSES, UNENFORCED, WITHOUT, Lab, Refusal
from certify.windows_lab import MUTANTS as WINDOWS_MUTANTS
from certify.windows_lab import measure as measure_windows
from certify.windows_lab import mutants_told as windows_mutants
from mudroom.ext.certify import shipped
from mudroom.ext.certify.row import CLOSED, Certificate, TrialRow, closed, opens, results
from mudroom.ext.certify.table import MACOS, TABLES, WINDOWS

ROOT = Path(__file__).parents[3]
DOCUMENT, MUTANTS = ROOT / "docs/evidence/CERTIFICATION.md", ROOT / "tests/ext/certify/mutants.json"
_OTHERS = {
    "leftover": "the mark of the run is lost",
    "shell": "no shell is started",
    "git": "git is not started",
    "precedence": "rules decide by an order that no source names",
    "rlimit": "limits are not set",
    **LOSSES,
}
_HEAD = """\
# Certification

A platform whose kernel promises nothing is opened by what held on the machine itself: `mudroom doctor --certify`
([MACOS.md](../MACOS.md), [decision 66](../decisions/0066-a-platform-opens-by-what-held.md)). This page is made by
`tests/ext/certify/document.py`; a test compares the two.

## Certified on

A certificate opens the machine that it was made on: it is for its build, user, volume, Python and mudroom. A record
(`ext/certify/certified`, by `.github/workflows/certify.yml`) opens each machine with its build, code, minor version of
Python, kind of user and file system. Records are in this table.

"""
_ROWS = """\

## Rows and mutants

Each row is tried against a stand-in for `sandbox-exec` that confines, on Linux: all hold. Then against a mutant of it
that permits what it refused of that row alone, or that loses the part which is named: the row falls. Mutants of two
rows share nothing (limits excepted: a plan without limits has neither), so a mutant fells no other row. This shows that
a sandbox which lacks one thing is found out; it shows nothing about a Mac.

Rows of the class vault try no sandbox: they are the calls of an apply and of a copy, on the file system of the state
directory, and their mutants are calls that report success and lose something. A call that the file system lacks is "not
shown". A loss of power cannot be tried: `flush` shows that the call is taken, and refused where it must be.

"""


_WINDOWS = """\

## Rows for Windows

Each row with a deed is tried against a model of Windows on Linux: access lists, tokens, integrity, jobs and handles as
Microsoft's documents describe them, with the text of the deeds and the plans of a session as they are. All rows hold
there. A mutant of the model forgets what it refused of one row, or does not give it, and fells that row and no other
(without Python none can be tried). A call of the plan that reports success and does nothing, and a plan with one right
too many, fell the rows that they concern (`tests/ext/certify/test_windows.py`). This shows that such a sandbox is found
out; it shows nothing about Windows, of which the model knows what its documents say. Under Wine, which has no
AppContainer, each deed that has to be refused falls, but those about jobs, handles and privileges, which it has, and
those that Wine cannot do at all, which are not shown ([WINDOWS.md](../WINDOWS.md)).

"""


def certificates() -> Iterator[Certificate]:
    """Yield the certificates of the records, by system."""
    found = [one for content in shipped.contents() if (one := shipped.read(content)) is not None]
    yield from sorted(found, key=lambda one: (one.platform, one.system, one.machine, one.made))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def certified(sent: Sequence[Certificate]) -> str:
    """Return the table of certificates, or that there are none."""
    if not sent:
        return "None yet: the workflow has not run.\n"
    rows = []
    for one in sent:
        of_it = TABLES[one.platform]
        held = sum(result.verdict == "held" for result in results(of_it, one))
        state = "certified" if opens(of_it, one) else "closed"
        parts = "; ".join(f"{part}: {', '.join(row.name for row in rows)}" for part, rows in closed(of_it, one).items())
        day = time.strftime("%Y-%m-%d", time.gmtime(one.made))
        rows.append((one.system, one.machine, day, state, f"{held} of {len(of_it)}", parts or "nothing"))
    return table(("system", "machine", "day", "", "rows held", "closed"), rows)


def measured(row: TrialRow, refused: Iterable[Refusal]) -> str:
    """Return in words what the mutant of a row does not enforce."""
    if row.name in UNENFORCED or row.way == "vault":
        return _OTHERS[row.name]
    if row.name in WITHOUT:
        return _OTHERS[WITHOUT[row.name]]
    names = {one.operation if one.name.startswith("/") else f"{one.operation} {one.name}" for one in refused}
    return ", ".join(f"`{name}`" for name in sorted(names))


def mutants_told() -> dict[str, str]:
    """Return the mutants by row, as they were measured last."""
    told: dict[str, str] = json.loads(MUTANTS.read_text())
    return told


def document() -> str:
    head = ("row", "class", "what is tried", "if it did not hold", "permitted by its mutant")
    macos = _HEAD + certified(list(certificates())) + _ROWS + _with_mutants(head, MACOS, mutants_told())
    return macos + _WINDOWS + _with_mutants(head, WINDOWS, windows_mutants())


def _with_mutants(head: Sequence[str], rows: Sequence[TrialRow], told: Mapping[str, str]) -> str:
    lines = [(row.name, row.kind, row.tries, CLOSED[row.closes], told[row.name]) for row in rows]
    total = f"\n{len(rows)} rows, {len(told)} mutants; rows that kill a mutant: {sum(map(bool, told.values()))}.\n"
    return table(head, lines) + total


def measure() -> None:
    """Try each row, and store what its mutant is."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        lab, found = Lab(Path(directory)), {}
        for row in MACOS:
            (result,) = lab.results(lab.tool(), [row]).values()
            assert result.verdict == "held", result
            found[row.name] = measured(row, lab.refusals(row))
        (Path(directory) / "windows").mkdir()
        of_windows = measure_windows(Path(directory) / "windows")
    for path, mutants in ((MUTANTS, found), (WINDOWS_MUTANTS, of_windows)):
        path.write_text(json.dumps(mutants, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        measure()
    DOCUMENT.write_text(document())
