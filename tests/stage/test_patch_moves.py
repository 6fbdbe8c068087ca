"""``mudroom diff`` of what was moved and changed in one go is a patch that git applies, and reads as it was meant."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import Place, tick
from mudroom.stage.originals import collection

pytestmark = pytest.mark.both_users

NAMES = [
    b"plain", b"two words", b'quoted"', b"caf\xc3\xa9", b"\xff", b"line\nfeed", b"tab\tin it", b"d ir/in it", b"-rf",
]  # fmt: skip
TEXT = "".join(f"line {number}\n" for number in range(40))


def diff(place: Place, script: str, *paths: bytes) -> bytes:
    session = place.session()
    session.forks.new("f")
    done = session.run([b"sh", b"-ec", script.encode()], fork="f")
    assert done.exit_code == 0, done.stderr
    return b"".join(session.changes.diff("f", paths))


def git(*words: str, patch: bytes, cwd: Path) -> bytes:
    return subprocess.run(["git", *words, "-"], input=patch, cwd=cwd, check=True, capture_output=True).stdout


def test_it_says_what_git_says(place: Place) -> None:
    place.write("src/old.py", TEXT)
    (place.project / "src/old.py").chmod(0o755)
    edit = "sed -i 's/^line 7$/VII/; s/^line 8$/VIII/' lib/new.py"
    patch = diff(place, f"mkdir lib; mv src/old.py lib/new.py; {edit}; chmod 644 lib/new.py")
    assert patch.decode().splitlines()[:8] == [
        "diff --git a/src/old.py b/lib/new.py",
        "old mode 100755",
        "new mode 100644",
        "similarity index 95%",
        "rename from src/old.py",
        "rename to lib/new.py",
        "--- a/src/old.py",
        "+++ b/lib/new.py",
    ]
    assert (patch.count(b"\n-"), patch.count(b"\n+")) == (3, 3)
    assert git("apply", "--numstat", patch=patch, cwd=place.project) == b"2\t2\tlib/new.py\n"


@pytest.mark.parametrize("path", ["src/old.py", "lib/new.py", "lib"])
def test_with_one_end_alone_it_is_what_it_is(place: Place, path: str) -> None:
    place.write("src/old.py", TEXT)
    patch = diff(place, "mkdir lib; mv src/old.py lib/new.py; echo more >> lib/new.py", path.encode())
    assert b"rename" not in patch and b"similarity" not in patch
    assert (b"deleted file" if path == "src/old.py" else b"new file") in patch


@pytest.mark.parametrize("kept", [True, False])
def test_what_was_edited_in_the_project_meanwhile_is_told_as_moved_if_its_original_is_kept(
    place: Place, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kept:
        monkeypatch.setattr(collection, "DELETED_FILES", 0)
    place.write("old.py", TEXT)
    session = place.session()
    session.forks.new("f")
    session.run([b"sh", b"-c", b"mv old.py new.py; echo more >> new.py"], fork="f")
    tick()
    place.write("old.py", TEXT + "mine\n")
    patch = b"".join(session.changes.diff("f"))
    assert (b"rename from old.py" in patch, b"new file" in patch) == (kept, not kept)


def test_a_secret_is_not_told_as_moved(place: Place) -> None:
    place.write("server.txt", TEXT)
    patch = diff(place, "mv server.txt server.pem; echo more >> server.pem")
    assert b"rename" not in patch and b"new file" in patch


def test_what_has_become_something_else_went_and_came(place: Place) -> None:
    """Git splits it: nothing that goes or comes is left out, and the patch applies."""
    place.write("was/a", "in a directory\n")
    place.write("flat", "a file\n")
    place.write("linked", "a file, too\n")
    shutil.copytree(place.project, place.root / "copy")
    script = "rm -r was flat linked; echo now a file >was; mkdir flat; echo in it >flat/x; ln -s was linked"
    patch = diff(place, script)
    for line in (b"-in a directory", b"+now a file", b"-a file", b"+in it", b"-a file, too", b"+was"):
        assert line in patch.splitlines()
    git("apply", patch=patch, cwd=place.root / "copy")
    assert tree(os.fsencode(place.root / "copy")) == {
        b"was": b"now a file\n",
        b"flat/x": b"in it\n",
        b"linked": b"now a file\n",
    }
    assert (place.root / "copy/linked").readlink() == Path("was")


@pytest.mark.parametrize("seed", range(6))
def test_git_applies_it(place: Place, seed: int) -> None:
    """Trees of files of any name, of which some are moved, some changed, some both, some neither."""
    chance = random.Random(seed)
    names = [name + b".%d" % number for name in NAMES for number in range(3)]
    project = os.fsencode(place.project)
    for name in names:
        write(project + b"/" + name, content(chance), chance)
    shutil.copytree(place.project, place.root / "copy")
    shutil.copytree(place.project, place.root / "staged")
    staged = os.fsencode(place.root / "staged")
    moved = changed(chance, staged, names)
    session = place.session()
    session.forks.new("f")
    files, wanted = session.forks.files("f"), tree(staged)
    for name in names:
        if name not in wanted:
            files.delete(name)
    for name, data in wanted.items():
        files.write(name, data)
    patch = b"".join(session.changes.diff("f"))
    assert patch.count(b"\nsimilarity index ") >= moved // 2 > 0
    git("apply", "--whitespace=nowarn", patch=patch, cwd=place.root / "copy")
    assert tree(os.fsencode(place.root / "copy")) == tree(staged)


def content(chance: random.Random) -> list[bytes]:
    return [b"%d of these\n" % chance.randrange(1000) for _ in range(chance.randrange(8, 60))]


def write(path: bytes, lines: list[bytes], chance: random.Random) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as stream:
        stream.write(b"".join(lines)[: -chance.randrange(2) or None])


def changed(chance: random.Random, root: bytes, names: list[bytes]) -> int:
    """How many were moved and changed."""
    moved = 0
    for name in names:
        how = chance.choice(["moved", "both", "both", "changed", "gone", "left"])
        with open(root + b"/" + name, "rb") as stream:
            lines = stream.read().splitlines(keepends=True)
        if how in ("both", "changed"):
            lines[chance.randrange(len(lines))] = b"changed\n"
        if how in ("moved", "both", "gone"):
            os.unlink(root + b"/" + name)
        if how == "changed":
            write(root + b"/" + name, lines, chance)
        elif how in ("moved", "both"):
            where = chance.choice([b"moved to/" + name, name + b".new"])
            write(root + b"/" + where, lines, chance)
            moved += how == "both"
    return moved


def tree(root: bytes) -> dict[bytes, bytes]:
    found = {}
    for above, _directories, files in os.walk(root):
        for one in files:
            with open(above + b"/" + one, "rb") as stream:
                found[os.path.relpath(above + b"/" + one, root)] = stream.read()
    return found
