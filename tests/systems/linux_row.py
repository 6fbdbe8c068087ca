"""What a Linux says of itself and of mudroom, as one line of JSON for ``linux_document.py``. No test is here.

``python tests/systems/linux_row.py SYSTEM COMMIT``, in the machine, as an ordinary user: ``dev/vm --record`` does it.
The first minute of README (run, diff, apply, undo), ``mudroom doctor``, and the attempts of
``tests/conformance/escapes``.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
MUDROOM = (sys.executable, "-m", "mudroom")


def said(directory: Path, *words: str) -> str:
    """Return what the command prints. Raise CalledProcessError if it fails."""
    return subprocess.run(words, cwd=directory, check=True, stdout=subprocess.PIPE, text=True).stdout


def first_minute(directory: Path) -> list[str]:
    """Return the steps that held, in a project in ``directory``."""
    test = directory / "tests/test_count.py"
    test.parent.mkdir()
    test.write_text("1\n2\n")
    held = []
    said(directory, *MUDROOM, "run", "--keep", "--", "sh", "-c", "rm -r tests")
    if test.read_text() == "1\n2\n":
        held.append("run")
    if "-2" in said(directory, *MUDROOM, "diff"):
        held.append("diff")
    said(directory, *MUDROOM, "run", "--yes", "--", "sh", "-c", "rm -r tests")
    if not test.exists():
        held.append("apply")
    said(directory, *MUDROOM, "undo")
    if test.read_text() == "1\n2\n":
        held.append("undo")
    return held


def escapes(tier: str) -> dict[str, object]:
    """Return the report of ``tests.conformance.escapes`` as it prints it."""
    lines = said(TREE, sys.executable, "-m", "tests.conformance.escapes", "--report", tier).splitlines()
    found: dict[str, object] = json.loads(next(line for line in lines if line.startswith('{"tier"')))
    return found


def main(system: str, commit: str) -> int:
    row: dict[str, object] = {
        "system": system,
        "distribution": platform.freedesktop_os_release()["PRETTY_NAME"],
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "user": "root" if os.geteuid() == 0 else "an ordinary user",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit,
    }
    with tempfile.TemporaryDirectory(dir=Path.home()) as directory:
        row["held"] = first_minute(Path(directory))
    done = subprocess.run([*MUDROOM, "doctor", "--json"], stdout=subprocess.PIPE, text=True, check=False)
    findings = json.loads(done.stdout)["protections"]
    row["protections"] = len(findings)
    row["weaker"] = {one["protection"]: one["found"] for one in findings if one["state"] != "strict"}
    sys.stdout.write(json.dumps({"linux": row}) + "\n")
    sys.stdout.flush()
    report = escapes(system)
    row |= {"out": report["out"], "tried": report["tried"], "answered": report["answered"]}
    sys.stdout.write(json.dumps({"linux": row}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
