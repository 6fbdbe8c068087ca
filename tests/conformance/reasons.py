"""The second part of docs/evidence/REVIEW.md: how often what is observed at a hunk is one command, and is right.

``python -m tests.conformance.reasons NAME=GIT_DIRECTORY … [--sequences N] [--seed N] [--agents FILE] [--write]``; no
test is here. A sequence is six commits in a row, each replayed as one command in a fork. The truth is ``git blame``.
FILE has the rows of real agents: ``tests/ext/agents/real/test_observed_agents.py`` writes them.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mudroom.core.settings import Settings
from mudroom.ext.reasons.core.blame import added_ranges
from mudroom.ext.reasons.session import Reasons
from mudroom.session import Session

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/evidence/REVIEW.md"
HEADING = "## What is observed at a hunk\n"
TEXT = """
Made by `python -m tests.conformance.reasons NAME=GIT_DIRECTORY … --write`. {sequences} sequences of {length} commits
in a row were drawn with seed {seed}, and each commit replayed as one command in one fork, with and without a checkpoint
before each. *One command*: the answer names exactly one. *Right*: it has all commits that `git blame` gives for the
hunk's added lines, and, if it is one command, no other.

| commands | hunks | one command | one, and right | several, and right |
| --- | ---: | ---: | ---: | ---: |
{rows}

Real agents with a scripted model, run whole by `mudroom agent run`, two prompts each. Such a model writes simple
calls:

| agent | hunks | one command | with a turn | the right call and turn |
| --- | ---: | ---: | ---: | ---: |
{agents}
"""
LENGTH = 6
SCRIPT = "xargs -0 -r -a .replay/{0}/gone rm -rf --; tar xf .replay/{0}/new.tar"


class Answer(NamedTuple):
    names: frozenset[int]
    """Commands of the answer, from 0."""
    truth: frozenset[int]


def git(directory: str, *words: str) -> bytes:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    words = ("git", "-c", "safe.directory=*", f"--git-dir={directory}", *words)
    return subprocess.run(words, check=True, capture_output=True, env=environment).stdout


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", nargs="+", metavar="NAME=GIT_DIRECTORY")
    parser.add_argument("--sequences", type=int, default=60)
    parser.add_argument("--seed", type=int, default=47)
    parser.add_argument("--agents", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(words)
    found: dict[bool, list[Answer]] = {True: [], False: []}
    count = 0
    for number, word in enumerate(args.repositories):
        name, _mark, directory = word.partition("=")
        dice = random.Random(f"{args.seed} {name}")
        wanted = args.sequences // len(args.repositories) + (number < args.sequences % len(args.repositories))
        for sequence in drawn(directory, wanted, dice):
            count += 1
            for has_checkpoints, answers in found.items():
                answers += replayed(directory, sequence, has_checkpoints=has_checkpoints)
        print(f"{name}: {count} sequences, {len(found[True])} hunks", file=sys.stderr)  # noqa: T201
    names = {True: "with checkpoints", False: "without"}
    rows = "\n".join(_row(names[key], answers) for key, answers in found.items())
    agents = (
        "\n".join(_agent_row(json.loads(line)) for line in args.agents.read_text().splitlines()) if args.agents else ""
    )
    text = TEXT.format(sequences=count, length=LENGTH, seed=args.seed, rows=rows, agents=agents)
    if args.write:
        DOCUMENT.write_text(DOCUMENT.read_text().partition(HEADING)[0].rstrip("\n") + "\n\n" + HEADING + text)
    else:
        print(text)  # noqa: T201
    return 0


def _row(name: str, answers: Sequence[Answer]) -> str:
    one = [answer for answer in answers if len(answer.names) == 1]
    known = [answer for answer in one if answer.truth]
    several = [answer for answer in answers if len(answer.names) > 1 and answer.truth]
    return (
        f"| {name} | {len(answers):,} | {_share(len(one), len(answers))} "
        f"| {_share(sum(answer.names == answer.truth for answer in known), len(known))} "
        f"| {_share(sum(answer.truth <= answer.names for answer in several), len(several))} |"
    )


def _agent_row(row: dict[str, int]) -> str:
    shares = (_share(row[key], row["hunks"]) for key in ("one", "turn", "right"))
    return f"| {row['agent']} | {row['hunks']} | {' | '.join(shares)} |"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def drawn(directory: str, wanted: int, dice: random.Random) -> Iterator[list[str]]:
    """Yield sequences: a base, and the commits after it, oldest first."""
    line = git(directory, "rev-list", "--first-parent", "HEAD").decode().split()
    starts = list(range(len(line) - LENGTH))
    dice.shuffle(starts)
    for start in starts[:wanted]:
        yield line[start : start + LENGTH + 1][::-1]


def replayed(directory: str, commits: Sequence[str], *, has_checkpoints: bool) -> list[Answer]:
    root = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="mudroom-reasons-"))
    try:
        for name in ("project", "state", "home"):
            (root / name).mkdir(0o700)
        unpack(git(directory, "archive", commits[0]), root / "project")
        (root / "project/.replay").mkdir()
        for number, (before, after) in enumerate(itertools.pairwise(commits)):
            prepare(directory, before, after, root / f"project/.replay/{number}")
        places = {"state": os.fsencode(root / "state"), "home": os.fsencode(root / "home")}
        session = Session.open(os.fsencode(root / "project"), environ=dict(os.environb), settings=Settings(), **places)
        try:
            for number in range(LENGTH):
                if has_checkpoints and number:
                    session.forks.checkpoint("f", f"c{number}")
                result = session.run([b"sh", b"-ec", SCRIPT.format(number).encode()], fork="f")
                assert result.exit_code == 0, result.stderr
            return list(answers(session, directory, commits))
        finally:
            session.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def unpack(data: bytes, place: Path) -> None:
    subprocess.run(("tar", "xf", "-", "-C", place), input=data, check=True)


def prepare(directory: str, before: str, after: str, place: Path) -> None:
    """Write what a commit changes: ``new.tar``, and in ``gone`` the paths that it removes."""
    place.mkdir()
    listed = git(directory, "diff-tree", "-r", "-z", "--no-renames", "--name-status", before, after).split(b"\0")
    rows = list(zip(listed[::2], listed[1::2], strict=False))
    gone = [path for status, path in rows if status == b"D"]
    new = [os.fsdecode(path) for status, path in rows if status != b"D"]
    (place / "gone").write_bytes(b"".join(path + b"\0" for path in gone))
    (place / "new.tar").write_bytes(git(directory, "archive", after, "--", *new) if new else _empty_tar())


def _empty_tar() -> bytes:
    stream = io.BytesIO()
    tarfile.open(fileobj=stream, mode="w").close()
    return stream.getvalue()


def answers(session: Session, directory: str, commits: Sequence[str]) -> Iterator[Answer]:
    reasons, places = Reasons(session, "f"), {commit: number for number, commit in enumerate(commits[1:])}
    for change in session.changes.of("f").changes:
        if change.staged is None or change.staged.kind != "file" or change.binary:
            continue
        seen = reasons.of_file(change.path)
        if not any(row.hunk is not None for row in seen.rows):
            continue
        path = os.fsdecode(change.path)
        spoken = git(directory, "blame", "--porcelain", f"{commits[0]}..{commits[-1]}", "--", path)
        heads = [row.split() for row in spoken.splitlines() if not row.startswith(b"\t")]
        by_line = {int(row[2]): row[0].decode() for row in heads if len(row) in (3, 4) and len(row[0]) == 40}
        for row in seen.rows:
            if row.hunk is not None:
                lines = [line for first, last in added_ranges(row.hunk) for line in range(first, last + 1)]
                truth = {places.get(by_line.get(line, ""), -1) for line in lines} - {-1}
                yield Answer(frozenset(row.blame.steps), frozenset(truth))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
