"""From raw differences to a changeset: the fork's real changes, in all its layers.

1. A difference is a change only if content, kind, permissions, link target or user xattrs differ from the *base*. An
   overlay copies a whole file up when it is merely opened for writing or touched.
2. An original is trusted only if it did not change while the command ran, nor while it was read: its ctime must be
   certainly outside the window in which an edit since the command's start may lie (``core/clock.py:EditWindow``), and
   the same after reading. Otherwise ``original_known`` is False and apply treats it as a conflict. A trusted original
   is kept at once (``stage/originals/original.py``), because the live file may be replaced later. Deleted files are
   read only up to ``DELETED_FILES`` and ``DELETED_BYTES``: deleting a build directory does not read it.
3. A path that cannot be applied (a fifo, a socket, a device) becomes a remark; it is never dropped silently. If it
   replaces a project file, that file stays as it is.
4. The fork's entries are recorded in the form in which they land (``core/tree/landing_form.py``). Flags name links that
   lead outside the project and modes that land with fewer bits. Remarks name what else does not land, and what the
   project's file loses when it is replaced.

Only the writable layer is walked. Changes in the sealed layers below it come from the changeset recorded when they were
sealed.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections import Counter
from collections.abc import Iterable
from stat import S_ISGID

from mudroom.core.clock import EditWindow
from mudroom.core.system.closing import Descriptor
from mudroom.core.text.linediff import count_lines, is_binary, split_lines
from mudroom.core.tree.change import Change, Changeset, Remark, Verb
from mudroom.core.tree.entry import Entry, FileHeld, is_untouched
from mudroom.core.tree.flag import MADE, add_flags, flags_of, git_directory
from mudroom.core.tree.landing_form import (
    ACCESS,
    DEFAULT,
    LANDING_KINDS,
    LEADS_OUT,
    OWNER,
    REDUCED,
    STAYS,
    bits_left_out,
    blocking_flag,
    grants,
    landing_entry,
    leads_out,
    lost_in_words,
    not_applied,
    with_new_content,
    without_list,
)
from mudroom.core.tree.path import ancestors, parent, sort_key
from mudroom.core.tree.rename import pair_renames
from mudroom.core.tree.rollup import whole_directories
from mudroom.stage import disk, xattr
from mudroom.stage.beneath import LastDirectory, open_root
from mudroom.stage.form import attributes_at, flags_at, is_own_group
from mudroom.stage.originals.ground import Ground
from mudroom.stage.originals.later_flags import flag_later
from mudroom.stage.source import Source, read_all, same_as, walk
from mudroom.stage.stamp import is_outside
from mudroom.stage.view import NO_ATTRIBUTES, TOO_DEEP, Attributes, RawDifference, View, is_too_deep

# --- The project's form ---
# What the project's files have beside content and mode, for remarks about changes to them: a snapshot has none of it.
# ``core/tree/landing_form.py`` has the rules.


class ProjectForm:
    """The project's files. Owner: the caller, in one thread; close it."""

    def __init__(self, project: bytes) -> None:
        """``project``: its path; empty if it is not on this machine. It is opened when a file is asked about."""
        self._path = project
        self._last: LastDirectory | None = None

    def __enter__(self) -> ProjectForm:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._last is not None:
            self._last.close()
            os.close(self._last.root)
            self._last = None

    def _directory(self, path: bytes) -> int:
        """Return a descriptor for a directory, until the next call. Raise OSError as open(2) does."""
        if self._last is None:
            self._last = LastDirectory(open_root(self._path))
        return self._last.enter(path)

    def access_list(self, path: bytes, kind: str, base: Entry | None) -> bytes:
        """Return the access control list with which an entry lands: that of the file that it replaces, or the default
        list of its directory; empty if there is none, or if it cannot be read."""
        if not self._path:
            return b""
        if base is not None and base.kind == kind:
            return self._attribute(parent(path), path.rpartition(b"/")[2] or b".", ACCESS) or b""
        for above in (*reversed(list(ancestors(path))), b""):
            found = self._attribute(above, b".", DEFAULT)
            if found is not None:
                return found if grants(found) else b""
        return b""

    def has_list_of(self, path: bytes, content: bytes) -> bool:
        """Return whether the project's file at ``path`` has this access control list, whatever its mode."""
        above, _slash, name = path.rpartition(b"/")
        return bool(self._path) and grants(self._attribute(above, name, ACCESS) or b"") == grants(content)

    def _attribute(self, above: bytes, name: bytes, attribute: str) -> bytes | None:
        """Return an attribute of an entry in the directory ``above``; empty if it has none, None if the directory is
        missing."""
        try:
            return attributes_at(self._directory(above), name, lambda each: each == attribute).get(attribute, b"")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return b""

    def not_applied(self, path: bytes, kind: str, base: Entry | None, left: Attributes) -> list[str]:
        """Return remarks about the fork's attributes that do not land. ``base``: the project's entry of this kind."""
        words = []
        for name, value in left.items():
            if name == ACCESS:
                if grants(value) in ([], grants(self.access_list(path, kind, base))):
                    continue
            elif name == DEFAULT and base is not None:
                if self._attribute(path, b".", DEFAULT) == value:
                    continue
            elif name == DEFAULT and self.access_list(path, kind, None) == value:
                continue
            words.append(not_applied(name))
        return [*dict.fromkeys(words)]

    def lost(self, path: bytes, base: Entry, staged: Entry) -> list[str]:
        """Return remarks about what a project's file has that its replacement has not."""
        if not self._path:
            return []
        lost = []
        if disk.user() and base.uid != disk.user():
            lost.append(f"belongs to the user {base.uid} in the project; the new file will be yours")
        if base.gid != staged.gid and not is_own_group(base.gid):
            lost.append(f"has the group {base.gid} in the project, which is not yours; the new file will not have it")
        above, _slash, name = path.rpartition(b"/")
        try:
            at = self._directory(above)
            flags = flags_at(at, name)
            names = attributes_at(at, name, lambda each: not each.startswith("user."))
        except OSError:
            return lost  # it cannot be read: the merge reports it
        if blocking := blocking_flag(flags):
            lost.append(f"is {blocking} in the project (chattr): it cannot be replaced")
        return lost + [
            f"has {words} in the project, which the new file will not have"
            for words in lost_in_words(names, flags, is_root=not disk.user())
        ]


CLOSED = "is closed to its owner (mode {mode:04o}): it lands as {lands:04o}, so that you can read it"
MASKED = "is a secret that is shown empty: what was done to it is left out"
MASKED_BESIDE = (
    "is a secret: its change is that of a command to which it was shown; what others did to it, who saw it empty, is "
    "left out"
)
_STATE_LIMIT = 256 * 1024 * 1024
"""Bytes, for an index or packed refs."""
DELETED_FILES, DELETED_BYTES = 256, 8 * 1024 * 1024
"""How many deleted files per fork have their contents kept, and their total size. For others only the entry is known:
apply leaves them in place if their times have changed since."""
TEXT_LIMIT = 4 * 1024 * 1024
"""Bytes. Lines in a larger file are not counted."""


def collect(view: View, staged: Source, lower: Source, ground: Ground, window: EditWindow) -> Changeset:
    """Return every change in the fork. ``staged`` reads the fork's layers alone, ``lower`` the tree below the upper
    layer. ``window``: the last command's. Raise OSError if the fork cannot be read."""
    with ProjectForm(ground.settings_at) as project:
        collector = _Collector(staged, ground, window, project)
        for difference in view.differences(lower):
            collector.consider(difference)
        for path, entry in ground.shown_secrets():
            collector.consider_shown(path, entry)
        ground.originals.save()
        return collector.finish()


class _Collector:
    """Owner: ``collect``."""

    def __init__(self, staged: Source, ground: Ground, window: EditWindow, project: ProjectForm) -> None:
        self._staged, self._ground, self._window, self._project = staged, ground, window, project
        self._base, self._originals, self._frozen = ground.base, ground.originals, ground.frozen
        self._shown_paths = ground.shown_paths
        self._stacked = bool(ground.sealed.changes or ground.sealed.remarks)
        self._before = {change.path: change for change in ground.before.changes}
        self._changes = {c.path: _unpaired(c) for c in ground.sealed.changes if not ground.has_landed(c.path, c.staged)}
        self._remarks = {remark.path: remark for remark in ground.sealed.remarks if MADE not in remark.text}
        self._links: dict[tuple[int, int], bytes] = {}
        self._listed: dict[bytes, tuple[Entry, bytes]] = {}
        """The fork's entries at new paths, and their access control lists."""
        self._too_deep: set[bytes] = set()
        """New directories that hold others too deep to be staged: they are left out with all that is in them, because
        a directory lands by one rename, only if all that is in it was reviewed."""
        self._deepest = b""
        self._hidden: set[bytes] = set()
        self._was_hidden = frozenset(ground.before.hidden)
        self._by_shown = set[bytes]()
        """Shown secrets in the walked layer: a command that sees them is still running."""
        self._deleted = [change.base.size for change in ground.sealed.changes if change.staged is None and change.base]
        """Sizes of the deleted files whose contents are kept."""

    def consider(self, difference: RawDifference) -> None:
        path, lower, staged, hides, too_deep, left = difference
        if too_deep:
            self._notice_depth(path)
            return
        if hides or (_is_directory(lower) and not _is_directory(staged)):
            self._hidden.add(path)
        if hides:
            return
        self._changes.pop(path, None)
        self._remarks.pop(path, None)
        if self._ground.is_left_out(path, staged, self._staged):
            return
        if self._ground.is_masked(path, staged):
            self._remarks[path] = Remark(path, MASKED)
            return
        is_shown = path in self._shown_paths
        if is_shown:
            self._by_shown.add(path)
        self._judge(path, lower, staged, left, is_seen=is_shown)

    def _notice_depth(self, path: bytes) -> None:
        """Leave out the topmost new directory above a directory that lies too deep."""
        if path == self._deepest:
            return  # its siblings, of which there may be a million
        self._deepest = path
        end = path.find(b"/") % (len(path) + 1)
        while not self._is_new_directory(path[:end]):
            if end == len(path):
                top = path.partition(b"/")[0]
                self._remarks[top] = Remark(top, f"{TOO_DEEP}changes in them do not land")
                return
            end = path.find(b"/", end + 1) % (len(path) + 1)
        self._too_deep.add(path[:end])

    def _is_new_directory(self, path: bytes) -> bool:
        change = self._changes.get(path)
        return change is not None and change.base is None and _is_directory(change.staged)

    def _leave_out_deep(self) -> None:
        """Drop the changes in directories that are left out. One in a sealed layer may be left out no longer: then all
        its changes are found anew, because the layer's record does not have them."""
        for remark in self._ground.sealed.remarks:
            if not remark.text.startswith(TOO_DEEP) or remark.path in self._too_deep:
                continue
            found = [(remark.path, self._staged.look(remark.path)), *walk(self._staged, remark.path, is_too_deep)]
            if any(is_too_deep(path) for path, _entry in found):
                self._too_deep.add(remark.path)
                continue
            for path, entry in found:
                if entry is not None:
                    self.consider(RawDifference(path, self._base.look(path), entry))
        for top in self._too_deep:
            within = top + b"/"
            self._changes = {at: one for at, one in self._changes.items() if at != top and not at.startswith(within)}
            self._remarks = {at: one for at, one in self._remarks.items() if not at.startswith(within)}
            self._remarks[top] = Remark(top, f"{TOO_DEEP}it does not land")
        if self._too_deep:
            for path, change in self._changes.items():
                if change.link_to and change.link_to not in self._changes:
                    self._changes[path] = change._replace(link_to=b"")

    def consider_shown(self, path: bytes, staged: Entry | None) -> None:
        """Consider a secret that the fork stores apart from its layers. ``staged``: its entry, None if it is
        deleted."""
        if path in self._by_shown:
            return
        self._changes.pop(path, None)
        self._judge(path, self._base.look(path), staged, NO_ATTRIBUTES, is_seen=True)
        for above in ancestors(path) if staged is not None else ():
            if above in self._changes and self._changes[above].staged is None:
                del self._changes[above]  # removed by commands that saw the file empty: the directory stays
        if path in self._changes and path in self._remarks and self._remarks[path].text == MASKED:
            self._remarks[path] = Remark(path, MASKED_BESIDE)

    def _judge(
        self, path: bytes, lower: Entry | None, staged: Entry | None, left: Attributes, *, is_seen: bool
    ) -> None:
        if staged is not None and staged.kind not in LANDING_KINDS:
            theirs = self._base_of(path, lower)[0]
            if theirs is not None and theirs.kind == staged.kind:  # the project's own entry, copied up
                if theirs.mode != staged.mode:
                    self._remarks[path] = Remark(path, f"the mode of a {staged.kind} is not applied")
                return
            if theirs is not None and theirs.kind != "directory":
                self._remarks[path] = Remark(path, f"has become a {staged.kind}, {STAYS}")
                return  # landing only the deletion would match neither the fork nor the project
            why = disk.why_unnamed(path.rpartition(b"/")[2])
            told = f"cannot be staged on Windows: {why}" if why else f"a {staged.kind} cannot be applied"
            self._remarks[path] = Remark(path, told)
            staged = None
        if staged is None and not is_seen and self._is_unseen(path):
            return
        base, known = self._base_of(path, lower)
        found, staged = staged, self._as_it_lands(path, staged, base, left)
        if base is None and staged is None:
            if lower is not None and git_directory(path) is None:
                # Added and removed by the fork: its whiteout hides an entry that the user adds later, so no base.
                self._originals.keep(path, None)
            return
        if self._ground.has_landed(path, staged):
            return
        change = Change(path, _verb(base, staged), base, staged, original_known=known)
        if base is not None and staged is not None:
            change = self._compared(change, base, staged)
            if "content" in change.flags and base.kind == "file" and not self._same_xattrs(path):
                change = change._replace(flags=(*change.flags, "xattr"))
            if "content" in change.flags and staged.kind == "file":
                change = _with_new_content(change, base)
            if not change.flags:
                self._remark_left_out(path, found, base)
                self._remark_form(change, found, left)
                if base.kind != "file" and not self._hidden.isdisjoint(ancestors(path)):
                    self._originals.keep(path, base)  # so that a later deletion counts as the fork's
                return
        elif staged is None and base is not None and base.kind == "file":
            change = self._with_content_kept(change, base)
        self._remark_form(change, found, left)
        named = flags_of(path, is_directory=_is_directory(change.entry)) if path else ()
        form = self._flags_of_form(change, found)
        self._changes[path] = change._replace(flags=named + change.flags + form, link_to=self._link_of(path, staged))

    def _as_it_lands(self, path: bytes, staged: Entry | None, base: Entry | None, left: Attributes) -> Entry | None:
        if staged is not None and ACCESS in left and not self._project.access_list(path, staged.kind, base):
            staged = staged._replace(mode=without_list(staged.mode, left[ACCESS]))
        if staged is None or (base is not None and base.mode == staged.mode):
            return staged
        above = None
        if base is None and staged.kind == "directory" and staged.mode & S_ISGID:
            above = next((entry for at in reversed(list(ancestors(path))) if (entry := self._base.look(at))), None)
            above = above or self._base.look(b"")
        return landing_entry(staged, base, above)

    def _remark(self, path: bytes, text: str) -> None:
        before = self._remarks.get(path)
        self._remarks[path] = Remark(path, f"{before.text}; {text}" if before is not None else text)

    def _remark_left_out(self, path: bytes, found: Entry | None, base: Entry) -> None:
        if found is not None and found.mode & ~base.mode:
            bits = bits_left_out(found.mode, base.mode)
            self._remarks[path] = Remark(path, f"was given the mode {found.mode:04o}, which is not applied: {bits}")

    def _remark_form(self, change: Change, found: Entry | None, left: Attributes) -> None:
        """Say what the fork's entry has that does not land, and what the project's file has that is lost."""
        path, base, staged = change.path, change.base, change.staged
        if found is None or staged is None:
            return
        if base is None and ACCESS in left:
            self._listed[path] = found, left[ACCESS]
        if staged.mode & ~found.mode and staged.kind == "directory":
            self._remark(path, CLOSED.format(mode=found.mode, lands=staged.mode))
        replaced = base is not None and base.kind == staged.kind
        for text in self._project.not_applied(path, staged.kind, base if replaced else None, left):
            self._remark(path, text)
        if not replaced or base is None or base.kind != "file" or not change.flags:
            return
        is_rewritten = not {"content", "xattr"}.isdisjoint(change.flags)
        if base.links > 1:
            others = "the others keep the old content" if is_rewritten else "all of them get the mode"
            self._remark(path, f"has {base.links} hard links in the project; {others}")
        if not is_rewritten:
            return
        for text in self._project.lost(path, base, staged):
            self._remark(path, text)

    def _flags_of_form(self, change: Change, found: Entry | None) -> tuple[str, ...]:
        if change.staged is None or found is None:
            return ()
        owners = (disk.user(), change.base.uid) if change.base is not None else (disk.user(),)
        reduced = (REDUCED,) if found.mode & ~change.staged.mode else ()
        return (*reduced, OWNER) if change.staged.uid not in owners else reduced

    def _is_unseen(self, path: bytes) -> bool:
        """Return whether the user created the entry in a directory that the fork had already removed or replaced, so
        that no command in the fork has seen it."""
        if not self._was_hidden or self._was_hidden.isdisjoint((*ancestors(path), path)):
            return False
        is_known = path in self._before or path in self._ground.landed or path in self._originals
        return not is_known

    def _base_of(self, path: bytes, lower: Entry | None) -> tuple[Entry | None, bool]:
        """Return the project's entry before the fork changed it, and whether that is certain."""
        if self._ground.is_private(path):
            return self._base.look(path), True
        if path in self._ground.landed:
            return self._ground.landed[path].project, True
        original = self._originals.get(path)
        if original is not None:
            return original.entry, True
        before = self._before.get(path)
        if before is not None:
            return before.base, before.original_known
        base = self._base.look(path) if self._stacked or self._ground.is_replaced(path) else lower
        if self._frozen or base is None or base.kind == "directory":
            return base, True
        return base, is_outside(self._window, base.ctime)

    def _with_content_kept(self, change: Change, base: Entry) -> Change:
        """Keep a deleted file's content, within the limits."""
        if len(self._deleted) >= DELETED_FILES or sum(self._deleted) + base.size > DELETED_BYTES:
            return change
        self._deleted.append(base.size)
        return self._keep(change, base)

    def _compared(self, change: Change, base: Entry, staged: Entry) -> Change:
        """Return the change with flags for each difference, and line counts. No flags: base and staged are equal."""
        if base.kind != staged.kind:
            if base.kind == "file":
                change = self._keep(change, base)
            return change._replace(flags=("type",))
        flags = () if base.mode == staged.mode else ("mode",)
        if base.kind == "symlink":
            flags = ("content",) if base.target != staged.target else flags
        elif base.kind == "file":
            return self._compared_files(change._replace(flags=flags), base, staged)
        return change._replace(flags=flags)

    def _compared_files(self, change: Change, base: Entry, staged: Entry) -> Change:
        path, flags = change.path, change.flags
        if max(base.size, staged.size) > TEXT_LIMIT:
            change = self._keep(change, base)
            if base.size != staged.size or not self._same_content(path, base):
                return change._replace(flags=(*flags, "content"), binary=True)
        else:
            old, new = self._ground.read_original(path, base, TEXT_LIMIT), read_all(self._staged, path, TEXT_LIMIT)
            if change.original_known and not self._is_still(path) and old is not None:
                if not self._has_original(path) and not self._is_as_read(path, base):
                    return change._replace(original_known=False, flags=(*flags, "content"), binary=True)
                self._originals.keep(path, base, old)
            if old is None or new is None or is_binary(old) or is_binary(new):
                if old is None or old != new:
                    return change._replace(flags=(*flags, "content"), binary=True)
            elif old != new:
                counts = count_lines(old, new)
                return change._replace(
                    flags=(*flags, "content"), lines_added=counts.added, lines_removed=counts.removed
                )
        if not flags and self._same_xattrs(path):
            return change._replace(flags=())
        return change._replace(flags=flags or ("xattr",))

    def _keep(self, change: Change, base: Entry) -> Change:
        """Keep the original content. Return the change; its original counts as unknown if it is being edited."""
        if self._is_still(change.path) or not change.original_known or self._has_original(change.path):
            return change
        if change.path in self._ground.landed:
            return change  # the project may have changed since the apply; its present content is no original then
        try:
            opened = self._base.open(change.path)
        except OSError:
            return change  # just deleted, or unreadable: its content cannot be kept, and the merge will report that
        with Descriptor(opened):
            if not self._is_as_read(change.path, base):
                return change._replace(original_known=False)
            self._originals.keep_file(change.path, base, opened)
        return change

    def _has_original(self, path: bytes) -> bool:
        """Return whether the original content is already kept, so that the project's present content does not
        matter."""
        landed = self._ground.landed.get(path)
        return bool(landed.original) if landed is not None else path in self._originals

    def _is_as_read(self, path: bytes, base: Entry) -> bool:
        return is_untouched(base, self._base.look(path))

    def _is_still(self, path: bytes) -> bool:
        """Return whether the base cannot change there, so that no original has to be kept."""
        return self._frozen or self._ground.is_private(path)

    def _same_content(self, path: bytes, base: Entry) -> bool:
        old = self._ground.open_original(path, base)
        return old is not None and same_as(old, self._staged, path)

    def _same_xattrs(self, path: bytes) -> bool:
        before, after = (xattr.of_file(source, path) for source in (self._base, self._staged))
        return before is None or after is None or before == after

    def _is_in_base(self, path: bytes) -> bool:
        return self._base.look(path) is not None

    def _link_of(self, path: bytes, staged: Entry | None) -> bytes:
        if staged is None or staged.kind != "file" or staged.links < 2:
            return b""
        first = self._links.setdefault((staged.device, staged.inode), path)
        return b"" if first == path else first

    def _forget_unchanged_repositories(self) -> None:
        """Drop changes in repositories that are unchanged except for caches, such as a refreshed index."""
        units: dict[bytes, list[Change]] = {}
        for path, change in self._changes.items():
            unit = git_directory(path)
            if unit is not None:
                units.setdefault(unit, []).append(change)
        if not units:
            return
        from mudroom.core.git.repository_state import is_unchanged

        for unit, changes in units.items():
            if any(change.path == unit and not _is_directory(change.staged) for change in changes):
                continue  # the repository itself is gone
            if not self._is_in_base(unit + b"/HEAD"):
                continue
            # equal to its original, or to the project's present version: there is no change to apply
            if any(is_unchanged(unit, changes, side, self._read_staged) for side in (self._read_base, self._read_live)):
                for change in changes:
                    del self._changes[change.path]

    def _forget_removed_directories(self) -> None:
        """Drop directories that the user has removed if the fork has only the project's own entries in them."""
        added = {path for path, c in self._changes.items() if c.verb == "added" and _is_directory(c.staged)}
        found = added & {above for path in self._ground.project_paths() for above in ancestors(path)} if added else ()
        if not found:
            return
        inside = Counter(map(parent, self._changes))
        for path in sorted(found, key=len, reverse=True):
            if not inside[path]:
                del self._changes[path]
                inside[parent(path)] -= 1

    def _read_live(self, path: bytes) -> bytes | None:
        try:
            return read_all(self._base, path, _STATE_LIMIT)
        except OSError:
            return None

    def _read_base(self, path: bytes) -> bytes | None:
        change = self._changes.get(path)
        if change is None:
            return self._read_live(path)
        return self._ground.read_original(path, change.base, _STATE_LIMIT) if change.base is not None else None

    def _read_staged(self, path: bytes) -> bytes | None:
        change = self._changes.get(path)
        if change is None:
            return self._read_base(path)
        try:
            return read_all(self._staged, path, _STATE_LIMIT) if change.staged is not None else None
        except OSError:
            return None

    def finish(self) -> Changeset:
        self._leave_out_deep()
        self._forget_unchanged_repositories()
        self._forget_removed_directories()
        changes = sorted(self._changes.values(), key=lambda change: sort_key(change.path))
        made: list[Remark] = []
        if changes:
            from mudroom.stage.originals.repository_flags import flag_repositories

            changes, made = flag_repositories(changes, self._staged, self._base, self._ground.settings_at)
        changes = [self._with_list(change) for change in pair_renames(changes, self._digest)]
        rolled = whole_directories(changes)
        counted = [self._with_lines(change, rolled) for change in changes]
        if any(_is_link(change) for change in counted):
            counted = self._with_links(counted)
        if counted:
            counted = flag_later(counted, self._staged, self._base, self._ground.project)
        hidden = (path for path in self._hidden if self._hidden.isdisjoint(ancestors(path)))
        return Changeset(tuple(counted), tuple(sorted((*self._remarks.values(), *made))), tuple(sorted(hidden)))

    def _with_list(self, change: Change) -> Change:
        """Return the change; a renamed file keeps its access control list, and so the mode that shows its mask."""
        found, content = self._listed.get(change.path, (None, b""))
        if found is None or not change.source or not self._project.has_list_of(change.source, content):
            return change
        staged = landing_entry(found, None)
        texts = self._remarks.pop(change.path, Remark(b"", "")).text.split("; ")
        for text in texts:
            if text not in ("", not_applied(ACCESS)):
                self._remark(change.path, text)
        flags = tuple(flag for flag in change.flags if flag != REDUCED or found.mode & ~staged.mode)
        return change._replace(staged=staged, flags=flags)

    def _with_links(self, changes: list[Change]) -> list[Change]:
        """Flag the links that lead outside the project. Recomputed at each collection, because links may lead to other
        links."""
        staged = {change.path: change.staged for change in changes}
        known: dict[bytes, Entry | None] = {}

        def look(path: bytes) -> Entry | None:
            if path in staged:
                return staged[path]
            if path not in known:
                known[path] = self._base.look(path)
            return known[path]

        flagged = []
        for change in changes:
            if _is_link(change):
                flags = tuple(flag for flag in change.flags if flag != LEADS_OUT)
                if leads_out(change.path, change.entry.target, look, self._ground.project):
                    flags = add_flags(flags, LEADS_OUT)
                change = change._replace(flags=flags)
            flagged.append(change)
        return flagged

    def _digest(self, change: Change) -> bytes:
        hasher = blake2b(digest_size=20)
        try:
            descriptor = (self._staged if change.staged is not None else self._base).open(change.path)
        except OSError:
            return os.fsencode(f"unreadable {change.path!r}")
        try:
            while block := disk.read(descriptor, 1 << 20):
                hasher.update(block)
        except FileHeld:
            return os.fsencode(f"unreadable {change.path!r}")
        finally:
            os.close(descriptor)
        return hasher.digest()

    def _with_lines(self, change: Change, rolled: Iterable[bytes]) -> Change:
        """Count the lines in an added or deleted file, unless its whole directory was added or deleted."""
        if change.verb not in ("added", "deleted") or change.entry.kind != "file" or change.moved_to:
            return change
        if any(change.path.startswith(top + b"/") for top in rolled):
            return change
        source = self._staged if change.staged is not None else self._base
        try:
            data = read_all(source, change.path, TEXT_LIMIT)
        except OSError:
            data = None
        if data is None or is_binary(data):
            return change._replace(binary=True, lines_added=0, lines_removed=0)
        lines = len(split_lines(data))
        added = change.staged is not None
        return change._replace(lines_added=lines * added, lines_removed=lines * (not added))


def _with_new_content(change: Change, base: Entry) -> Change:
    assert change.staged is not None
    staged = with_new_content(change.staged)
    if staged.mode == base.mode or "mode" in change.flags:
        return change._replace(staged=staged)
    return change._replace(staged=staged, flags=("mode", *change.flags))


def _is_link(change: Change) -> bool:
    return change.staged is not None and change.staged.kind == "symlink"


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "directory"


def _unpaired(change: Change) -> Change:
    """Return the change as it was before rename detection, which is repeated on all changes."""
    verb: Verb = "added" if change.verb == "renamed" else change.verb
    return change._replace(verb=verb, source=b"", moved_to=b"")


def _verb(base: Entry | None, staged: Entry | None) -> Verb:
    return "added" if base is None else "deleted" if staged is None else "modified"
