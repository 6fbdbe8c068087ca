"""docs/evidence/MERGES.md: merges of public repositories made again, and their conflicts settled by rule.

``python -m tests.conformance.merges NAME=GIT_DIRECTORY … [--most N] [--write]``; no test is here. Each merge commit of
two parents on the repository's branch is merged again by ``core/merge/diff3.py``. A file that conflicts and that a rule
settles (``ext/merging/rule.py``) is compared with the one that landed.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mudroom.core.merge.diff3 import merge3
from mudroom.core.merge.marker import why_not_mergeable
from mudroom.ext.merging.rule import _Parts, language_of, settle

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/evidence/MERGES.md"

HEAD = """# Merges that people made by hand, made again by rule

Made by `python -m tests.conformance.merges`. Merges of two parents on the branch of public repositories, the newest
4,000 of each, were made again. *Conflicts* are files in Python, JSON or TOML that conflict; *settled*, those that a
rule merges ([REVIEW.md](../REVIEW.md#conflicts)). *As landed*: the same bytes as the merge commit; these results are
those that the repository's own tests have seen. *Same parts*: the same statements, elements and keys, in another
order, or with other comments or line breaks. The rest is listed below with what a person did instead.

"""
TESTED_HEAD = """
## Checked by the tests of the repository

A result *as landed* makes the tree that landed. For the others, the repository's own tests were run on the landed tree,
and on the same tree with the rule's result in place of the file, with packages of about that year, without a
network. *Passed* and *failed*: tests with the landed file, then with the rule's. A test that fails on both needs a
network, or other packages.

"""
TESTED: dict[tuple[str, str], tuple[tuple[int, int], tuple[int, int], str]] = {
    ("51ae3e1e", "httpcore/__init__.py"): ((33, 26), (33, 26), ""),
    ("51ae3e1e", "httpcore/exceptions.py"): ((33, 26), (33, 26), ""),
    ("f608547b", "test_requests.py"): (
        (94, 64),
        (94, 65),
        "the test that the person left out needs a network, as the 64",
    ),
    ("daca74d9", "tests/test_basic.py"): (
        (291, 208),
        (216, 152),
        "**its module fails**: `request_ctx`, in lines that did not conflict, which the person renamed",
    ),
    ("b9a91dc1", "_pytest/python.py"): ((301, 2), (301, 2), ""),
    ("717e45ab", "tests/test_cli.py"): ((329, 3), (329, 3), ""),
    ("8ad4f476", "tests/test_basic.py"): ((325, 0), (325, 0), ""),
    ("6918d075", "testing/python/fixtures.py"): ((182, 0), (182, 0), ""),
    ("557cb6cf", "testing/test_collection.py"): ((64, 0), (64, 0), ""),
    ("d7ef2372", "docs/json.schema.json"): ((33, 2), (33, 2), "architecture only"),
    ("d7ef2372", "src/mudroom/core/registry.py"): ((33, 2), (33, 2), "architecture only"),
}
"""By commit and path: passed and failed tests of the landed tree, of the tree with the rule's result, and a remark."""
JUDGED = {
    ("51ae3e1e", "httpcore/exceptions.py"): "the person ended a docstring that one side had left open by a line",
    (
        "c0119f80",
        "node_modules/mkdirp/package.json",
    ): "the person kept one side's `_from`, which the other changed alone",
    ("daca74d9", "tests/test_basic.py"): "the person renamed `request_ctx` in lines that did not conflict",
    (
        "bcbaee7a",
        "src/pip/_internal/vcs/git.py",
    ): "the person took back two imports that the sides had moved or removed",
    ("c9ada2de", "pip/download.py"): "the person removed an import that one side had added",
    ("6918d075", "testing/python/fixtures.py"): "the person wrote other docstrings",
    ("557cb6cf", "testing/test_collection.py"): "the person left out an assertion of one side",
    ("ab3d860d", "tests/sandbox/linux/test_linux.py"): "the person left out a test of one side",
    ("a125a01e", "src/mudroom/cli/change/apply.py"): "the person kept one side's imports, which the other had moved",
    ("d7ef2372", "docs/json.schema.json"): "the person had the program write the file again",
    ("888dafd1", "bench/reach.py"): "the person removed an import that one side had added",
    ("f608547b", "test_requests.py"): "the person left out a test class of one side, and its import",
}
"""Every result that differs from the landed one, judged by reading it: by commit and path."""


class Settled(NamedTuple):
    commit: str
    path: str
    words: str
    outcome: str


class _Repository:
    def __init__(self, directory: str) -> None:
        self._command = ["git", "--git-dir", directory]
        self._blobs = subprocess.Popen(
            [*self._command, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, *words: str) -> bytes:
        return subprocess.run([*self._command, *words], capture_output=True, check=False).stdout

    def blob(self, name: str) -> bytes | None:
        assert self._blobs.stdin is not None
        assert self._blobs.stdout is not None
        self._blobs.stdin.write(name.encode("utf-8", "surrogateescape") + b"\n")
        self._blobs.stdin.flush()
        head = self._blobs.stdout.readline().split()
        if len(head) < 3 or not head[-1].isdigit():
            return None
        data = self._blobs.stdout.read(int(head[2]) + 1)[:-1]
        return data if head[1] == b"blob" else None

    def changed(self, base: str, commit: str) -> dict[bytes, tuple[str, str]]:
        """Return (old, new) blobs of the files that were added or changed."""
        words = self.run("diff-tree", "-r", "-z", "--no-renames", base, commit).split(b"\0")
        rows = ((words[at].decode().split(), words[at + 1]) for at in range(0, len(words) - 1, 2))
        return {path: (row[2], row[3]) for row, path in rows if row[4] != "D"}

    def merges(self) -> Iterator[list[str]]:
        for line in (
            self.run("rev-list", "--min-parents=2", "--max-parents=2", "--parents", "HEAD").decode().splitlines()
        ):
            yield line.split()

    def close(self) -> None:
        self._blobs.communicate()


def _parts(text: bytes) -> object:
    return sorted(map(str, _Parts(ast.parse(text)).counts.items()))


def _lines(text: bytes) -> Counter[bytes]:
    return Counter(line.strip() for line in text.splitlines() if line.strip())


def _outcome(path: bytes, content: bytes, landed: bytes | None) -> str:
    if content == landed:
        return "as landed"
    if landed is not None and _lines(content) == _lines(landed):
        return "same parts"
    if landed is not None and language_of(path) == "python":
        with suppress(SyntaxError, RecursionError):
            if _parts(content) == _parts(landed):
                return "same parts"
    return "other"


def measure(directory: str, most: int) -> tuple[Counter[str], list[Settled]]:
    """Merge again. Return counts, and the files that a rule settles."""
    repository, counts, settled = _Repository(directory), Counter[str](), list[Settled]()
    for merge, first, second in list(repository.merges())[:most]:
        counts["merges"] += 1
        base = repository.run("merge-base", first, second).decode().strip()
        if not base:
            continue
        ours, theirs = repository.changed(base, first), repository.changed(base, second)
        for path in sorted(ours.keys() & theirs.keys()):
            if ours[path][1] == theirs[path][1] or not language_of(path):
                continue
            name = path.decode("utf-8", "surrogateescape")
            texts = [b"" if set(blob) == {"0"} else repository.blob(blob) for blob in (*ours[path], theirs[path][1])]
            before, mine, yours = texts
            if before is None or mine is None or yours is None or any(map(why_not_mergeable, (before, mine, yours))):
                continue
            merged = merge3(before, mine, yours)
            if merged.clean:
                continue
            counts["conflicts"] += 1
            result = settle(path, merged)
            if result is not None:
                outcome = _outcome(path, result.content, repository.blob(f"{merge}:{name}"))
                counts[outcome] += 1
                settled.append(Settled(merge[:8], name, result.words, outcome))
    repository.close()
    return counts, settled


def document(measured: dict[str, tuple[Counter[str], list[Settled]]]) -> str:
    lines = [
        "| repository | merges | conflicts | settled | as landed | same parts | other |",
        "| --- |" + " ---: |" * 6,
    ]
    total = Counter[str]()
    for name, (counts, settled) in measured.items():
        total.update({**counts, "settled": len(settled)})
        lines.append(_row(name, Counter({**counts, "settled": len(settled)})))
    lines += [_row("all", total), "", "| commit | file | rule | what landed instead |", "| --- | --- | --- | --- |"]
    for name, (_counts, settled) in measured.items():
        for row in settled:
            if row.outcome == "other":
                judged = JUDGED.get((row.commit, row.path), "**not judged**")
                lines.append(f"| {name} {row.commit} | `{row.path}` | {row.words} | {judged} |")
    return HEAD + "\n".join(lines) + "\n" + TESTED_HEAD + "\n".join(_tested(measured)) + "\n"


def _tested(measured: dict[str, tuple[Counter[str], list[Settled]]]) -> Iterator[str]:
    yield "| commit | file | passed | failed | |"
    yield "| --- | --- | ---: | ---: | --- |"
    others = [
        (name, row) for name, (_counts, settled) in measured.items() for row in settled if row.outcome != "as landed"
    ]
    for name, row in others:
        found = TESTED.get((row.commit, row.path))
        if found is not None:
            (passed, failed), (passed_too, failed_too), remark = found
            counts = f"{passed:,}, {passed_too:,} | {failed:,}, {failed_too:,}"
            yield f"| {name} {row.commit} | `{row.path}` | {counts} | {remark} |"
    checked = sum((row.commit, row.path) in TESTED for _name, row in others)
    yield ""
    yield f"{checked} of the {len(others)} were checked so. The tests of the rest could not be run here."


def _row(name: str, counts: Counter[str]) -> str:
    keys = ("merges", "conflicts", "settled", "as landed", "same parts", "other")
    return f"| {name} | " + " | ".join(f"{counts[key]:,}" for key in keys) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", nargs="+", metavar="NAME=GIT_DIRECTORY")
    parser.add_argument("--most", type=int, default=4000)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    named = (word.partition("=") for word in args.repositories)
    written = document({name: measure(directory, args.most) for name, _sign, directory in named})
    if args.write:
        DOCUMENT.write_text(written)
    else:
        sys.stdout.write(written)


if __name__ == "__main__":
    main()
