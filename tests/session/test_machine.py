"""A fork behaves as a plain copy of the project would: random commands, checkpoints, rollbacks, forks of forks, each
compared with a model that is made with ``cp -a``, through the mount and without one, whatever the wall clock is set
to."""

from __future__ import annotations

import ast
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from clocks import HOUR, WallClock
from conftest import Listing, Place, full_listing, listing
from mudroom.core.retention import retention_limits
from mudroom.core.settings import Settings
from mudroom.sandbox.client.client import Client
from mudroom.stage.buffer.files import Tree
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.source import Source, read_all, walk
from mudroom.stage.views.real_directory import PlainTree
from mudroom.vault.forks import flatten
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.retention.prune import collect_garbage
from test_property import OPERATION, PROGRAM, perform
from tiers import QUICK

# Root, without its capabilities, is refused inside what it could write to outside: files stay writable. An overlay
# splits hard links of what lies below it (Documentation/filesystems/overlayfs.rst, "Non-standard behavior").
OPERATIONS = st.lists(OPERATION.filter(lambda one: 0o444 not in one and one[0] != "link"), min_size=1, max_size=4)
STEPS = int(os.environ.get("MUDROOM_STEPS", "40"))
EXAMPLES = int(os.environ.get("MUDROOM_MACHINES", "4" if QUICK else "12"))

LOOK = """
import os, stat
def look():
    found = {}
    for directory, directories, files in os.walk("."):
        for name in (*directories, *files):
            path = os.path.join(directory, name)
            info = os.lstat(path)
            mode = stat.S_IMODE(info.st_mode)
            if stat.S_ISLNK(info.st_mode): entry = ("symlink", 0, os.fsencode(os.readlink(path)))
            elif stat.S_ISDIR(info.st_mode): entry = ("directory", mode, b"")
            elif stat.S_ISREG(info.st_mode): entry = ("file", mode, open(path, "rb").read())
            else: entry = ("special", mode, b"")
            found[os.path.normpath(path)] = entry
    return found
print(look())
"""


def listing_of(source: Source) -> Listing:
    """The same as ``conftest.listing``, without a mount."""
    found: Listing = {}
    for path, entry in walk(source):
        kind = entry.kind if entry.kind in ("symlink", "directory", "file") else "special"
        content = entry.target if kind == "symlink" else b""
        if kind == "file":
            data = read_all(source, path, 1 << 20)
            assert data is not None
            content = data
        found[os.fsdecode(path)] = (kind, entry.mode, content)
    return found


def what_lands(tree: Listing, original: Listing) -> Listing:
    """A fifo does not land. A file that the project has at its path stays (``stage/originals/collection.py``); a
    directory is deleted there."""
    special = {path for path, found in tree.items() if found[0] == "special"}
    stays = {path: original[path] for path in special & original.keys() if original[path][0] != "directory"}
    return stays | {path: found for path, found in tree.items() if path not in special}


def edit(tree: Tree, operation: tuple[Any, ...]) -> str:
    """Perform one operation on a tree. Returns what went wrong, as the name of the error."""
    name, *words = operation
    path, *rest = [word.encode("latin-1") if isinstance(word, str) else word for word in words]
    methods: dict[str, Callable[..., None]] = {
        "remove": tree.unlink, "chmod": tree.chmod, "rename": tree.rename, "make_directory": tree.mkdir,
    }  # fmt: skip
    try:
        if name in ("write", "append"):
            tree.write(path, (tree.read(path) if name == "append" else b"") + rest[0])
        elif name == "touch":
            tree.utime(path, 1_000_000_000)
        elif name == "symlink":
            tree.symlink(rest[0], path)
        elif name == "remove_tree":
            tree.remove(path)
        elif name != "fifo":
            methods[name](path, *([int(mode) | 0o700 for mode in rest] if name == "chmod" else rest))
    except OSError as error:
        return type(error).__name__
    return ""


class Machine(RuleBasedStateMachine):
    client: Client
    view: Any = "overlay"
    forks = Bundle("forks")
    points = Bundle("points")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="mudroom-machine-"))
        self.place = Place(self.root, self.client)
        perform(
            [("write", "a", "one\ntwo\n"), ("make_directory", "d/e"), ("write", "d/f", "x"), ("write", "d/e/g", "y")],
            self.place.project,
        )
        perform([("symlink", "a", "b"), ("chmod", "d/f", 0o600)], self.place.project)
        self.clock = WallClock()
        self.session = self.place.session(Settings(view=self.view), clock=time.time_ns)
        self.before = full_listing(self.place.project)
        self.count = 0

    def teardown(self) -> None:
        self.clock.release()
        self.place.close()
        remove_tree(os.fsencode(self.root))  # the launcher may remove work directories meanwhile

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def model(self, name: str) -> Path:
        return self.root / "models" / name

    def copy(self, old: Path, new: Path) -> None:
        new.parent.mkdir(exist_ok=True)
        if new.exists():
            shutil.rmtree(new)
        subprocess.run(["cp", "-a", str(old), str(new)], check=True)

    @initialize(target=forks)
    def first(self) -> str:
        return self.make()

    @rule(target=forks)
    def new(self) -> str:
        return self.make()

    def make(self) -> str:
        name = self.name("fork")
        self.session.forks.new(name)
        self.copy(self.place.project, self.model(name))
        return name

    @rule(target=forks, parent=forks)
    def fork_of(self, parent: str) -> str:
        name = self.name("child")
        self.session.forks.new(name, parent=parent)
        self.copy(self.model(parent), self.model(name))
        return name

    @rule(hours=st.sampled_from((-9600, -25, -1, 1, 25, 9600)))
    def set_clock(self, hours: int) -> None:
        """Retention runs, and finds nothing that is old."""
        self.clock.ahead += hours * HOUR
        with self.session.alone("gc"):
            limits = retention_limits(self.session.actor.settings)
            swept = collect_garbage(self.session.vault, limits, time.time_ns())
        assert not (swept.applies or swept.checkpoints or swept.forks), swept

    @rule(fork=forks, operations=OPERATIONS)
    def command(self, fork: str, operations: object) -> None:
        perform(operations, self.model(fork))
        program = f"OPERATIONS = {operations!r}\n{PROGRAM}\n{LOOK}"
        result = self.session.run([os.fsencode(sys.executable), b"-I", b"-S", b"-c", program.encode()], fork=fork)
        assert result.exit_code == 0, result.stderr
        assert ast.literal_eval(result.stdout.decode()) == listing(self.model(fork)), "what the mount showed"
        self.check(fork)

    @rule(fork=forks, operations=OPERATIONS)
    def tools(self, fork: str, operations: list[tuple[Any, ...]]) -> None:
        """The same by file tools: in the fork's buffer, and on the model as a plain tree."""
        root = os.open(self.model(fork), os.O_RDONLY | os.O_DIRECTORY)
        try:
            model, tree = PlainTree(root), self.session.forks.tools.tree(fork)
            for operation in operations:
                assert edit(tree, operation) == edit(model, operation), operation
        finally:
            os.close(root)
        if self.count % 2:  # some edits stay in the buffer until something needs them
            self.session.forks.flush(fork)
            self.check(fork)

    def check(self, fork: str) -> None:
        """Read without a mount, and as the base with the changes over it, it is the model, too."""
        self.session.forks.flush(fork)
        expected = listing(self.model(fork))
        with OpenFork(self.session.vault, self.session.vault.fork(fork)) as opened:
            assert listing_of(opened.merged()) == expected
        changes = self.session.changes.of(fork).changes
        original = listing(self.place.project)
        landing = what_lands(expected, original)
        differing = {path for path in {*landing, *original} if landing.get(path) != original.get(path)}
        assert {os.fsdecode(change.path) for change in changes} == differing

    @rule(target=points, fork=forks)
    def checkpoint(self, fork: str) -> Any:
        name = self.name("point")
        self.session.forks.checkpoint(fork, name)
        self.copy(self.model(fork), self.model(f"{fork}@{name}"))
        return fork, name

    @rule(target=points, point=points)
    def rollback(self, point: tuple[str, str]) -> Any:
        fork, name = point
        held = self.root / "held"
        self.copy(self.model(fork), held)
        before = self.session.forks.rollback(fork, name)
        self.copy(self.model(f"{fork}@{name}"), self.model(fork))
        self.check(fork)
        if before is None:
            return multiple()
        self.copy(held, self.model(f"{fork}@{before.name}"))
        return fork, before.name

    @rule(target=forks, point=points)
    def fork_of_a_checkpoint(self, point: tuple[str, str]) -> str:
        name = self.name("grandchild")
        self.session.forks.new(name, parent=point[0], at=point[1])
        self.copy(self.model(f"{point[0]}@{point[1]}"), self.model(name))
        self.check(name)
        return name

    @invariant()
    def the_project_is_untouched(self) -> None:
        assert full_listing(self.place.project) == self.before

    @rule(fork=forks)
    def apply_and_undo(self, fork: str) -> None:
        """In a fork of its own, so that the machine may go on with the one that was applied."""
        if not self.session.changes.of(fork).changes:
            return
        original = listing(self.place.project)
        child = self.name("applied")
        self.session.forks.new(child, parent=fork)
        landed = self.session.changes.apply(child)
        assert landed.conflicts == ()
        assert listing(self.place.project) == what_lands(listing(self.model(fork)), original)
        assert self.session.changes.undo().conflicts == ()
        self.session.forks.discard(child) if landed.remaining else None
        self.check(fork)
        self.before = full_listing(self.place.project)


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_forks_are_copies(client: Client, view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatten, "DEEP", 5)  # so that merging layers comes up
    monkeypatch.setattr(flatten, "KEPT", 2)
    from hypothesis.stateful import run_state_machine_as_test

    machine = type("Machine", (Machine,), {"client": client, "view": view})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )


@pytest.mark.parametrize(("name", "stays"), [("l", True), ("f", True), ("d", False)])
def test_a_fifo_in_the_place_of_a_name_of_the_project(place: Place, name: str, stays: bool) -> None:
    """The model above and the product say the same."""
    place.write("d/f", "x")
    place.write("f", "x")
    os.symlink("f", place.project / "l")
    session = place.session()
    original = listing(place.project)
    for script in (f"rm -r {name}", f"mkfifo {name}", "echo new > new"):
        session.run([b"sh", b"-c", script.encode()], fork="f")
    with OpenFork(session.vault, session.vault.fork("f")) as opened:
        staged = listing_of(opened.merged())
    assert staged[name][0] == "special"
    session.changes.apply("f")
    assert listing(place.project) == what_lands(staged, original)
    assert os.path.lexists(place.project / name) == stays


def test_listings_agree(place: Place) -> None:
    place.write("f", "x", 0o640)
    place.write("d/g", "y")
    os.symlink("f", place.project / "l")
    from mudroom.stage.source import OpenSource

    with OpenSource(os.fsencode(place.project)) as source:
        assert listing_of(source) == listing(place.project)
    assert stat.S_IMODE((place.project / "f").stat().st_mode) == 0o640
