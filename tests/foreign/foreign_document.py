"""docs/evidence/FOREIGN.md, made from the tables in tests/foreign/expected.

``python tests/foreign/foreign_document.py`` writes it. No test is here.
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
DOCUMENT = TESTS.parent / "docs/evidence/FOREIGN.md"
if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS / "foreign")]

from suite import LEVEL_2, MODES, TABLES, Entry, read_table  # noqa: E402 - found there

HEAD = """\
# Suites of other projects

Made from the tables in `tests/foreign/expected` by `python tests/foreign/foreign_document.py`.

Suites that were written for kernels, file systems, Python and git run inside, in each mode, as root and as an ordinary
user. A test fails if the outcome of one of theirs is worse inside than outside, as the same user, and no table lists
it; and if a listed difference is none any more.

<!-- block: not run: it takes longer than a test may -->

```sh
dev/foreign            # fetch from Debian and PyPI to .foreign, run all, print a table
dev/foreign --engines  # the same at level 2, with container engines of its own
dev/foreign --user tests/foreign/test_cpython.py -k copy
```

| suite | from | what is compared |
| --- | --- | --- |
| CPython's tests (os, subprocess, socket, asyncio …) | Debian: libpythonX.Y-testsuite | each test, inside and outside |
| universal_pathlib's cases | PyPI: universal_pathlib | each case, on the files of a fork through fsspec |
| httpx's tests | PyPI: httpx, with its libraries in `libraries` | each test, inside and outside |
| merges of git's tests | Debian: the sources of git | the merge of mudroom, and `git merge-file` |
| pjdfstest | a built checkout, MUDROOM_PJDFSTEST | each assertion, inside and outside; root's without capabilities |
| fsx, fsstress | programs, MUDROOM_FSX and MUDROOM_FSSTRESS | what lands, and what the same seed leaves outside |
| fsspec's abstract suite | PyPI: fsspec | `tests/ext/test_fsspec.py`, in every run of the tests; all pass |

A suite that is absent is skipped by name. `./check` runs a short part of the fetched ones.

Run by hand, as an ordinary user on ext4, with rsync 3.2.7 built from Debian's sources: outside its tests `acls`,
`acls-default`, `xattrs`, `chgrp`, `hardlinks` and `dir-sgid` pass. Inside, in an overlay and in a copy, `acls` is
skipped and `acls-default` fails: a user namespace maps one user, and `setfacl` of another id is EINVAL.
"""
TITLES = {
    "cpython": "CPython's tests",
    "httpx": "httpx's tests",
    "git_triples": "Merges of git's tests",
    "pjdfstest": "pjdfstest",
    "universal_pathlib": "universal_pathlib's cases",
}


def document() -> str:
    parts = [HEAD]
    for path in sorted(TABLES.glob("*.toml")):
        table = read_table(path)
        version = f" (of {table.version})" if table.version else ""
        parts.append(f"\n## {TITLES[path.stem]}{version}\n\n")
        if table.differs:
            parts.append(
                "Expected differences:\n\n| tests | inside | modes | user | reason |\n| --- | --- | --- | --- | --- |\n"
            )
            parts += [row(entry, entry.inside, modes(entry), users(entry)) for entry in table.differs]
        else:
            parts.append("No difference is expected.\n")
        if table.left_out:
            parts.append("\nNot run:\n\n| tests | reason |\n| --- | --- |\n")
            parts += [row(entry) for entry in table.left_out]
    return "".join(parts)


def row(entry: Entry, *more: str) -> str:
    tests = "<br>".join(f"`{test.removeprefix('test.')}`" for test in entry.tests)
    return f"| {' | '.join((tests, *more, entry.reason))} |\n"


def modes(entry: Entry) -> str:
    return "all" if set(entry.modes) == {*MODES, LEVEL_2} else ", ".join(entry.modes)


def users(entry: Entry) -> str:
    return "both" if len(entry.users) > 1 else entry.users[0]


if __name__ == "__main__":
    DOCUMENT.write_text(document())
