"""Lines of ``info/exclude``: git ignores exactly the paths that they name."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom.core.git.exclude import pattern_of, with_excluded
from tiers import each, examples

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@each(
    ("path", "pattern"),
    [
        (b".env", b"/.env"),
        (b"a/b c.key", b"/a/b\\ c.key"),
        (b"#a", b"/#a"),
        (b"!a", b"/!a"),
        (b"*?[a]\\", b"/\\*\\?\\[a]\\\\"),
        (b"end \n", b"/end\\ ?"),
        (b"\xff\r", b"/\xff?"),
    ],
)
def test_patterns(path: bytes, pattern: bytes) -> None:
    assert pattern_of(path) == pattern


def test_lines_are_added_at_the_end() -> None:
    lines = b"# shown empty by mudroom, in this fork only:\n/.env\n/a.key\n"
    assert with_excluded(b"", [b"a.key", b".env", b".env"]) == lines
    assert with_excluded(b"*.o", [b"a.key", b".env"]) == b"*.o\n" + lines
    assert with_excluded(b"!.env\n", [b"a.key", b".env"]) == b"!.env\n" + lines


NAMES = st.text(st.sampled_from("ab .#!*?[]\\-^~\t\r\nü"), min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@needs_git
@settings(max_examples=examples(40), deadline=None)
@given(excluded=st.sets(PATHS, min_size=1, max_size=5), others=st.sets(PATHS, max_size=10))
def test_git_ignores_these_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, excluded: set[str], others: set[str]
) -> None:
    repository: Path = tmp_path_factory.getbasetemp() / "excluding"
    if not repository.exists():
        subprocess.run(["git", "init", "-q", repository], check=True)
    (repository / ".git/info").mkdir(exist_ok=True)
    (repository / ".git/info/exclude").write_bytes(with_excluded(b"!*\n", [path.encode() for path in excluded]))
    paths = sorted(excluded | others)
    done = subprocess.run(
        ["git", "check-ignore", "-z", "--no-index", "--stdin"],
        cwd=repository,
        input="\0".join(paths).encode(),
        capture_output=True,
        check=False,
    )
    ignored = {path.decode() for path in done.stdout.split(b"\0")[:-1]}
    assert excluded <= ignored
    plain = {path for path in excluded if not set("\r\n") & set(path)}
    if plain == excluded:
        below = {path for path in others if any(path.startswith(above + "/") for above in excluded)}
        assert ignored <= excluded | below
