"""What a copy leaves out: tables, and git itself as the judge of ``.gitignore``."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mudroom.core.tree.entry import Entry
from mudroom.errors import UsageError
from mudroom.stage.copy import listed
from mudroom.stage.exclude import _ignored, _rules, _screen, _verdict, _without, choose, never_copied
from mudroom.stage.source import OpenSource
from tiers import each, examples

MB = 1_000_000


def entry(kind: str, size: int = 0) -> Entry:
    return Entry(kind, 0o755, size, b"", 1, 1, 1, 0, 0, 0, 0)  # type: ignore[arg-type]


def tree(*paths: bytes, size: int = 1) -> dict[bytes, Entry]:
    """``a/b`` is a file of ``size`` bytes, ``a/b/`` a directory, ``a/b@`` a symbolic link; directories above come
    first."""
    items: dict[bytes, Entry] = {}
    for path in paths:
        parts = path.rstrip(b"/@").split(b"/")
        for depth in range(1, len(parts)):
            items.setdefault(b"/".join(parts[:depth]), entry("directory"))
        kind = {b"/": "directory", b"@": "symlink"}.get(path[-1:], "file")
        items[b"/".join(parts)] = entry(kind, size if kind == "file" else 0)
    return items


def kept_by(items: dict[bytes, Entry], *patterns: bytes) -> set[bytes]:
    out = never_copied(patterns)
    return {path for path, one in _without(items, out)[0].items() if one.kind != "directory"}


def nothing(_path: bytes) -> bytes | None:
    raise AssertionError("no .gitignore was asked for")


# --- caches and copy.exclude --------------------------------------------------------------------------------------


@each(
    ("path", "copied"),
    [
        (b"__pycache__/x.pyc", False),
        (b"a/b/__pycache__/x.pyc", False),
        (b".next/cache/x", False),
        (b"web/.next/cache/d/x", False),
        (b".next/server/x", True),
        (b"cache/x", True),
        (b".cache/x", False),
        (b"node_modules/.cache/x", False),
        (b"node_modules/left-pad/index.js", True),
        (b".cache", True),
        (b".cache@", True),
        (b"my.cache/x", True),
        (b".git/HEAD", True),
    ],
)
def test_caches(path: bytes, copied: bool) -> None:
    assert kept_by(tree(path)) == ({path.rstrip(b"@")} if copied else set())


@each(
    ("patterns", "kept"),
    [
        ([b"*.log"], {b"d/keep", b"build/out", b"d/build/out", b"caf\xe9", b"build.txt"}),
        ([b"build"], {b"d/keep", b"d/x.log", b"caf\xe9", b"build.txt"}),
        ([b"/build/"], {b"d/keep", b"d/x.log", b"d/build/out", b"caf\xe9", b"build.txt"}),
        ([b"d/*", b"!d/keep"], {b"d/keep", b"build/out", b"caf\xe9", b"build.txt"}),
        ([b"d", b"!d/keep"], {b"build/out", b"caf\xe9", b"build.txt"}),
        ([b"caf\xe9", b"d"], {b"build/out", b"build.txt"}),
        ([b"caf?", b"d/**"], {b"build/out", b"build.txt"}),
        ([b"*", b"!build.txt"], {b"build.txt"}),
    ],
)
def test_patterns(patterns: list[bytes], kept: set[bytes]) -> None:
    items = tree(b"d/keep", b"d/x.log", b"build/out", b"d/build/out", b"caf\xe9", b"build.txt")
    assert kept_by(items, *patterns) == kept


def test_a_pattern_can_bring_a_cache_back() -> None:
    assert kept_by(tree(b".cache/x", b"a/__pycache__/y"), b"!.cache") == {b".cache/x"}


@pytest.mark.parametrize(
    ("pattern", "told"), [(b"[z-a]", "is not a pattern of gitignore(5)"), (b"#x", "names nothing")]
)
def test_a_pattern_that_means_nothing_is_refused(pattern: bytes, told: str) -> None:
    with pytest.raises(UsageError) as raised:
        never_copied([pattern])
    assert str(raised.value) == f"copy.exclude: {pattern.decode()!r} {told} (a pattern: *.log, /build/, !keep.log)"


# --- steps --------------------------------------------------------------------------------------------------------

LARGE = {
    **tree(b".git/pack", size=5 * MB),
    **tree(b"node_modules/a/x", b"node_modules/b", b"web/node_modules/y", size=20 * MB),
    **tree(b"logs/l", b"web/tmp/t", size=10 * MB),
    **tree(b".gitignore", b"web/.gitignore", size=10),
    **tree(b"src/main", size=MB),
}
IGNORE = {b".gitignore": b"logs\n", b"web/.gitignore": b"/tmp/\n"}
LOGS = "left out of the copy: logs (10 MB) and web/tmp (10 MB)"
MODULES = "left out of the copy: node_modules (40 MB) and web/node_modules (20 MB)"
GIT = "left out of the copy: .git (5.0 MB)"


@each(
    ("limit", "notes", "gone"),
    [
        (None, [], set()),
        (86 * MB + 20, [], set()),
        (86 * MB, [LOGS], {b"logs/l", b"web/tmp/t"}),
        (66 * MB, [LOGS, MODULES], {b"logs/l", b"web/tmp/t", b"node_modules/b", b"web/node_modules/y"}),
        (6 * MB, [LOGS, MODULES, GIT], {b"logs/l", b"node_modules/a/x", b".git/pack", b".git"}),
        (5, [LOGS, MODULES, GIT], {b"logs/l", b"node_modules/a/x", b".git/pack", b".git"}),
    ],
)
def test_one_step_after_the_other_until_it_fits(limit: int | None, notes: list[str], gone: set[bytes]) -> None:
    kept, found = choose(LARGE, IGNORE.get, limit=limit)
    assert found == notes
    assert not gone & set(kept)
    assert gone or kept == LARGE
    assert {b"src/main", b"web", b".gitignore"} <= set(kept)


def test_nothing_is_read_where_everything_fits() -> None:
    assert choose(LARGE, nothing, limit=1 << 40) == (LARGE, [])


def test_a_step_that_finds_nothing_is_not_told() -> None:
    assert choose(tree(b"dist/x", b"y", size=MB), nothing, limit=MB) == (
        tree(b"y", size=MB),
        ["left out of the copy: dist (1.0 MB)"],
    )


def test_ignored_files_are_left_out_from_the_start_if_that_is_set() -> None:
    kept, notes = choose(LARGE, IGNORE.get, limit=None, gitignore=True)
    assert notes == [] and set(LARGE) - set(kept) == {b"logs", b"logs/l", b"web/tmp", b"web/tmp/t"}


def test_only_directories_are_taken_for_what_a_build_makes() -> None:
    items = tree(b"build", b"target@", b"x", size=MB)
    assert choose(items, nothing, limit=1) == (items, [])


def test_many_are_told_by_number_and_shown_safely() -> None:
    items = tree(*(b"%d/build/x" % number for number in range(5)), b"\x1b[31m/build/x", size=MB)
    items[b"4/build/x"] = entry("file", 3 * MB)
    assert choose(items, nothing, limit=1)[1] == [
        "left out of the copy: 4/build (3.0 MB), \\x1b[31m/build (1.0 MB), 0/build (1.0 MB) and 3 more (3.0 MB)"
    ]


# --- .gitignore ---------------------------------------------------------------------------------------------------


@each(
    ("ignore", "ignored"),
    [
        ({b".gitignore": b"*\n"}, {b"a", b"d"}),
        ({b".gitignore": b"\xef\xbb\xbfa\r\n"}, {b"a", b"d/a"}),
        ({b".gitignore": b"/a\n"}, {b"a"}),
        ({b".gitignore": b"d/\n!d/a\n"}, {b"d"}),
        ({b".gitignore": b"a\n", b"d/.gitignore": b"!a\n"}, {b"a"}),
        ({b".gitignore": b"!a\n", b"d/.gitignore": b"a\n"}, {b"d/a"}),
        ({b".gitignore": b"d/e/\n", b"d/e/.gitignore": b"!*\n"}, {b"d/e"}),
        ({b".gitignore": b"[z-a]\n\n# a\n/\n"}, set()),
    ],
)
def test_gitignore(ignore: dict[bytes, bytes], ignored: set[bytes]) -> None:
    items = tree(b".git/a", b"a", b"d/a", b"d/e/x", *ignore)
    tops = _without(items, _ignored(items, ignore.get))[1]
    assert set(tops) - {b".gitignore"} == ignored


def test_a_gitignore_that_is_a_symbolic_link_or_cannot_be_read_says_nothing() -> None:
    items = tree(b".gitignore@", b"d/.gitignore", b"d/x")
    asked: list[bytes] = []
    assert _without(items, _ignored(items, asked.append))[1] == {}
    assert asked == [b"d/.gitignore"]


NAMES = ["a", "b", "ab", "x.log"]
SEGMENTS = [*NAMES, "*", "**", "?", "a*", "*.log", "[ab]"]
LINES = st.builds(
    lambda negated, anchored, segments, closed: negated + anchored + "/".join(segments) + closed,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3),
    st.sampled_from(["", "/"]),
).filter(lambda line: not line.endswith("**/") and "**/**" not in line)
PATHS = ["a", "b/a", "b/ab", "b/x.log", "ab/a/b", "ab/b/x.log", "x.log/a/a", "x.log/ab"]


PLACES = st.lists(st.sampled_from(["a", "b", ".x", "ab", "[", "*"]), min_size=1, max_size=4).map("/".join)


@given(st.lists(st.text("ab*?[]!/.\\(P<>^$|", min_size=1, max_size=9), min_size=1, max_size=5), PLACES)
@example(["[[]"], "[")
@example(["[*--a]", "[a||b]"], "b")
def test_what_a_rule_names_is_not_screened_out(patterns: list[str], name: str) -> None:
    rules, path = list(_rules(one.encode() for one in patterns)), name.encode()
    screen = _screen(rules)
    for kind in ("file", "directory"):
        if _verdict(rules, path, entry(kind)) is not None:
            assert screen.search(path) or screen.search(path + b"/")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(LINES, min_size=1, max_size=4), st.lists(LINES, max_size=2))
def test_git_ignores_the_same(top: list[str], nested: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path in PATHS:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("")
        (root / ".gitignore").write_text("\n".join(top) + "\n")
        (root / "ab/.gitignore").write_text("\n".join(nested) + "\n")
        environ = {"PATH": os.environ["PATH"], "HOME": name, "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", "init", "-q", name], check=True, env=environ)
        listing = ["git", "-C", name, "ls-files", "-z", "--others", "--exclude-standard"]
        done = subprocess.run(listing, check=True, capture_output=True, env=environ)
        with OpenSource(os.fsencode(name)) as source:
            items = listed(source)
            kept = _without(items, _ignored(items, lambda path: (root / os.fsdecode(path)).read_bytes()))[0]
        files = {path for path, one in kept.items() if one.kind == "file" and not path.startswith(b".git/")}
        assert files == set(done.stdout.split(b"\0")) - {b""}
