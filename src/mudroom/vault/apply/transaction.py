"""Apply, undo and recover: perform a landing so that a crash at any moment loses no data.

The order on disk, for each apply ``uN`` in ``applies/uN/``:

1. ``plan.prepare`` is written and fsynced: the operations to perform. The project is untouched.
2. The slots are filled from the fork and made durable.
3. ``plan.ready`` is written and fsynced. From here on recovery goes forward.
4. The operations run, each as one atomic rename. The directories they touched are made durable.
5. ``plan.ready`` becomes ``plan.done``. The slots now hold the replaced files. Undo is the same backwards:
   ``plan.undoing``, then ``plan.undone``.

After a crash before step 3 the apply is *deferred*: the slots go back to the fork, and the project was never touched.
After a later crash it is *interrupted*: every operation is checked again, the remaining ones are performed, and a file
that the user has changed meanwhile is a conflict like any other.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from types import MappingProxyType

from mudroom.core.merge.made_undo import STAYS, repositories_in, undo_of_repositories
from mudroom.core.merge.merge import Conflict
from mudroom.core.merge.operations import Landing, Op, expand, inverse
from mudroom.core.network.push import PushRow
from mudroom.core.system.closing import ClosedOnError, Descriptor
from mudroom.core.tree.change import Remark
from mudroom.core.tree.entry import HELD, Entry
from mudroom.core.tree.path import is_below, parent, show
from mudroom.errors import FULL, MudroomError, UsageError
from mudroom.stage import disk
from mudroom.stage.beneath import LastDirectory, directory, mount_of, open_layer, open_root
from mudroom.stage.layers.closed_directory import look_through
from mudroom.stage.layers.landed import elsewhere
from mudroom.stage.originals import moved_files
from mudroom.typing import Literal, NamedTuple
from mudroom.vault.apply.execution import Executor, Progress
from mudroom.vault.apply.form import follow_list
from mudroom.vault.apply.imprint import Recognition
from mudroom.vault.apply.imprint import load as load_imprint
from mudroom.vault.apply.joint import Following, Joint, is_decided
from mudroom.vault.apply.plan_state import State as State
from mudroom.vault.apply.plan_state import plan_path, state_of
from mudroom.vault.apply.slot_content import fill_slots, return_slots, slots_of
from mudroom.vault.apply.slot_directory import make_slots, open_slots, sync_above
from mudroom.vault.apply.tree import walk
from mudroom.vault.apply.unmerge import Unmerge, keep_applied
from mudroom.vault.record import FORMAT, ApplyRecord, load, save
from mudroom.vault.sync import sync_directory

# --- The operations for an undo or a redo, computed from the apply's record and the present project ---
# Files are recognised by the apply's imprint (``imprint.py``). If a file is still the applied file, its operation
# expects the present entry; if it was edited, the operation expects an entry that no file has, so that it becomes a
# conflict or a merge.


class Reversal(NamedTuple):
    record: ApplyRecord
    """With the inverse operations in reverse order."""
    merged: list[bytes]
    """Paths of merged files."""
    staying: set[bytes]
    """Repositories that stay."""
    held: list[Op]
    """Inverse operations that are not in the record: another program holds open the file that must be read."""
    lost: list[Remark]
    """About what merged files could not be given (``form.py``)."""


def reverse(record: ApplyRecord, place: bytes, state: str) -> Reversal:
    """Return the operations that take the apply back. ``place``: the apply's directory; its state is ``done`` or
    ``undone``.

    A directory that has gained or changed files is taken back file by file. In an undo, a text that was edited since is
    merged.
    """
    record, staying = _with_repositories(record)
    slots = open_slots(record)
    with ClosedOnError(slots):
        root = open_root(record.project)
    reader = LastDirectory(root)
    recognition = Recognition(load_imprint(place, state), reader, moved_files.read(os.path.dirname(place)))
    trees = dict(record.trees)
    numbers = (int(name) for name in disk.names(slots) if name.isdigit())
    unmerge = Unmerge(place, root, slots, max(numbers, default=0) + 1_000_000)
    free = max((op.slot for op in record.ops), default=0) + 1
    ops: list[Op] = []
    held: list[Op] = []
    try:
        for op in (inverse(op) for op in reversed(record.ops)):
            present = _present_tree(root, op, recognition, trees[op.slot]) if op.whole and op.kind == "remove" else None
            if present is not None:
                trees[op.slot] = present
                ops.append(op)
            elif op.kind == "remove" and op.whole:
                parts = expand(op, trees[op.slot], free)
                free += len(parts)
                kept = (part for part in parts if not any(is_below(part.path, top) for top in staying))
                ops += [_recognised(reader, part, recognition)[0] for part in kept]
            else:
                known, current = _recognised(reader, op, recognition)
                _follow(reader, known, current, slots)
                ops.append(unmerge.op(known, current) if state == "done" else known)
                if unmerge.held and unmerge.held[-1] == op.path:
                    held.append(op)
                    ops.pop()
    finally:
        reader.close()
        os.close(root)
        os.close(slots)
    return Reversal(record._replace(ops=tuple(ops), trees=trees), unmerge.merged, staying, held, unmerge.lost)


def _present_tree(root: int, op: Op, recognition: Recognition, tree: dict[bytes, Entry]) -> dict[bytes, Entry] | None:
    """Return a directory's present entries, as the operation that removes it expects them; None if they differ from the
    applied entries."""
    above, _slash, name = op.path.rpartition(b"/")
    present: dict[bytes, Entry] = {}
    try:
        with directory(root, above) as opened:
            for path, entry in walk((opened, name)):
                if not recognition.is_same(op.path + b"/" + path, tree.get(path), entry):
                    return None
                present[path] = entry
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return tree  # the operation itself reports the obstacle
    return present if present.keys() == tree.keys() else None


def _recognised(reader: LastDirectory, op: Op, recognition: Recognition) -> tuple[Op, Entry | None]:
    """Return the operation with the entry that it must expect, and the present entry if it was read.

    The expected entry is the present entry if that is the applied file or link; otherwise it is an entry that no file
    has.
    """
    if op.old is None or op.old.kind == "directory":
        return op, None
    try:
        current = reader.look(op.path)
    except PermissionError:  # the apply has closed its directory, which an earlier operation opens
        return op._replace(old=op.old._replace(ctime=0)), None
    if current is None or current.kind != op.old.kind:
        return op, current
    if op.new is not None and (current.device, current.inode) == (recognition.device, op.new.inode):
        # It was held open when the apply went the other way, so it already is the file that the operation would place.
        return op, None
    same = recognition.is_same(op.path, op.old, current)
    return op._replace(old=current if same else elsewhere(op.old)), current


def _follow(reader: LastDirectory, op: Op, current: Entry | None, slots: int) -> None:
    """Let the file that a swap brings back have the list that the user has set since (``form.py``)."""
    if op.kind != "swap" or op.new is None or op.new.kind != "file" or current is None or op.old != current:
        return
    above, _slash, name = op.path.rpartition(b"/")
    follow_list(reader.enter(above), name, slots, b"%d" % op.slot, op.new.mode)


def _with_repositories(record: ApplyRecord) -> tuple[ApplyRecord, set[bytes]]:
    """Return the record with refreshed indexes for the repositories that the apply brought, and the repositories that
    stay because the user has worked in them since."""
    trees, staying = dict(record.trees), set[bytes]()
    with Descriptor(open_root(record.project)) as root:
        for op in record.ops:
            tree = trees.get(op.slot, {}) if op.kind == "place" and op.whole else {}
            tops = repositories_in(op.path, tree)
            if not tree or not tops:
                continue
            above, _slash, name = op.path.rpartition(b"/")
            try:
                with directory(root, above) as opened:
                    live = dict(walk((opened, name)))
            except OSError:
                continue  # the operation itself reports the obstacle
            undo = undo_of_repositories(tops, tree, live)
            trees[op.slot] = undo.tree
            staying |= {op.path + b"/" + top if top else op.path for top in undo.staying}
    return record._replace(trees=trees), staying


# --- the transaction ---

KEPT = "keeps the edits made since"
AGAIN = {
    "done": "stays as it is; once it is closed: mudroom redo {name}, then mudroom undo {name}",
    "undone": "stays as it is; once it is closed: mudroom undo {name}, then mudroom redo {name}",
}
"""Remarks about a file that was held open during an undo or a redo: its operation stays in the record, and is already
done for the other way."""
_NO_SOURCES: Mapping[bytes, bytes] = MappingProxyType({})
_NO_DIGESTS: Mapping[bytes, bytes] = MappingProxyType({})
_UNDER_WAY: dict[State, tuple[Following, Following]] = {"done": ("undoing", "undone"), "undone": ("redoing", "done")}


class ApplyResult(NamedTuple):
    name: str
    """``u12``: the name for undo. Empty if there was nothing to do."""
    written: int = 0
    """Number of files created, replaced or given another mode."""
    removed: int = 0
    """Number of files removed."""
    conflicts: tuple[Conflict, ...] = ()
    remarks: tuple[Remark, ...] = ()
    again: tuple[bytes, ...] = ()
    """Paths where the project's version had been chosen. After an undo the fork has its own version there again; after
    a redo it does not."""
    holder: str = ""
    """The current name of that fork."""
    refs: tuple[str, ...] = ()
    """Refs that an undo or redo has moved, for display."""
    pushes: tuple[PushRow, ...] = ()
    """The held pushes that an apply has sent or tried to, or that an undo has taken back or tried to."""
    roots: tuple[tuple[str, ApplyResult], ...] = ()
    """For an undo or redo: what it did in other projects, by their labels."""


Settle = Callable[[ApplyResult], tuple[Remark, ...]]


def _settled(_applied: ApplyResult) -> tuple[Remark, ...]:
    return ()


class Recovery(NamedTuple):
    name: str
    fork: str
    outcome: Literal["deferred", "finished", "undone"]
    """deferred: the project was never touched and the fork is whole. finished: the rest of the apply was done now."""
    applied: ApplyResult


class ApplyDirectory:
    """``applies/uN`` of a vault: the plan in one of its states, and the slots."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.name = os.fsdecode(os.path.basename(path))

    def state(self) -> State | None:
        return state_of(self.path)

    def _plan(self, state: State) -> bytes:
        return plan_path(self.path, state)

    def load(self) -> ApplyRecord:
        state = self.state()
        if state is None:
            raise MudroomError(f"the apply {self.name} was removed meanwhile", "mudroom log shows it")
        record = load(self._plan(state), ApplyRecord)
        name = b"/applies/" + os.path.basename(self.path)
        former = record.slots.removesuffix(name + b"/slots")
        vault = self.path.removesuffix(name)
        if former in (record.slots, vault):
            return record
        contents = (
            vault + path.removeprefix(former) if path.startswith(former + b"/") else path for path in record.contents
        )
        return record._replace(slots=self.path + b"/slots", contents=tuple(contents))  # the state was moved

    def write(self, state: State, record: ApplyRecord) -> None:
        save(self._plan(state), record, durable=True)

    def advance(self, old: State, new: State) -> None:
        disk.rename_path(self._plan(old), self._plan(new))
        sync_directory(self.path)

    def began(self) -> int:
        """Return when ``begin`` was called, in nanoseconds by the clock of the vault's file system."""
        return os.stat(os.path.dirname(self.path) + b"/pending").st_mtime_ns

    def begin(self, operation: Literal["apply", "turn"]) -> None:
        """Write the mark ``applies/pending``, durably, so that checking for an unfinished operation is cheap.

        The mark for an ``apply`` stays until the fork's records are settled, the mark for an undo or redo (``turn``)
        until the operation is over.
        """
        with open(os.path.dirname(self.path) + b"/pending", "wb") as stream:
            stream.write(f"{self.name} {operation}".encode())
            stream.flush()
            os.fsync(stream.fileno())
        sync_directory(os.path.dirname(self.path))

    def has_begun(self, operation: Literal["apply", "turn"]) -> bool:
        """Whether the operation is running, or was when mudroom was killed, and the mark has not ended."""
        try:
            with open(os.path.dirname(self.path) + b"/pending", "rb") as stream:
                return stream.read() == f"{self.name} {operation}".encode()
        except FileNotFoundError:
            return False

    def end(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.dirname(self.path) + b"/pending")

    def tie(self, record: ApplyRecord, following: Following, joint: Joint) -> ApplyRecord:
        """Write the complete plan as a part of a joint operation, prepare the other parts, and let the plan take its
        next state once that is decided. Return the record. An error before the decision leaves the plan tied."""
        record = record._replace(joint=joint.note(self.path, following))
        self.write("tied", record)
        joint.prepared()
        self.untie(following)
        return record

    def untie(self, following: Following) -> None:
        """Let a plan take its next state. The operation is decided."""
        earlier_states: tuple[State, ...] = ("prepare", "done", "undone")
        for earlier in earlier_states:  # a tied plan holds, whatever is beside it
            if os.path.exists(self._plan(earlier)):
                self.drop(earlier)
        sync_directory(self.path)
        self.advance("tied", following)

    def cancel(self, record: ApplyRecord) -> None:
        """Return all files to the fork, as if the apply had not begun. Call it before the first operation."""
        return_slots(record)
        for state in ("tied", "prepare"):
            with suppress(FileNotFoundError):
                self.drop(state)
        sync_directory(self.path)  # before the mark goes: without it no recovery looks at the plan
        self.end()

    def drop(self, state: State) -> None:
        """Remove the plan of an earlier state. Durable with the next state: until then the earlier plan is ignored."""
        os.unlink(self._plan(state))

    def drop_before(self, state: State) -> None:
        """Remove a plan as ``drop`` does. Before a redo the removal is made durable, because ``undone`` is not ignored
        beside ``done`` (``plan_state.ORDER``)."""
        self.drop(state)
        if state == "undone":
            sync_directory(self.path)


def trees_of(landing: Landing) -> dict[int, dict[bytes, Entry]]:
    """Return, by slot, the entries below each whole directory in the landing: the staged entries if it is placed, the
    old entries if it is removed.

    If a directory is replaced by a directory (never in one operation), the old side wins.
    """
    tops = {op.path: op for op in landing.ops if op.whole}
    trees: dict[int, dict[bytes, Entry]] = {op.slot: {} for op in tops.values()}
    taken_by: dict[bytes, Op | None] = {}  # each directory once: a chain would cost its depth cubed
    for change in landing.taken if tops else ():
        path, above = change.path, parent(change.path)
        if above not in taken_by:
            at, on_the_way = above, []
            while at and at not in taken_by and at not in tops:
                on_the_way.append(at)
                at = parent(at)
            taken_by.update(dict.fromkeys((*on_the_way, above), tops.get(at) or taken_by.get(at)))
        op = taken_by[above]
        if op is not None:
            leaving = op.old is not None and op.old.kind == "directory"
            entry = change.base if leaving else change.staged
            if entry is not None:
                trees[op.slot][path[len(op.path) + 1 :]] = entry
    return trees


def apply(
    place: ApplyDirectory,
    record: ApplyRecord,
    *,
    merged: bytes = b"",
    sources: Mapping[bytes, bytes] = _NO_SOURCES,
    verify_fork: bool = True,
    progress: Progress | None = None,
    is_empty: bool = False,
    joint: Joint | None = None,
) -> ApplyResult:
    """Perform the operations in ``record``. ``place`` is a new apply directory.

    The mark (``begin``) stays: the caller ends it when the fork's records are settled. ``merged``: directory with the
    content that is not the fork's own (``Op.merged``). ``sources``: the old path of each renamed file. ``verify_fork``:
    compare the fork's whole directories with the reviewed ones; False if the fork has been locked since. ``is_empty``:
    record the apply also without operations, for its pushes. ``joint``: the operation of which the apply is a part.

    Raise ForkMoved if the fork differs from the review (no change was made), OSError if the disk fails; after an
    OSError call ``recover``.
    """
    if not record.ops and not record.dropped and not is_empty:
        return ApplyResult("")
    place.begin("apply")
    if not record.ops:  # the project stays as it is; only the fork changes
        if joint is None:
            place.write("done", record)
            return ApplyResult(place.name)
        try:
            place.tie(record, "done", joint)
        except (MudroomError, OSError):
            if not joint.is_decided:
                place.cancel(record)
            raise
        return ApplyResult(place.name)
    in_vault = record.slots.startswith(place.path + b"/")
    if in_vault:
        make_slots(record)  # writing the plan makes them durable
    place.write("prepare", record._replace(trees={}))  # taking this back does not need the trees
    try:
        if not in_vault:
            try:
                make_slots(record, new=True)  # after the plan: recovery must find the slots in the project
            except FileExistsError:
                taken = show(record.slots)
                # so that ``cancel`` leaves the other slots alone
                record = record._replace(slots=place.path + b"/slots")
                raise MudroomError(f"{taken} was made meanwhile", "another mudroom applies here: try again") from None
            sync_above(record)
        record, remarks = fill_slots(record, merged, sources, verify_fork=verify_fork)
        with slots_of(record) as slots:
            digests = keep_applied(place.path, slots, record.ops)
        if joint is not None:
            record = place.tie(record, "ready", joint)
    except (MudroomError, OSError) as error:
        if joint is not None and joint.is_decided:
            raise  # recovery goes forward
        place.cancel(record)
        if isinstance(error, OSError) and error.errno in FULL and not in_vault:
            what = f"no room on the file system of {show(record.project)}: {error.strerror}"
            hint = "make room there; until it is applied, each changed file is there twice. Nothing was changed"
            raise MudroomError(what, hint) from error
        raise
    if joint is None:
        place.write("ready", record)
        place.drop("prepare")
    applied = _finish(place, record, "ready", "done", progress, digests=digests)
    return applied._replace(remarks=(*applied.remarks, *remarks))


def undo(
    place: ApplyDirectory,
    progress: Progress | None = None,
    settle: Settle = _settled,
    joint: Joint | None = None,
) -> ApplyResult:
    """Restore the state before an apply. Files that changed since are kept as conflicts. Raise UsageError if the apply
    is not in the state ``done``.

    ``settle``: called when the project is restored and before the undo counts as finished, to update the fork.
    ``joint``: the operation of which the undo is a part.
    """
    state = place.state()
    if state != "done":
        hint = f"it was undone already; mudroom redo {place.name} applies it again" if state == "undone" else ""
        if state == "undone" and place.load().refused:
            hint = f"it was undone already, but for files that stayed: mudroom undo {place.name} --decide"
        raise UsageError(f"{place.name} cannot be undone", hint)
    return _reverse(place, "done", progress, settle, joint)


def redo(
    place: ApplyDirectory,
    progress: Progress | None = None,
    settle: Settle = _settled,
    joint: Joint | None = None,
) -> ApplyResult:
    """Apply again after an undo. Files that changed since are kept as conflicts. ``settle`` and ``joint``: as for
    ``undo``. Raise UsageError if the apply is not in the state ``undone``."""
    require_undone(place)
    return _reverse(place, "undone", progress, settle, joint)


def require_undone(place: ApplyDirectory) -> None:
    """Raise UsageError if the apply is not in the state ``undone``."""
    state = place.state()
    if state != "undone":
        raise UsageError(f"{place.name} cannot be redone", "it has not been undone" if state == "done" else "")


def _reverse(
    place: ApplyDirectory,
    state: Literal["done", "undone"],
    progress: Progress | None,
    settle: Settle,
    joint: Joint | None,
) -> ApplyResult:
    """Perform the inverse of the operations that led to this state."""
    under_way, after = _UNDER_WAY[state]
    record = place.load()
    if not record.ops:
        place.begin("turn")
        if joint is None:
            place.advance(state, after)
        else:
            _tie_turn(place, record, after, joint)
        remarks = settle(ApplyResult(place.name))
        place.end()
        return ApplyResult(place.name, remarks=remarks)
    if not os.path.isdir(record.slots):  # it held no file, or was removed
        make_slots(record)
    place.begin("turn")
    backwards, merged, staying, held, lost = reverse(record._replace(refused=()), place.path, state)
    if joint is None:
        place.write(under_way, backwards)
        place.drop_before(state)
    else:
        backwards = _tie_turn(place, backwards, under_way, joint)
    applied = _finish(place, backwards, under_way, after, progress, held=held)
    settled = settle(applied)
    place.end()
    kept = [Remark(path, KEPT) for path in merged if all(path != conflict.path for conflict in applied.conflicts)]
    conflicts = (*applied.conflicts, *(Conflict(path, STAYS) for path in sorted(staying)))
    waiting = AGAIN[state].format(name=place.name)
    kept += [Remark(conflict.path, waiting) for conflict in conflicts if conflict.reason == HELD]
    return applied._replace(conflicts=conflicts, remarks=(*applied.remarks, *lost, *kept, *settled))


def _tie_turn(place: ApplyDirectory, record: ApplyRecord, following: Following, joint: Joint) -> ApplyRecord:
    """Tie an undo or a redo (``ApplyDirectory.tie``). An error before the decision leaves the apply as it was."""
    try:
        return place.tie(record, following, joint)
    except (MudroomError, OSError):
        if not joint.is_decided:
            place.drop("tied")
            sync_directory(place.path)
            place.end()
        raise


def recover(place: ApplyDirectory) -> Recovery | None:
    """Finish or take back an interrupted operation. Return None if the apply was not interrupted. Raise MudroomError if
    it is a part of a joint operation whose first vault is missing."""
    state = place.state()
    if state not in ("prepare", "tied", "ready", "undoing", "redoing"):
        return None
    record = place.load()
    if state == "tied":
        if record.joint is None:
            raise MudroomError(f"the plan of {place.name} is damaged: it is of no operation", "mudroom vault check")
        if is_decided(place.path, record.joint):
            state = record.joint.following
            place.untie(state)
            if state in ("done", "undone"):  # it has no operations
                ended: Literal["finished", "undone"] = "finished" if state == "done" else "undone"
                return Recovery(place.name, record.fork, ended, ApplyResult(place.name))
        elif any(os.path.exists(place._plan(earlier)) for earlier in _UNDER_WAY):
            place.drop("tied")
            sync_directory(place.path)
            return None  # the undo or redo had not begun
        else:
            state = "prepare"
    if state == "prepare":
        place.cancel(record)
        return Recovery(place.name, record.fork, "deferred", ApplyResult(place.name))
    earlier_states: tuple[State, ...] = ("undone",) if state == "redoing" else ("prepare", "done")
    for earlier in earlier_states:  # a crash between writing a state and dropping the earlier one
        if os.path.exists(place._plan(earlier)):
            place.drop_before(earlier)
    if state in ("ready", "redoing"):
        applied = _finish(place, record, state, "done", None, again=True)
        return Recovery(place.name, record.fork, "finished", applied)
    applied = _finish(place, record, "undoing", "undone", None, again=True)
    return Recovery(place.name, record.fork, "undone", applied)


def _finish(
    place: ApplyDirectory,
    record: ApplyRecord,
    old: State,
    new: State,
    progress: Progress | None,
    *,
    again: bool = False,
    digests: Mapping[bytes, bytes] = _NO_DIGESTS,
    held: Sequence[Op] = (),
) -> ApplyResult:
    """Perform the operations and advance the state.

    ``again``: some operations may have been done before. ``digests``: by path, known digests of new files. ``held``:
    operations that must not be tried (``reverse``).
    """
    has_kept = functools.partial(_has_kept, record) if old == "ready" else lambda _op: False
    slots = open_slots(record)
    with closing(Executor(record.project, slots, record.trees, again=again, has_kept=has_kept, state=old)) as executor:
        executor.run(record.ops, progress)
        unplaced = [op for op in executor.undone if executor.holds_new(op)]
        if executor.done:
            moved = executor.leave_imprint(place.path, new, place.began(), digests)
            if old != "ready":
                moved_files.add(os.path.dirname(place.path), moved.values())
    if old == "ready" and executor.undone:  # a conflict keeps both versions: theirs stays in the fork
        return_slots(record._replace(ops=tuple(unplaced)))
    # no operation was done, so undo has nothing to reverse
    if old == "ready" and not executor.done and not record.dropped:
        place.drop(old)
        sync_directory(place.path)
        return ApplyResult("", conflicts=tuple(executor.conflicts), remarks=tuple(executor.remarks))
    # undo must not take back operations that were not done; a file that was held is tried again after the other way
    there = [*executor.done, *(() if old == "ready" else (*executor.held, *held))]
    if there != list(record.ops):
        refused = tuple(op for op in executor.refused if op not in executor.held) if old == "undoing" else ()
        place.write(old, record._replace(ops=tuple(_ordered(there, record.ops)), refused=refused))
    place.advance(old, new)
    written = sum(_count_files(op, record) for op in executor.done if op.kind in ("place", "swap", "chmod"))
    removed = sum(_count_files(op, record) for op in executor.done if op.kind == "remove")
    conflicts = (*executor.conflicts, *(Conflict(op.path, HELD) for op in held))
    return ApplyResult(place.name, written, removed, conflicts, tuple(executor.remarks))


def _ordered(ops: Sequence[Op], order: Sequence[Op]) -> list[Op]:
    """Sort operations into the order in which they had to be performed; others come first."""
    places = {(op.kind, op.path): number for number, op in enumerate(order)}
    return sorted(ops, key=lambda op: places.get((op.kind, op.path), -1))


def _has_kept(record: ApplyRecord, op: Op) -> bool:
    """Whether the fork still has the file that ``op`` places: it was returned after a move, or was copied."""
    if op.merged or op.copy or len(record.contents) > 1:
        return True
    try:
        content = open_layer(record.contents[0])
    except FileNotFoundError:
        return False
    with Descriptor(content):
        return look_through(content, op.path) is not None


def _count_files(op: Op, record: ApplyRecord) -> int:
    if not op.whole:
        return int(op.kind != "chmod" or op.new is None or op.new.kind != "directory")
    return sum(entry.kind != "directory" for entry in record.trees.get(op.slot, {}).values())


def new_record(
    place: ApplyDirectory,
    fork: str,
    started: int,
    project: bytes,
    contents: tuple[bytes, ...],
    landing: Landing,
    trees: dict[int, dict[bytes, Entry]],
) -> ApplyRecord:
    """Return a new record."""
    slots = slots_for(place, project)
    return ApplyRecord(FORMAT, place.name, fork, started, project, slots, contents, landing.ops, trees)


def slots_for(place: ApplyDirectory, project: bytes) -> bytes:
    """Return the directory for an apply's slots: in the vault if it is on the project's mount."""
    if mount_of(place.path) == mount_of(project):
        return place.path + b"/slots"
    return project + b"/.mudroom/apply/" + os.fsencode(place.name)
