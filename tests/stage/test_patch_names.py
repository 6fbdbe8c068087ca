"""``mudroom diff`` of files of any name is a patch that git applies."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from conftest import Place
from test_patch_moves import tree

pytestmark = pytest.mark.both_users

NAMES = (
    b"plain", b"two words", b" edges ", b'quoted"', b"back\\slash", b"line\nfeed", b"tab\t", b"caf\xc3\xa9",
    b"\xff\xfe", b"\xe2\xa0\x80", b"\xe2\x80\xaegpj.exe", b"\x1b[31m", b"d ir/in it", b"a => b", b"{a,b}", b"-rf",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_git_applies_it(place: Place, name: bytes) -> None:
    old, new, project = name + b".old", name + b".new", os.fsencode(place.project)
    for path in (name, old, name + b".gone"):
        os.makedirs(os.path.dirname(project + b"/" + path), exist_ok=True)
        with open(project + b"/" + path, "wb") as stream:
            stream.write(b"".join(b"%d\n" % number for number in range(20)) + b"%d" % len(path))
    shutil.copytree(place.project, place.root / "copy")
    copy = os.fsencode(place.root / "copy")
    session = place.session()
    script = b'sed -i s/7/seven/ -- "$1"; mv -- "$2" "$3"; rm -- "$4"; echo 1 > "$5"'
    words = (b"./" + one for one in (name, old, new, name + b".gone", name + b".more"))
    fork = session.run([b"sh", b"-c", script, b"sh", *words]).fork
    patch = b"".join(session.changes.diff(fork))
    assert not {0x1B, 0x09} & set(patch.replace(b"\t\n", b"\n")), "nothing in it moves a cursor"
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=patch, cwd=copy, check=True)
    session.changes.apply(fork)
    assert tree(copy) == tree(project)
