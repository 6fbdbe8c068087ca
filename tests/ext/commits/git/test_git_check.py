"""What is refused in a tree or a commit, against what ``git fsck --strict`` says of the same."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from handgit import WHO, Copy, tree_entry

from mudroom.core.tree.git_name import reads_as
from mudroom.ext.commits.git.check import check_commit, check_entry, parse_commit, parse_tree

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def git_names(copy: Copy) -> set[str]:
    """The objects in which git finds an error."""
    done = subprocess.run(["git", "fsck", "--strict"], cwd=copy.fork, capture_output=True, text=True, check=False)
    return set(re.findall(r"error in (?:tree|commit) ([0-9a-f]{40})", done.stdout + done.stderr))


def refuses_tree(data: bytes) -> bool:
    try:
        for name, entry in parse_tree(data, 20).items():
            check_entry(name, entry)
    except ValueError:
        return True
    return False


def refuses_commit(data: bytes) -> bool:
    try:
        check_commit(data)
        parse_commit(data)
    except ValueError:
        return True
    return False


def names() -> list[bytes]:
    """Names that are nearly, or in effect, .git or .gitmodules."""
    stems = [
        b".git",
        b".GIT",
        b"git~1",
        b"GiT~1",
        b"git~2",
        b".gitmodules",
        b"gitmod~1",
        b"gitmod~5",
        b"gi7eba~1",
        b"gi7e~123",
    ]
    stems += [
        b"GI7EB~12",
        b"gi7d29~1",
        b".gitattributes",
        "\u200c.git".encode(),
        ".g\ufeffit".encode(),
        ".git\u200f".encode(),
    ]
    stems += [
        ".g\u0131t".encode(),
        ".g\u0130t".encode(),
        "\u2024git".encode(),
        b".g\xffit",
        b"git",
        b".gi",
        b"..git",
        b"...",
        b"..",
    ]
    ends = [b"", b" ", b".", b". .", b":", b"::$INDEX_ALLOCATION", b"\\x", b"x", b" x", b"~", b"\n"]
    starts = [b"", b"a\\", b"\\", b"a:b\\", b" "]
    return [start + stem + end for start, stem, end in itertools.product(starts, stems, ends)]


def test_names(copy: Copy) -> None:
    empty = copy.object("blob", b"")
    by_tree: dict[str, tuple[bytes, bytes]] = {}
    for mode, name in itertools.product(("100644", "120000"), [*names(), b".", b"a/b", b"/a"]):
        data = tree_entry(mode, name, empty)
        by_tree[copy.object("tree", data)] = name, data
    found = git_names(copy)
    ours = {tree for tree, (_name, data) in by_tree.items() if refuses_tree(data)}
    assert {by_tree[tree][0] for tree in found - ours} == set(), "git refuses them"
    stricter = {by_tree[tree][0] for tree in ours - found}
    assert all(name.endswith(b"\\x") for name in stricter), "links below a directory that NTFS takes for .gitmodules"
    assert len(found) > 150


def test_modes_and_order(copy: Copy) -> None:
    blob, tree = copy.object("blob", b""), copy.object("tree", b"")
    trees = {}
    entries = [
        ("100644", b"a", blob),
        ("40000", b"a", tree),
        ("100644", b"a.", blob),
        ("100644", b"a0", blob),
        ("40000", b"b", tree),
    ]
    for pair in itertools.product(entries, repeat=2):
        data = b"".join(tree_entry(*one) for one in pair)
        trees[copy.object("tree", data)] = data
    for mode in ("100644", "100755", "120000", "40000", "040000", "100600", "100777", "0100644", "160000", "140000"):
        data = tree_entry(mode, b"x", tree if mode.endswith("40000") else blob)
        trees[copy.object("tree", data)] = data
    found = git_names(copy)
    assert {data for name, data in trees.items() if name in found and not refuses_tree(data)} == set()
    assert {data[:7] for name, data in trees.items() if refuses_tree(data) and name not in found} == {
        *(b"100600 ", b"100777 ", b"140000 "),  # git only tells of them
    }


def test_identities(copy: Copy) -> None:
    tree = copy.object("tree", b"").encode()
    commits = {}
    parts = ([b"T", b"", b"<", b">", b"T>"], [b" ", b""], [b"<t@e>", b"<>", b"<t", b"t>", b"<t<>", b""])
    times = [
        b" 1 +0000",
        b" 0 -1200",
        b" 01 +0000",
        b" 1",
        b" x +0000",
        b" 99999999999999999999999 +0000",
        b"1 +0000",
        b" 1 +00",
    ]
    for who in itertools.product(*parts, times):
        line = b"".join(who)
        for data in (
            b"tree %s\nauthor %s\ncommitter %s\n\nx" % (tree, line, WHO),
            b"tree %s\nauthor %s\ncommitter %s\n\nx" % (tree, WHO, line),
        ):
            commits[copy.object("commit", data)] = data
    found = git_names(copy)
    assert {data for name, data in commits.items() if name in found and not refuses_commit(data)} == set()
    assert {data for name, data in commits.items() if refuses_commit(data) and name not in found} == set()
    assert found


def test_headers(copy: Copy) -> None:
    tree, parent = copy.object("tree", b"").encode(), copy.agent("git rev-parse HEAD").strip().encode()
    lines = [
        b"tree " + tree,
        b"parent " + parent,
        b"author " + WHO,
        b"committer " + WHO,
        b"encoding UTF-8",
        b"gpgsig x\n y",
    ]
    commits = {}
    for count in range(5):
        for some in itertools.permutations(lines, count):
            for end in (b"\n\nx", b"\n", b""):
                data = b"\n".join(some) + end
                commits[copy.object("commit", data)] = data
    found = git_names(copy)
    kept = {data for name, data in commits.items() if not refuses_commit(data)}
    assert {commits[name] for name in found} & kept == set()
    assert kept, "some are as they should be"


def test_what_is_not_confused() -> None:
    for name in (
        b"git",
        b".gitignore",
        b".gitx",
        b"x.git",
        b".git-x",
        "gïthub".encode(),
        b"agit~1",
        b"git~10",
        b".github",
    ):
        assert not reads_as(name, b".git"), name
    for name in (b".gitmodule", b"gitmod~5", b"gitmod~11", b"gi7eba~0", b"xgitmod~1"):
        assert not reads_as(name, b".gitmodules"), name
