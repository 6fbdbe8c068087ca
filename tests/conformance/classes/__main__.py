"""``python -m tests.conformance.classes``: classes of generated lines against what the lines do.

python -m tests.conformance.classes --seconds 600            generated lines of the installed programs, as many as fit
python -m tests.conformance.classes --only git tar           lines of these programs
python -m tests.conformance.classes --rows                   the lines of tests/core/hostile.txt
python -m tests.conformance.classes --prune                  runs nothing: removes from tests/core/hostile_known.txt the
                                                             lines that are no longer classed too mildly
python -m tests.conformance.classes --path /opt/x/bin:…      programs of these directories as well
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

_TESTS = Path(__file__).parent.parent.parent
sys.path[:0] = [str(_TESTS), str(_TESTS / "core"), str(_TESTS.parent / "src")]

from command_files import HOSTILE, KNOWN_DISAGREEMENTS  # noqa: E402
from conformance.classes.comparison import admits  # noqa: E402
from conformance.classes.runner import SYSTEM_PATH, Line, Runner  # noqa: E402
from conformance.classes.search import Report, classes_of, judge, search  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.classes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", default=os.environ.get("MUDROOM_SEED", time.strftime("%Y%m%d", time.gmtime())))
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--prune", action="store_true")
    parser.add_argument("--path", default="")
    options = parser.parse_args()
    if options.prune:
        return prune(_TESTS / "core" / "hostile_known.txt")
    path = f"{options.path}:{SYSTEM_PATH}".lstrip(":")
    known = frozenset(KNOWN_DISAGREEMENTS)
    with Runner(path) as runner:
        if options.rows:
            ran = runner.run([Line(line.split()[0].decode(), line.decode()) for _classes, line in HOSTILE])
            seen, found = judge(ran, lambda line: line.encode() in known)
            report = Report(runner.count, runner.seconds, seen, tuple(found))
        else:
            report = search(
                runner, seconds=options.seconds, seed=options.seed, path=path, only=options.only, tell=_say,
                known=lambda line: line.encode() in known,
            )  # fmt: skip
    for line in told(report, options.seed):
        _say(line)
    return 1 if report.disagreements else 0


def prune(known: Path) -> int:
    """Remove the rows of lines that are classed as they should be."""
    kept = []
    for row in known.read_text(encoding="utf-8").splitlines():
        least, bar, line = row.partition("| ")
        closed = bar and all(admits(classes_of(line.replace("␤", "\n")), name) for name in least.strip().split(","))
        if not closed or row.startswith("#"):
            kept.append(row)
    known.write_text("\n".join(kept) + "\n", encoding="utf-8")
    _say(f"{sum('| ' in row for row in kept)} lines are left in {known.name}")
    return 0


def told(report: Report, seed: str) -> list[str]:
    """Return the report as lines of text: the counts, then the disagreements by program and effect."""
    rate = report.lines / report.seconds * 60 if report.seconds else 0
    lines = [f"{report.lines} lines, {rate:.0f} a minute, seed {seed}", f"effects: {dict(report.seen)}"]
    causes = Counter((one.program, one.effects) for one in report.disagreements)
    lines.append(f"{len(report.disagreements)} disagreements, {len(causes)} causes")
    for one in sorted(report.disagreements, key=lambda one: (one.program, one.effects)):
        text = one.line.replace("\n", "␤")
        lines.append(f"{','.join(one.classes)}\t{','.join(one.effects)}\t{text}")
    return lines


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
