"""One list of edits, every kind of view: the same changeset, and the same project after apply.

The edits are those at which overlays, copies and buffers are known to go wrong: what lies in a hidden directory, a
whiteout turned into a directory, files that were only touched, kinds that change, names that are not text.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, full_listing, listing
from mudroom.core.settings import Settings
from mudroom.stage.views.mount import best_kind
from test_property import PROGRAM, perform
from tiers import pairs

pytestmark = [pytest.mark.both_users, pytest.mark.root]

BASE: list[tuple[Any, ...]] = [
    ("write", "file", "one\ntwo\n"),
    ("write", "other", "o\n"),
    ("write", "empty", ""),
    ("write", "binary", "\0\x01"),
    ("write", "run", "#!/bin/sh\n"),
    ("chmod", "run", 0o755),
    ("make_directory", "d/e/deep"),
    ("write", "d/f", "f\n"),
    ("write", "d/e/g", "g\n"),
    ("write", "d/e/deep/h", "h\n"),
    ("make_directory", "hollow"),
    ("symlink", "file", "link"),
    ("symlink", "nowhere", "dangling"),
    ("write", "caf\xe9", "latin\n"),
]

Edits = list[tuple[Any, ...]]
Expected = dict[str, str]

CASES: dict[str, tuple[Edits, Expected]] = {
    "nothing": ([], {}),
    "append": ([("append", "file", "three\n")], {"file": "modified"}),
    "overwrite with the same": ([("write", "file", "one\ntwo\n")], {}),
    "touch": ([("touch", "file")], {}),
    "mode": ([("chmod", "file", 0o755)], {"file": "modified"}),
    "mode there and back": ([("chmod", "file", 0o755), ("chmod", "file", 0o644)], {}),
    "mode of a directory": ([("chmod", "d", 0o750)], {"d": "modified"}),
    "remove": ([("remove", "file")], {"file": "deleted"}),
    "remove and write the same again": ([("remove", "other"), ("write", "other", "o\n")], {}),
    "remove a tree": (
        [("remove_tree", "d")],
        dict.fromkeys(("d", "d/f", "d/e", "d/e/g", "d/e/deep", "d/e/deep/h"), "deleted"),
    ),
    "a directory again, empty": (
        [("remove_tree", "d"), ("make_directory", "d")],
        dict.fromkeys(("d/f", "d/e", "d/e/g", "d/e/deep", "d/e/deep/h"), "deleted"),
    ),
    "a directory again, with one of its own": (
        [("remove_tree", "d"), ("make_directory", "d/e")],
        dict.fromkeys(("d/f", "d/e/g", "d/e/deep", "d/e/deep/h"), "deleted"),
    ),
    "a directory again, with one of its files": (
        [("remove_tree", "d"), ("make_directory", "d/e/deep"), ("write", "d/e/deep/h", "h\n")],
        dict.fromkeys(("d/f", "d/e/g"), "deleted"),
    ),
    "file becomes directory": (
        [("remove", "file"), ("make_directory", "file"), ("write", "file/x", "x\n")],
        {"file": "modified", "file/x": "added"},
    ),
    "directory becomes file": (
        [("remove_tree", "d/e"), ("write", "d/e", "e\n")],
        {"d/e": "modified", "d/e/g": "deleted", "d/e/deep": "deleted", "d/e/deep/h": "deleted"},
    ),
    "directory becomes link": ([("remove_tree", "hollow"), ("symlink", "d", "hollow")], {"hollow": "modified"}),
    "file becomes link": ([("remove", "other"), ("symlink", "file", "other")], {"other": "modified"}),
    "link becomes file": ([("remove", "link"), ("write", "link", "l\n")], {"link": "modified"}),
    "link to elsewhere": ([("remove", "link"), ("symlink", "other", "link")], {"link": "modified"}),
    "link again": ([("remove", "dangling"), ("symlink", "nowhere", "dangling")], {}),
    "rename a file": ([("rename", "file", "moved")], {"file": "deleted", "moved": "renamed"}),
    "rename over another": ([("rename", "file", "other")], {"file": "deleted", "other": "modified"}),
    "rename there and back": ([("rename", "file", "moved"), ("rename", "moved", "file")], {}),
    "rename a directory": (
        [("rename", "d/e", "e")],
        {
            "d/e": "deleted",
            "d/e/g": "deleted",
            "d/e/deep": "deleted",
            "d/e/deep/h": "deleted",
            "e": "added",
            "e/g": "renamed",
            "e/deep": "added",
            "e/deep/h": "renamed",
        },
    ),
    "two files change places": (
        [("rename", "file", "x"), ("rename", "other", "file"), ("rename", "x", "other")],
        {"file": "modified", "other": "modified"},
    ),
    "new tree": (
        [("make_directory", "n/m"), ("write", "n/m/x", "x\n"), ("write", "n/y", "")],
        {"n": "added", "n/m": "added", "n/m/x": "added", "n/y": "added"},
    ),
    "new and gone again": ([("write", "tmp", "x"), ("remove", "tmp")], {}),
    "new tree and gone again": ([("make_directory", "n/m"), ("write", "n/m/x", "x"), ("remove_tree", "n")], {}),
    "binary": ([("append", "binary", "\0")], {"binary": "modified"}),
    "emptied": ([("write", "file", "")], {"file": "modified"}),
    "filled": ([("write", "empty", "x\n")], {"empty": "modified"}),
    "a name that is not text": ([("append", "caf\xe9", "x\n")], {"caf\xe9": "modified"}),
    "a name with a newline": ([("write", "a\nb", "x\n")], {"a\nb": "added"}),
    "names like those of whiteouts": ([("write", ".wh.file", "x\n")], {".wh.file": "added"}),
    "a long name": ([("write", "n" * 255, "x\n")], {"n" * 255: "added"}),
    "execute bit": ([("chmod", "run", 0o644)], {"run": "modified"}),
    "mode and content": ([("append", "run", "true\n"), ("chmod", "run", 0o700)], {"run": "modified"}),
}

Editing = Callable[[Place, str, Edits], None]


def by_command(place: Place, view: str, edits: Edits) -> None:
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    program = f"OPERATIONS = {edits!r}\n{PROGRAM}"
    argv = [os.fsencode(sys.executable), b"-I", b"-S", b"-c", program.encode()]
    assert session.run(argv, fork="f").exit_code == 0


def by_two_commands(place: Place, view: str, edits: Edits) -> None:
    """With a checkpoint between: each half is in a layer of its own."""
    by_command(place, view, edits[: len(edits) // 2])
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    session.forks.checkpoint("f", "between")
    by_command(place, view, edits[len(edits) // 2 :])


def by_tools(place: Place, _view: str, edits: Edits) -> None:
    session = place.session()
    session.forks.new("f")
    files = session.forks.files("f")
    for name, *words in edits:
        path, *rest = (word.encode("latin-1") if isinstance(word, str) else word for word in words)
        tree = session.forks.tools.tree("f")
        if name == "write":
            files.write(path, rest[0])
        elif name == "append":
            files.append(path, rest[0])
        elif name == "remove_tree":
            files.delete(path, recursive=True)
        elif name == "make_directory":
            files.mkdir(path)
        elif name == "symlink":
            tree.symlink(rest[0], path)
        elif name == "touch":
            tree.utime(path, 1_000_000_000)
        else:
            methods: dict[str, Callable[..., None]] = {
                "remove": tree.unlink,
                "chmod": tree.chmod,
                "rename": tree.rename,
            }
            methods[name](path, *rest)
    session.close()


def by_mount(place: Place, kind: str, edits: Edits) -> None:
    session = place.session()
    session.forks.new("f")
    session.forks.mount("f", os.fsencode(place.root / "mounted"), kind=kind)  # type: ignore[arg-type]
    for edit in edits:
        if edit[0] == "rename":  # outside of sandboxes nobody renames an overlay's directory but mv(1)
            subprocess.run(["mv", "-T", *edit[1:]], cwd=place.root / "mounted", check=True)
        else:
            perform([edit], place.root / "mounted")
    session.forks.unmount("f")


WAYS: dict[str, tuple[Editing, str]] = {
    "overlay": (by_command, "overlay"),
    "copy": (by_command, "copy"),
    "overlay, two layers": (by_two_commands, "overlay"),
    "copy, two layers": (by_two_commands, "copy"),
    "buffer": (by_tools, ""),
    "mounted, overlay": (by_mount, "overlay"),
    "mounted, fuse": (by_mount, "fuse"),
    "mounted, copy": (by_mount, "copy"),
}


def as_names(edits: Edits) -> Edits:
    """Texts of the tables stand for bytes (Latin-1); the programs pass names to the system by surrogates."""

    def name(word: Any) -> Any:
        return os.fsdecode(word.encode("latin-1")) if isinstance(word, str) else word

    contents = ("write", "append")
    return [(one[0], name(one[1]), *(one[2:] if one[0] in contents else map(name, one[2:]))) for one in edits]


FUSE_CANNOT = {
    "names like those of whiteouts": "fuse-overlayfs keeps names that begin with .wh. to itself",
    "a long name": "fuse-overlayfs 1.10 refuses names of more than 251 bytes",
}


def missing(way: str, case: str) -> str:
    """Why a way cannot be gone here; empty if it can."""
    if way == "mounted, fuse" and case in FUSE_CANNOT:
        return FUSE_CANNOT[case]
    if way == "mounted, overlay" and os.geteuid():
        return "mounting by the kernel needs root"
    if way == "mounted, fuse" and (not shutil.which("fuse-overlayfs") or not os.access("/dev/fuse", os.R_OK | os.W_OK)):
        return "fuse-overlayfs is not installed, or /dev/fuse may not be opened"
    return ""


@pytest.mark.parametrize(("case", "way"), pairs(list(CASES), list(WAYS), 4))
def test_every_view_gives_the_same_changeset(place: Place, case: str, way: str) -> None:
    if why := missing(way, case):
        pytest.skip(why)
    edits, expected = CASES[case]
    perform(as_names(BASE), place.project)
    bare = place.root / "bare"
    subprocess.run(["cp", "-a", str(place.project), str(bare)], check=True)
    perform(as_names(edits), bare)
    before = full_listing(place.project)
    edit, how = WAYS[way]
    edit(place, how, edits if edit is by_tools else as_names(edits))
    session = place.session()
    changes = session.changes.of("f").changes
    assert {change.path.decode("latin-1"): change.verb for change in changes} == expected
    assert full_listing(place.project) == before
    if changes:
        landed = session.changes.apply("f")
        assert landed.conflicts == ()
    assert listing(place.project) == listing(bare)
    if changes:
        session.changes.undo()
        assert full_listing(place.project).keys() == before.keys()


def test_there_is_a_kind_of_mount_for_everybody() -> None:
    assert best_kind() in ("overlay", "fuse", "copy")
    assert Path("/proc/self/mountinfo").exists()
