"""The present project as a landing sees it, and the content that results from merging with it.

Merged, resolved or partly selected content is neither in the project nor in the fork. It is written to a new directory
below the vault's ``merged``, each file under a number, until the apply moves it from there or the reconciler is closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping

from mudroom.core.merge.diff3 import merge3
from mudroom.core.merge.marker import Labels, why_not_mergeable, with_markers
from mudroom.core.merge.merge import BINARY, Combined, Delta, PartialChoice, combine_modes, delta_of, merged_mode
from mudroom.core.merge.merge_tree import ConflictAnswer, FileSides, LiveProject
from mudroom.core.system.closing import Closing, Descriptor
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry, FileHeld, is_untouched, same_shape, same_stamp
from mudroom.core.tree.path import ancestors
from mudroom.stage import disk, xattr
from mudroom.stage.beneath import LastDirectory, directory, entries, look, look_beneath, open_root
from mudroom.stage.copy import copy_open_file, listed
from mudroom.stage.filesystem_kind import FUSE, OVERLAYFS, filesystem_magic, has_weak_ctime, is_weak
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.originals.ground import Ground
from mudroom.stage.source import OpenSource, Source, read_all, same_as, same_bytes
from mudroom.stage.views.preflight import filesystem, mounts
from mudroom.vault.conflict.rule_merge import settle

LIMIT = 32 * 1024 * 1024
"""Bytes. A larger file is not merged: it conflicts as a whole."""
_GIT_HEADS = (b"HEAD", b"index", b"packed-refs", b"logs/HEAD")
_MODES = "its permissions were changed in the project, too"
BACKUP = b".bak"
"""Suffix for a backup made by an apply (``vault/apply/landing.py``)."""
_LINK = "its target was also changed in the project"
_UNKNOWN = "also changed in the project, and its original was not kept"


class Reconciler(Closing):
    """Compares the fork with the project, and merges. Close it when the apply is over.

    ``partial``: files that are applied only in part. ``answer``: returns the decision about a conflict. ``markers``:
    write conflict markers where texts cannot be merged (``marked`` has the paths). ``rules``: take the text that a rule
    makes of a conflict (``ruled`` says which rule). ``since``: when the changes were
    collected, in nanoseconds since 1970. ``place``: parent for the directory with merged content.
    """

    def __init__(
        self,
        project: bytes,
        staged: Source,
        ground: Ground,
        *,
        since: int,
        place: bytes,
        partial: Mapping[bytes, PartialChoice] | None = None,
        answer: Callable[[Reconciler, Change, Entry | None], ConflictAnswer | None] | None = None,
        markers: bool = False,
        rules: bool = False,
        label: bytes = b"fork",
    ) -> None:
        self._project, self._staged, self._ground, self._since = project, staged, ground, since
        self._place, self._partial, self._answer = place, partial or {}, answer
        self.partial: Collection[bytes] = self._partial.keys()
        self._live = OpenSource(project)
        self._reader = LastDirectory(self._live.root)
        self._merged = b""
        self._count = 0
        self._recent: _RecentFiles | None = None
        self._weak: bool | None = None
        self._markers, self._rules, self._label = markers, rules, label
        self.combined: list[bytes] = []
        """Paths with merged, resolved or partly selected content."""
        self.marked: list[bytes] = []
        """Paths whose content has conflict markers."""
        self.ruled: dict[bytes, str] = {}
        """The rule or program that made a path's content."""

    def close(self) -> None:
        self._reader.close()
        self._live.close()
        if self._merged:
            remove_tree(self._merged)
            self._merged = b""

    @property
    def merged(self) -> bytes:
        """Directory with merged content; empty if there is none."""
        return self._merged

    def live(self) -> LiveProject:
        """Return the project as it is from now on.

        A directory that is renamed while a plan is made may be seen in its old place; the operations open it anew.
        """
        self._reader.close()

        def same_tree(path: bytes, expected: dict[bytes, Entry]) -> bool:
            return _is_same_tree(self._live.root, path, expected)

        def answer(change: Change, ours: Entry | None, sides: FileSides | None) -> ConflictAnswer | None:
            decision = self._answer(self, change, ours) if self._answer is not None else None
            if decision is None and sides is not None and (self._rules or self._markers):
                return self._answer_with_merge(sides)
            return decision

        return LiveProject(
            lambda path: self._reader.look(path or b"."),
            self._same_as_staged,
            same_tree,
            self._git_moved,
            self._delta,
            self._combine,
            self._find_moved,
            self._staged.look,
            answer,
            self._partial.keys(),
            _moves_directories(self._project),
        )

    # --- the project's entries ---

    def project_paths(self) -> set[bytes]:
        """Return the same paths as ``Ground.project_paths``."""
        return self._ground.project_paths()

    def look(self, path: bytes) -> Entry | None:
        """Return the project's present entry."""
        return self._live.look(path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        return self._live.names(path)

    def open(self, path: bytes) -> int:
        return self._live.open(path)

    def _same_as_staged(self, change: Change, ours: Entry) -> bool:
        assert change.staged is not None
        if not same_shape(change.staged, ours):
            return False
        if ours.kind != "file":
            return True
        if "xattr" in change.flags and xattr.of_file(self._live, change.path) != xattr.of_file(
            self._staged, change.path
        ):
            return False
        return _same_file(self._live, self._staged, change.path, change.staged, ours)

    def _delta(self, change: Change, ours: Entry | None) -> Delta:
        base = change.base
        if is_untouched(base, ours) and not (base is not None and self._may_hide_an_edit(base)):
            return "same"
        if base is None or ours is None or not base.kind == ours.kind == "file":
            return delta_of(base, ours, content=False)
        same = self._same_as_original(change.path, base, ours)
        if same is None and is_untouched(base, ours):
            return "same"
        if same is None and same_stamp(base, ours):
            return "doubt"
        return delta_of(base, ours, content=not same)

    def _may_hide_an_edit(self, base: Entry) -> bool:
        if self._weak is None:
            self._weak = has_weak_ctime(self._project)
        return self._weak and is_weak(base)

    def _same_as_original(self, path: bytes, base: Entry, ours: Entry, at: bytes | None = None) -> bool | None:
        """Return whether the content equals the original; None if the original is unknown."""
        if base.size != ours.size:
            return False
        kept = self._ground.open_original(path, base)
        if kept is None:
            return None
        opened = [kept]
        try:
            opened += [self._live.open(path if at is None else at)]
            return same_bytes(*opened)
        except FileHeld:
            if at is None:
                raise
            return False
        except OSError:
            if len(opened) > 1:
                raise
            return False
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _git_moved(self, git: bytes) -> bool:
        heads = (look_beneath(self._live.root, git + b"/" + name) for name in _GIT_HEADS)
        return any(entry is not None and entry.ctime > self._since for entry in heads)

    def _find_moved(self, change: Change) -> bytes:
        """Return the path to which the project has moved a file, or an empty path.

        The file is found by its inode, else by its content, among files created or renamed since the fork began. A
        backup beside the old path does not count as its new path.
        """
        base = change.base
        if base is None or base.kind != "file" or not base.size:
            return b""
        if self._recent is None:
            self._recent = _RecentFiles(self._live, self._since)
        backup = change.path + BACKUP
        moved = self._recent.by_inode.get((self._device_of(change.path), base.inode))
        if moved is not None and moved[0] != backup:
            return moved[0]
        alike = [
            path
            for path, entry in self._recent.by_size.get(base.size, ())
            if path != backup and self._same_as_original(change.path, base, entry, at=path)
        ]
        return alike[0] if len(alike) == 1 else b""  # with several candidates the new path is ambiguous

    def _device_of(self, path: bytes) -> int:
        """Return the device that a file at this path has or had. The base's device number may be from an earlier
        mount."""
        above = (self._live.look(at) for at in reversed((b"", *ancestors(path))))
        return next((entry.device for entry in above if entry is not None), 0)

    # --- merging ---

    def _combine(self, sides: FileSides) -> Combined:
        (_base_at, base), (ours_at, ours), (theirs_at, theirs) = sides[:3]
        assert theirs is not None
        part = self._partial.get(theirs_at)
        kinds = {entry.kind for entry in (base, ours, theirs) if entry is not None}
        if kinds != {"file"}:
            return Combined(None, reason=_LINK if kinds == {"symlink"} else BINARY)
        before_mode = base.mode if base is not None else None
        if ours is None:
            mode: int | None = theirs.mode if part is None else part.mode
        elif part is not None and before_mode is not None:  # the user selected the mode, whatever it permits
            mode = combine_modes(before_mode, ours.mode, part.mode)
        else:
            mode = merged_mode(before_mode, ours.mode, theirs.mode)
        if mode is None:
            return Combined(None, reason=_MODES)
        before, mine, yours = self.contents(sides)
        if before is None or mine is None or yours is None:
            return Combined(None, reason=_UNKNOWN if before is None else "is too large to be merged")
        content, reason = merge_texts(before, mine, yours)
        if reason:
            return Combined(None, reason=reason)
        if sides.path == ours_at and ours is not None and content == mine:
            if mode == ours.mode:
                return Combined(None)
            if ours.links == 1:
                return Combined(ours._replace(mode=mode))
        if part is None and sides.path == theirs_at and (content, mode) == (yours, theirs.mode):
            return Combined(theirs)
        return self.keep(sides.path, content, mode, like=ours_at if ours is not None else b"")

    def contents(self, sides: FileSides) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Return the contents of base, ours and theirs; None for a content that is too large or unknown."""
        (base_at, base), (ours_at, ours), (theirs_at, _theirs) = sides[:3]
        part = self._partial.get(theirs_at)
        before = self.original(base_at, base, theirs_at)
        mine = read_all(self._live, ours_at, LIMIT) if ours is not None else before
        yours = read_all(self._staged, theirs_at, LIMIT) if part is None else part.content
        return before, mine, yours

    def _answer_with_merge(self, sides: FileSides) -> ConflictAnswer | None:
        contents = self.contents(sides)
        ours, theirs = sides.ours[1], sides.theirs[1]
        if (
            None in contents
            or ours is None
            or theirs is None
            or any(why_not_mergeable(data or b"") for data in contents)
        ):
            return None
        base, mine, yours = (data or b"" for data in contents)
        merged = merge3(base, mine, yours)
        if merged.clean:
            return None
        mode = merged_mode(sides.base[1].mode if sides.base[1] is not None else None, ours.mode, theirs.mode)
        is_ruled = self._rules and mode is not None and sides.theirs[0] not in self.partial
        settled = settle(sides.path, merged) if is_ruled else None
        if settled is not None:
            content = settled.content
            self.ruled[sides.path] = settled.how
        elif self._markers:
            self.marked.append(sides.theirs[0])
            content = with_markers(merged, Labels(b"project", b"original", self._label), "diff3")
        else:
            return None
        return ConflictAnswer(
            "content",
            self.keep(sides.path, content, ours.mode if mode is None or settled is None else mode, like=sides.ours[0]),
        )

    def original(self, path: bytes, base: Entry | None, theirs_at: bytes) -> bytes | None:
        """Return the base's content; empty if the path was absent, None if the content is unknown or too large."""
        if base is None:
            return b""
        if path != theirs_at:  # renamed with unchanged content, so the fork's file has the base's content
            return read_all(self._staged, theirs_at, LIMIT)
        return self._ground.read_original(path, base, LIMIT)

    def keep(self, path: bytes, content: bytes, mode: int, *, like: bytes = b"") -> Combined:
        """Write new content for ``path``. ``like``: a project file whose user xattrs are copied."""
        name = self._new_name(path)
        place = self._merged + b"/" + name
        descriptor = disk.open_path(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as stream:
            stream.write(content)
            # Set the mode last: writing clears set-id bits, except for root (write(2), inode(7)).
            stream.flush()
            disk.set_mode_of(stream.fileno(), mode)
            if like:
                self._copy_xattrs(like, stream.fileno())
        return self._written(name)

    def keep_copy(self, path: bytes, source: Source, at: bytes, entry: Entry) -> Combined:
        """Keep a copy of a file, whatever its size, as ``keep`` does."""
        name = self._new_name(path)
        opened, root = source.open(at), open_root(self._merged)
        with Descriptor(root), Descriptor(opened):
            copy_open_file(opened, root, name, entry)
        return self._written(name)

    def _copy_xattrs(self, path: bytes, target: int) -> None:
        with Descriptor(self._live.open(path)) as source:
            for name, value in xattr.user(source).items():
                xattr.put(target, name, value)

    def _new_name(self, path: bytes) -> bytes:
        if not self._merged:
            os.makedirs(self._place, mode=0o700, exist_ok=True)
            self._merged = self._place + b"/" + os.urandom(6).hex().encode()
            os.mkdir(self._merged, 0o700)
        self._count += 1
        self.combined.append(path)
        return b"%d" % self._count

    def _written(self, name: bytes) -> Combined:
        with Descriptor(open_root(self._merged)) as root:
            return Combined(look(root, name), name.decode())


def merge_texts(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, str]:
    """Return the merged content and an empty reason, or the reason why the texts cannot be merged."""
    if base in (ours, theirs) or ours == theirs:
        return (theirs if base == ours else ours), ""
    reason = next((reason for data in (base, ours, theirs) if (reason := why_not_mergeable(data))), "")
    if reason:
        return b"", f"also changed in the project, and cannot be merged: {reason}"
    merged = merge3(base, ours, theirs)
    if merged.clean:
        return merged.content(), ""
    places = "in the same lines" if merged.conflicts == 1 else f"in the same lines, at {merged.conflicts} places"
    return b"", f"also changed in the project, {places}"


class _RecentFiles:
    """The project's files that were created, renamed or changed since ``since``."""

    def __init__(self, live: Source, since: int) -> None:
        self.by_inode: dict[tuple[int, int], tuple[bytes, Entry]] = {}
        self.by_size: dict[int, list[tuple[bytes, Entry]]] = {}
        for path, entry in listed(live).items():  # without directories that this process cannot read
            if entry.kind == "file" and entry.ctime > since and b".git" not in path.split(b"/"):
                self.by_inode[entry.device, entry.inode] = (path, entry)
                self.by_size.setdefault(entry.size, []).append((path, entry))


def _same_file(live: Source, staged: Source, path: bytes, theirs: Entry, ours: Entry) -> bool:
    if ours.size != theirs.size:
        return False
    try:
        return same_as(staged.open(path), live, path)
    except OSError:
        return False


def _is_same_tree(root: int, path: bytes, expected: Mapping[bytes, Entry]) -> bool:
    pending, seen = [path], 0
    while pending:
        current = pending.pop()
        try:
            with directory(root, current) as opened:
                listing = entries(opened)
        except PermissionError:
            return False
        for name, entry in listing.items():
            at = current + b"/" + name
            if not is_untouched(expected.get(at), entry):
                return False
            seen += 1
            if entry.kind == "directory":
                pending.append(at)
    return seen == len(expected)


def _moves_directories(project: bytes) -> bool:
    """Return the value for ``LiveProject.moves_directories``. fuse-overlayfs refuses such renames as the kernel's
    overlay does."""
    magic = filesystem_magic(project)
    if magic == FUSE:
        return filesystem(project, mounts()) != "fuse.fuse-overlayfs"
    return magic != OVERLAYFS
