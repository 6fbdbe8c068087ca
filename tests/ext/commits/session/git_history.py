"""Generated repositories: the same seed makes the same commits.

A history has text files, binary files, renames, executable files, symbolic links, sub-directories, merges, branches and
tags. It tracks files with the names of secrets, and ignores an ``.env`` that lies in the work tree. No file is empty,
so that an empty blob anywhere is one that a mask has emptied.
"""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

SECRETS = ("server.key", "certs/ca.pem", "app/.env.production")
"""Tracked files with the names of secrets."""
UNTRACKED_SECRET = ".env"
TEXTS = ("README.md", "src/main.py", "src/lib/util.py", "src/lib/more.py", "docs/guide.txt", "data/table.csv")
BINARY = "data/picture.bin"
PROGRAM = "bin/tool"
LINK = "latest"
START = 2_000_000_000
"""Time of the first commit, in seconds since 1970: in the future, so that git gc expires no log."""
_WHO = b"T <t@example.org>"
_SETTINGS = (
    "user.name T",
    "user.email t@example.org",
    "gc.auto 0",
    "maintenance.auto false",
    "core.commitGraph false",  # git repack -ad leaves one that git fsck complains about
    "gc.writeCommitGraph false",
)
_REFS = f"git branch old HEAD~2; git tag v1 HEAD~1; GIT_COMMITTER_DATE='{START} +0000' git tag -a v2 -m v2"


def environment(home: Path) -> dict[str, str]:
    """Return the environment of git commands of a user without settings of their own."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        "GIT_MERGE_AUTOEDIT": "no",
    }


def make_repository(project: Path, home: Path, chance: random.Random, commits: int = 30) -> None:
    """Make a repository with a generated history in ``project``, an existing directory."""
    stream = b"".join(_history(chance, commits))
    _begin(project, home)
    _run(project, home, "git fast-import --quiet", stream)
    _run(project, home, "git reset -q --hard; " + _REFS)
    (project / UNTRACKED_SECRET).write_text("TOKEN=of-the-user\n")


def make_package_repository(project: Path, home: Path, package: str) -> None:
    """Make a repository of the files of an installed package, with one commit for each of its folders."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations, package
    source = Path(spec.submodule_search_locations[0])
    _begin(project, home)
    for path in sorted(source.rglob("*.py")):
        data = path.read_bytes()
        if data:
            target = project / package / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    for name, data in _first_files().items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_bytes(data)
    (project / PROGRAM).chmod(0o755)
    (project / LINK).symlink_to(TEXTS[0])
    for number, folder in enumerate(sorted(path.name for path in project.iterdir() if path.name != ".git")):
        when = f"{START + number} +0000"
        script = (
            f"git add -f -- '{folder}'; GIT_AUTHOR_DATE='{when}' GIT_COMMITTER_DATE='{when}' git commit -qm {number}"
        )
        _run(project, home, script)
    _run(project, home, _REFS)
    (project / UNTRACKED_SECRET).write_text("TOKEN=of-the-user\n")


def _begin(project: Path, home: Path) -> None:
    _run(project, home, "git init -q -b main; " + "; ".join(f"git config {setting}" for setting in _SETTINGS))


def _run(project: Path, home: Path, script: str, data: bytes = b"") -> None:
    subprocess.run(["sh", "-ec", script], cwd=project, env=environment(home), input=data, check=True)


def _first_files() -> dict[str, bytes]:
    files = {name: b"".join(b"%s line %d\n" % (name.encode(), number) for number in range(12)) for name in TEXTS}
    files |= {name: b"secret of %s\n" % name.encode() for name in SECRETS}
    files[BINARY] = bytes(range(256)) * 4
    files[PROGRAM] = b"#!/bin/sh\necho tool\n"
    files[".gitignore"] = b".env\n*.log\n"
    return files


def _history(chance: random.Random, commits: int) -> Iterator[bytes]:
    """Yield a stream for git fast-import: git-fast-import(1)."""
    files = _first_files()
    names = sorted(files)
    note = ""
    yield _commit(b"main", 0, b"begin") + b"".join(_file(name, files[name]) for name in names)
    yield b"M 120000 inline %s\ndata %d\n%s\n" % (LINK.encode(), len(TEXTS[0]), TEXTS[0].encode())
    for number in range(1, commits):
        merge = number % 11 == 0
        branch = b"side" if number % 5 == 4 else b"main"
        origin = b"from refs/heads/main\n" if number == 4 else b""
        if merge:
            origin = b"merge refs/heads/side\n"
        yield _commit(branch if not merge else b"main", number, b"commit %d" % number, origin)
        name = TEXTS[chance.randrange(len(TEXTS))]
        if branch == b"side":
            name = f"side/{number}.txt"
            yield _file(name, b"side %d\n" % number)
        elif number % 7 == 3:
            yield _file(BINARY, chance.randbytes(600))
        elif number % 7 == 5:
            note = f"notes/{number}.txt"
            yield _file(note, b"note %d\n" % number)
        elif number % 7 == 6 and note:
            yield b"R %s notes/renamed-%d.txt\n" % (note.encode(), number)
            note = ""
        else:
            lines = files[name].splitlines(keepends=True)
            lines[chance.randrange(len(lines))] = b"changed in %d\n" % number
            files[name] = b"".join(lines)
            yield _file(name, files[name])


def _commit(branch: bytes, number: int, message: bytes, origin: bytes = b"") -> bytes:
    head = b"commit refs/heads/%s\ncommitter %s %d +0000\n" % (branch, _WHO, START + 60 * number)
    return head + b"data %d\n%s\n" % (len(message), message) + origin


def _file(name: str, data: bytes) -> bytes:
    mode = b"100755" if name == PROGRAM else b"100644"
    return b"M %s inline %s\ndata %d\n%s\n" % (mode, name.encode(), len(data), data)
