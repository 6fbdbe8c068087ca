"""The copy view: a staged copy of base and layers, for systems without a usable kernel overlay.

    copy/work/       the command's working directory
    copy/manifest    for every entry in it: the entry below, and the stamp of the copy (MessagePack)

The copy is made once per fork and needs as much space as the project. A file whose copy still has its stamp is
unchanged. The base of such a fork is always a snapshot (``stage/originals/snapshot.py``), so the originals cannot
change either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from mudroom.core.confinement.spec import Copy
from mudroom.core.system.closing import Closing, Descriptor
from mudroom.core.tree.entry import Entry, in_copy, is_untouched, same_shape, same_stamp
from mudroom.core.tree.path import parent, show, sort_key
from mudroom.errors import MudroomError
from mudroom.stage import disk, safe_open, xattr
from mudroom.stage.beneath import directory, look, open_beneath, open_layer, open_root
from mudroom.stage.copy import clone, listed
from mudroom.stage.form import left_at
from mudroom.stage.layers.closed_directory import is_same_root, look_through, through
from mudroom.stage.layers.layer import LayerWriter, open_staged, remove_tree
from mudroom.stage.source import OpenSource, Source
from mudroom.stage.stamp import as_recorded, file_clock
from mudroom.stage.view import NO_ATTRIBUTES, Attributes, RawDifference

Manifest = dict[bytes, tuple[Entry, Entry]]
"""Per path: the original's entry and its copy's."""


class _Work(Closing):
    """The copy, readable even where a command has closed directories or files."""

    def __init__(self, path: bytes) -> None:
        self._directory = OpenSource(path)

    def close(self) -> None:
        self._directory.close()

    def look(self, path: bytes) -> Entry | None:
        return look_through(self._directory.root, path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        return through(self._directory.root, path, lambda _root, at: self._directory.names(at))

    def open(self, path: bytes) -> int:
        return open_staged(self._directory.root, path)

    def left(self, path: bytes) -> Attributes:
        """Return the attributes that do not land."""
        above, _slash, name = path.rpartition(b"/")

        def read(root: int, above: bytes) -> Attributes:
            with directory(root, above) as opened:
                return left_at(opened, name)

        return through(self._directory.root, above, read) if path else NO_ATTRIBUTES


class CopyView:
    """Owner: the caller, in one thread."""

    kind = "copy"

    def __init__(
        self,
        place: bytes,
        lower: Source,
        progress: Callable[[int, int], None] | None = None,
        *,
        work: bytes = b"",
        owner: tuple[int, int] | None = None,
        identity: tuple[int, int] | None = None,
    ) -> None:
        """``place``: the fork's ``copy`` directory. ``lower``: base and sealed layers. ``work``: the copy's directory,
        if not in ``place``. ``owner``: uid and gid of the user that works in it, if not the caller's; requires root.
        ``identity``: device and inode of ``work``, if it is not in the vault."""
        self._identity = identity
        self._place, self._lower, self._progress = place, lower, progress
        self._owner = owner or (disk.user(), disk.group())
        self._work = work or place + b"/work"
        self._manifest: Manifest | None = None

    @property
    def staged(self) -> tuple[bytes, ...]:
        return (self._work,)

    def prepare(self) -> None:
        if not os.path.exists(self._place + b"/manifest"):
            self._make()
        if not disk.user() and (self._owner[0] or os.lstat(self._work).st_uid):
            self._hand_over()

    def _make(self) -> None:
        if os.path.isdir(self._work):
            remove_tree(self._work)  # an incomplete copy: it has no manifest yet
        os.makedirs(self._work, mode=0o700)
        os.makedirs(self._place, mode=0o700, exist_ok=True)
        items = listed(self._lower, merged=True)
        with Descriptor(open_root(self._work)) as target:
            copied = clone(self._lower, target, items, self._progress)
            top = self._lower.look(b"")
            disk.set_mode(target, b".", top.mode if top is not None else 0o755)
            disk.sync_filesystem(target)  # a file that a power loss takes would be one that a command has removed
        self._note({path: items[path] for path in items if path in copied})

    def _note(self, below: dict[bytes, Entry]) -> None:
        with _Work(self._work) as work:
            copies = listed(work)
            top = work.look(b"")
        base = self._lower.look(b"")
        assert top is not None and base is not None
        manifest = {path: (entry, copies[path]) for path, entry in below.items() if path in copies}
        self._save({b"": (base, top), **manifest})

    def _hand_over(self) -> None:
        """Change the whole copy's owner. Unchanged files stay known as unchanged, although chown changes their stamps.
        After an interruption more files than necessary are compared; no change is lost."""
        with _Work(self._work) as work:
            listing = listed(work)
        others = [path for path, entry in listing.items() if (entry.uid, entry.gid) != self._owner]
        if not others and os.lstat(self._work).st_uid == self._owner[0]:
            return
        same = {
            path
            for path, (_below, copied) in self.manifest.items()
            if not path or (is_as_copied(copied, listing.get(path)) and same_shape(copied, listing.get(path)))
        }
        with Descriptor(open_root(self._work)) as root:
            for path in others:
                self._give(root, path, listing[path])
            disk.set_owner(root, ".", *self._owner)
            with _Work(self._work) as work:
                after = listed(work)
            top = look(root, b".")
        assert top is not None
        entries = {b"": top, **after}
        manifest = self.manifest
        self._save({path: (below, entries[path] if path in same else old) for path, (below, old) in manifest.items()})

    def _give(self, root: int, path: bytes, entry: Entry) -> None:
        name = path.rpartition(b"/")[2]
        with directory(root, parent(path)) as above:
            disk.set_owner(above, name, *self._owner)
        if entry.kind == "file" and entry.mode & 0o6000:  # chown(2) clears these bits
            with Descriptor(open_beneath(root, path, os.O_RDONLY | disk.O_NONBLOCK)) as opened:
                disk.set_mode_of(opened, entry.mode)

    def _save(self, manifest: Manifest) -> None:
        import msgspec

        now = file_clock()
        manifest = {path: (below, _as_copied(copied, now)) for path, (below, copied) in manifest.items()}
        safe_open.replace(self._place + b"/manifest", msgspec.msgpack.encode(manifest))
        self._manifest = manifest

    def renew(self, base: Callable[[bytes, Entry], Entry]) -> None:
        """Renew the stamps after the fork or the project was copied. ``base``: returns the present entry below."""
        with _Work(self._work) as work:
            copies = {b"": work.look(b""), **listed(work)}
        rows = self.manifest.items()
        self._save(
            {path: (base(path, below), in_copy(copied, copies.get(path)) or copied) for path, (below, copied) in rows}
        )

    @property
    def manifest(self) -> Manifest:
        if self._manifest is None:
            import msgspec

            path = self._place + b"/manifest"
            try:
                self._manifest = msgspec.msgpack.decode(safe_open.read(path), type=Manifest)
            except msgspec.DecodeError as error:
                hint = f"the files are in {show(self._work)}; `mudroom discard` drops the fork"
                raise MudroomError(f"{show(path)} is damaged: {error}", hint) from error
        return self._manifest

    def mount(self) -> Copy:
        return Copy(self._work, self._identity)

    def differences(self, lower: Source) -> Iterator[RawDifference]:
        """Yield every path that was touched in the copy."""
        del lower  # the manifest has the entries from when the copy was made
        deep = set[bytes]()
        with _Work(self._work) as work:
            staged = listed(work, deep=deep)
            top = work.look(b"")
            assert top is not None
            for path, entry in {b"": top, **staged}.items():
                below, copied = self.manifest.get(path, (None, None))
                if not path and below is not None and below.mode != entry.mode and is_same_root(below, entry):
                    continue
                is_same = below is not None and is_as_copied(copied, entry) and same_shape(copied, entry)
                left = NO_ATTRIBUTES if is_same and not _may_have_lists(copied, entry) else work.left(path)
                if left or not is_same:
                    yield RawDifference(path, below, entry, left=left)
        for path, (below, _copied) in self.manifest.items():
            if path and path not in staged:
                yield RawDifference(path, below, None)
        yield from (RawDifference(path, None, None, too_deep=True) for path in sorted(deep))

    def bring_into(self, target: bytes, lower: Source) -> None:
        """Write the copy's changes into a layer above ``lower``."""
        source, root = _Work(self._work), open_layer(target)
        links: dict[tuple[int, int], bytes] = {}
        try:
            writer = LayerWriter(root, lower)
            for difference in sorted(self.differences(self._lower), key=lambda row: sort_key(row.path)):
                _write(writer, source, difference, links)
                if difference.left and difference.staged is not None and difference.staged.kind == "directory":
                    with directory(root, difference.path) as opened:
                        xattr.give_lists(opened, difference.left)
            writer.finish()
            top = source.look(b"")
            assert top is not None
            disk.set_mode(root, b".", top.mode)
        finally:
            source.close()
            os.close(root)

    def rebase(self, lower: Source) -> None:
        """After ``bring_into`` with a layer of the fork: take the copy's present state as the tree below."""
        self._lower = lower
        self._note(listed(lower, merged=True))


def _write(writer: LayerWriter, source: _Work, difference: RawDifference, links: dict[tuple[int, int], bytes]) -> None:
    """Write one difference. ``links``: files with several names that are already written, by inode."""
    path, below, entry, _hides, too_deep, _left = difference
    if not path or too_deep or (entry is not None and entry.kind in ("socket", "device")):
        return
    if entry is None:
        above = source.look(parent(path))
        if below is not None and above is not None and above.kind == "directory":  # else it goes with its directory
            writer.whiteout(path)
    elif entry.kind == "directory":
        writer.directory(path, entry.mode)
    elif entry.kind == "symlink":
        writer.symlink(path, entry.target)
    elif entry.kind == "fifo":
        writer.fifo(path, entry.mode)
    elif entry.links > 1 and (entry.device, entry.inode) in links:
        writer.link(path, links[entry.device, entry.inode])
    else:
        links[entry.device, entry.inode] = path
        with Descriptor(source.open(path)) as opened:
            writer.file(path, opened, mode=entry.mode, mtime=entry.mtime, xattrs=True)


def is_as_copied(copied: Entry | None, entry: Entry | None) -> bool:
    """Return whether a file in the copy is unchanged. The ctime does not count for a file that its owner may not read:
    mudroom's own reading changes its mode for a moment."""
    if copied is not None and copied.kind == "file" and not copied.mode & 0o400:
        return same_stamp(copied, entry)
    return is_untouched(copied, entry)


def _may_have_lists(copied: Entry | None, entry: Entry) -> bool:
    """Return whether a directory may have other attributes than its copy had. The ctime of one that is closed to its
    owner does not count, as in ``is_as_copied``: then its mode would have changed, too."""
    is_open = entry.kind == "directory" and entry.mode & 0o700 == 0o700
    return is_open and (copied is None or copied.ctime != entry.ctime)


def _as_copied(entry: Entry, now: int) -> Entry:
    """Return a copied file's entry as it is recorded. No process works in the copy within the tick in which it was
    made, unless its file system's clock is coarse."""
    return entry if entry.ctime % 1_000_000_000 else as_recorded(entry, now)
