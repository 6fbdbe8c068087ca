"""Random commands, a checkpoint, perhaps a rollback, an apply and an undo give the trees that plain directories have.

``tests/session/test_property.py`` does it with real sandboxes, and with links and modes. This one needs neither, so it
runs on Windows, too (``dev/wine``).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench import Workbench, contents

if sys.platform != "win32":
    pytestmark = pytest.mark.deep

NAMES = st.sampled_from(["a", "b", "c", "d", "d/e", "d/f", "d/e/g", "a-b", "d/e/h", "b/x", "c/y/z"])
CONTENT = st.sampled_from([b"", b"x", b"one\ntwo\n", b"one\n2\n", b"z" * 50, b"\0binary\xff"])
OPERATION = st.one_of(
    st.tuples(st.just("write"), NAMES, CONTENT),
    st.tuples(st.just("append"), NAMES, CONTENT),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("remove_tree"), NAMES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("make_directory"), NAMES),
)
OPERATIONS = st.lists(OPERATION, max_size=10)
EXAMPLES = int(os.environ.get("MUDROOM_EXAMPLES", "4" if sys.platform == "win32" else "25"))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


def perform(operations: Sequence[tuple[object, ...]], root: Path) -> None:
    """Do what can be done of it."""
    act: dict[object, Callable[..., object]] = {
        "write": lambda path, data: path.write_bytes(data),
        "append": append,
        "remove": lambda path: path.unlink(),
        "remove_tree": shutil.rmtree,
        "rename": lambda path, new: path.rename(root / new),
        "make_directory": lambda path: path.mkdir(parents=True),
    }
    for name, path, *rest in operations:
        try:
            act[name](root / str(path), *rest)
        except OSError:
            continue


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=OPERATIONS, first=OPERATIONS, second=OPERATIONS, back=st.booleans())
def test_the_project_is_as_if_it_had_been_done_there(
    before: list[tuple[object, ...]], first: list[tuple[object, ...]], second: list[tuple[object, ...]], back: bool
) -> None:
    bench = Workbench(Path(tempfile.mkdtemp(prefix="mudroom-property-")))
    try:
        perform(before, bench.project)
        original = contents(bench.project)
        bare = bench.root / "bare"
        shutil.copytree(bench.project, bare)
        expected = original
        for number, operations in enumerate((first, second)):
            perform(operations, bare)
            changes = bench.run("f", lambda work, operations=operations: perform(operations, work))  # type: ignore[misc]
            assert changes.remarks == ()
            if number == 0:
                bench.forks.checkpoint("f", "here")
            if number == 0 or not back:
                expected = contents(bare)
        if back:
            bench.forks.rollback("f", "here")
        assert contents(bench.project) == original, "nothing may change before apply"
        if not bench.changes.of("f").changes:
            assert expected == original
            return
        assert bench.apply("f") == []
        assert contents(bench.project) == expected
        assert bench.undo() == []
        assert contents(bench.project) == original
    finally:
        bench.remove()
