"""Random operations in the view and on a plain copy give the same tree after apply, and undo gives the old one back."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from conftest import Listing, Place, full_listing, listing
from mudroom.sandbox.client.client import Client
from mudroom.stage.layers.layer import remove_tree
from tiers import examples

NAMES = st.sampled_from(["a", "b", "c", "d", "d/e", "d/f", "d/e/g", "a-b", "d/e/h", "b/x", "c/y/z"])
CONTENT = st.sampled_from(["", "x", "one\ntwo\n", "one\n2\n", "z" * 50, "\0binary\xff"])
MODE = st.sampled_from([0o644, 0o755, 0o600, 0o444])

OPERATION = st.one_of(
    st.tuples(st.just("write"), NAMES, CONTENT),
    st.tuples(st.just("append"), NAMES, CONTENT),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("remove_tree"), NAMES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("make_directory"), NAMES),
    st.tuples(st.just("symlink"), NAMES, NAMES),
    st.tuples(st.just("chmod"), NAMES, MODE),
    st.tuples(st.just("link"), NAMES, NAMES),
    st.tuples(st.just("touch"), NAMES),
    st.tuples(st.just("fifo"), NAMES),
)
OPERATIONS = st.lists(OPERATION, max_size=12)

# Directories keep their owner's access and files stay readable: root, without its capabilities, is refused inside what
# it could override outside.
PROGRAM = """
import os, shutil, sys
def append(path, text):
    with open(path, "ab") as stream: stream.write(text.encode("latin-1"))
def write(path, text):
    with open(path, "wb") as stream: stream.write(text.encode("latin-1"))
DO = {
    "write": write, "append": append, "remove": os.unlink, "remove_tree": shutil.rmtree, "rename": os.rename,
    "make_directory": lambda p: os.makedirs(p), "symlink": os.symlink, "link": os.link, "fifo": os.mkfifo,
    "chmod": lambda p, mode: os.chmod(p, mode | (0o700 if os.path.isdir(p) else 0o400)),
    "touch": lambda p: os.utime(p, (1, 1), follow_symlinks=False),
}
for name, *arguments in OPERATIONS:
    if name == "remove_tree" and not os.path.isdir(arguments[0]): continue  # it opens a fifo, and waits
    if name in ("append", "write") and os.path.exists(arguments[0]) and not os.path.isfile(arguments[0]): continue
    try: DO[name](*arguments)
    except OSError: pass
"""


def perform(operations: object, directory: Path) -> None:
    """The same program, here: a process for each would take most of the time."""
    back = Path.cwd()
    os.chdir(directory)
    try:
        exec(compile(PROGRAM, "operations", "exec"), {"OPERATIONS": operations})
    finally:
        os.chdir(back)


def as_applied(bare: Path, original: Listing) -> Listing:
    """Return the bare tree as an apply leaves it: no fifo lands, and what one has replaced stays
    (``core/tree/landing_form.py``)."""
    tree = listing(bare)
    fifos = [path for path, entry in tree.items() if entry[0] == "special"]
    kept = {path: entry for path, entry in original.items() if any(f"{path}/".startswith(f"{one}/") for one in fifos)}
    return {path: entry for path, entry in tree.items() if path not in fifos} | kept


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(before=OPERATIONS, staged=OPERATIONS, more=OPERATIONS)
def test_applied_tree_is_the_tree_of_the_bare_command(
    client: Client, before: object, staged: object, more: object
) -> None:
    root = Path(tempfile.mkdtemp(prefix="mudroom-property-"))
    place = Place(root, client)
    try:
        perform(before, place.project)
        original, stamps = listing(place.project), full_listing(place.project)
        bare = root / "bare"
        subprocess.run(["cp", "-a", str(place.project), str(bare)], check=True)
        session = place.session()
        for operations in (staged, more):
            perform(operations, bare)
            program = f"OPERATIONS = {operations!r}\n{PROGRAM}"
            result = session.run([os.fsencode(sys.executable), b"-I", b"-S", b"-c", program.encode()], fork="f")
            assert result.exit_code == 0, result.stderr
            assert full_listing(place.project) == stamps, "nothing may change before apply"
        # an overlay cannot keep the hard links of the base: that is said of each, and not what is tested here
        assume(not any("hard links in the project" in remark.text for remark in result.changeset.remarks))
        if result.changeset.changes:
            landed = session.changes.apply("f")
            assert landed.conflicts == ()
            assert landed.withheld == ()
        assert listing(place.project) == as_applied(bare, original)
        if result.changeset.changes:
            undone = session.changes.undo()
            assert undone.conflicts == ()
            assert listing(place.project) == original
    finally:
        place.close()
        remove_tree(os.fsencode(root))  # the launcher may remove work directories meanwhile
