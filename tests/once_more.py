"""Run the failed tests of a run again at its end, as ``./check`` does: alone, three times each, as they were run.

    python tests/once_more.py DIRECTORY COMMAND…

DIRECTORY has what the passes left (outcome_file.py). COMMAND takes a word for who runs the tests, then pytest's words.
One that passes each time is unsteady, and has a row in ``unsteady.toml`` from then on: that list is the first work. The
exit status is 1 if one fails again or is skipped, is on the list twice, or if more than twenty failed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mudroom.core.text.redaction import redact
from outcome_file import read

TABLE = Path(__file__).with_name("unsteady.toml")
MOST, ROUNDS, LONGEST = 20, 3, 200


class Failure(NamedTuple):
    how: str
    test: str
    message: str

    def row(self, commit: str) -> str:
        words = {"test": self.test, "commit": commit, "message": f"{self.how}: {short(self.message)}"}
        return "[[unsteady]]\n" + "".join(
            f"{key} = {json.dumps(word, ensure_ascii=False)}\n" for key, word in words.items()
        )


def short(message: str) -> str:
    """Return one line without a secret, and without directories of this machine."""
    named = re.sub(r"(?<![\w./])(?:[A-Za-z]:)?[/\\]+(?:[^\s'\"/\\,:;]+[/\\]+)+", "…/", " ".join(message.split()))
    return "".join(letter if letter.isprintable() else "?" for letter in redact(named))[:LONGEST]


def failures_in(directory: Path) -> list[Failure]:
    """Raise OSError or ValueError if one cannot be read."""
    rows = [row for name in sorted(os.listdir(directory)) for row in json.loads((directory / name).read_text("utf-8"))]
    return list(dict.fromkeys(Failure(*map(str, row)) for row in rows))


def on_list(table: Path) -> Counter[str]:
    """Return how often each test is on the list. Raise OSError or ValueError if it cannot be read."""
    return Counter(str(row.get("test")) for row in tomllib.loads(table.read_text("utf-8")).get("unsteady", []))


def passes(command: Sequence[str], how: str, tests: Sequence[str]) -> list[str]:
    """Return those of the tests that pass each time."""
    environment = {name: word for name, word in os.environ.items() if name not in ("MUDROOM_FAILED", "MUDROOM_FIGURES")}
    steady = list(tests)
    with tempfile.TemporaryDirectory(prefix="mudroom.") as made:
        os.chmod(made, 0o755)
        for number in range(ROUNDS):
            file = Path(made, str(number))
            file.touch()
            file.chmod(0o666)  # another user may run them
            words = [*command, how, f"--outcomes={file}", *steady]  # as two words it would be a place of tests
            done = subprocess.run(words, env=environment, check=False)
            outcomes = read(file)
            passed = [test for test in steady if outcomes.get(test) == "passed"]
            # An exit status that no test explains is one of what they share.
            steady = passed if done.returncode == 0 or len(passed) < len(steady) else []
            if not steady:
                break
    return steady


def main(directory: Path, command: Sequence[str], table: Path = TABLE) -> int:
    failures, listed = failures_in(directory), on_list(table)
    if len(failures) > MOST:
        tell([f"{len(failures)} tests failed: too many to run again (at most {MOST})"])
        return 1
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for failure in failures:
        tests[failure.how].append(failure.test)
    steady = {(how, test) for how, names in tests.items() for test in passes(command, how, names)}
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=table.parent, capture_output=True, text=True, check=False
    ).stdout.strip()
    status, lines, rows = 0, [], ""
    for failure in failures:
        again = (failure.how, failure.test) not in steady
        if not again:
            listed[failure.test] += 1
            rows += "\n" + failure.row(commit or "unknown")
        twice = "" if listed[failure.test] < 2 else ", and on the list twice"
        lines.append(f"{'failed again' if again else 'unsteady'}{twice}: {failure.test} ({failure.how})")
        status |= again or bool(twice)
    with table.open("a", encoding="utf-8") as stream:
        stream.write(rows)
    tell(lines + (["the first work, rows of tests/unsteady.toml:", *rows.splitlines()] if rows else []))
    return status


def tell(lines: Sequence[str]) -> None:
    """Print them here, and at the end of the whole run, after the seconds of its parts."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if figures := os.environ.get("MUDROOM_FIGURES"):
        with open(figures, "a", encoding="utf-8") as stream:
            stream.writelines(f"told\t{line}\n" for line in lines)


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
    except (OSError, ValueError, TypeError) as error:
        sys.exit(f"the failed tests are not run again: {error}")
