"""Writer of trees into a tar archive (POSIX.1-2001, pax): layers with their whiteouts and opaque marks, snapshots.

Names, link targets and the values of xattrs are bytes; pax headers carry them as UTF-8 with ``hdrcharset=BINARY``. A
whiteout is a character device 0:0, and an xattr is ``SCHILY.xattr.NAME``, both as GNU tar and others write them.
"""

from __future__ import annotations

import io
import os
import tarfile
from typing import IO

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import show
from mudroom.stage import own, xattr
from mudroom.stage.beneath import directory, entries, look, open_root
from mudroom.stage.layers.layer import OPAQUE, WHITEOUT, is_whiteout, loosened, open_staged

XATTR = "SCHILY.xattr."
_SETID = 0o6000


class Packer:
    """Writes to ``stream``, which its owner closes. ``remarks``: files that were left out, with the reason."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._tar = tarfile.open(  # noqa: SIM115 - closed by close()
            fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
        )
        self.remarks: list[str] = []

    def close(self) -> None:
        """Write the end of the archive."""
        self._tar.close()

    def data(self, name: bytes, content: bytes) -> None:
        info = _info(name, 0o600, 0)
        info.size = len(content)
        self._tar.addfile(info, io.BytesIO(content))

    def file(self, name: bytes, path: bytes) -> None:
        """Add a file of the vault, if it exists."""
        try:
            with os.fdopen(own.open_regular(path), "rb") as stream:
                info = _info(name, 0o600, 0)
                info.size = os.fstat(stream.fileno()).st_size
                self._tar.addfile(info, stream)
        except FileNotFoundError:
            return

    def tree(self, name: bytes, place: bytes) -> None:
        """Add a whole directory. A directory precedes its entries; the first name of a file precedes its other
        links.
        """
        root = open_root(place)
        links: dict[tuple[int, int], bytes] = {}
        try:
            with loosened(root) as enter:
                top = look(root, b".")
                assert top is not None
                self._directory(name, root, top)
                pending = [b""]
                while pending:
                    path = pending.pop()
                    with directory(root, path) as opened:
                        listing = entries(opened)
                    for below, entry in sorted(listing.items()):
                        at = path + b"/" + below if path else below
                        if entry.kind == "directory":
                            enter(at, entry)
                            with directory(root, at) as opened:
                                self._directory(name + b"/" + at, opened, entry)
                            pending.append(at)
                        else:
                            self._other(name, root, at, entry, links)
        finally:
            os.close(root)

    def _directory(self, name: bytes, opened: int, entry: Entry) -> None:
        info = _info(name, entry.mode, entry.mtime)
        info.type = tarfile.DIRTYPE
        self._add_xattrs(info, opened, name, OPAQUE)
        self._tar.addfile(info)

    def _other(self, tree: bytes, root: int, at: bytes, entry: Entry, links: dict[tuple[int, int], bytes]) -> None:
        name = tree + b"/" + at
        info = _info(name, entry.mode & ~_SETID, entry.mtime)
        if entry.mode & _SETID:
            self.remarks.append(f"{show(at)}: its set-id bits are left out")
        if _is_whiteout(root, at, entry):
            info.type, info.devmajor, info.devminor = tarfile.CHRTYPE, 0, 0
            self._tar.addfile(info)
        elif entry.kind == "file":
            first = links.setdefault((entry.device, entry.inode), at)
            if entry.links > 1 and first != at:
                info.type, info.linkname = tarfile.LNKTYPE, _text(tree + b"/" + first)
                self._tar.addfile(info)
            else:
                self._file(info, root, at, entry)
        elif entry.kind == "symlink":
            info.type, info.linkname = tarfile.SYMTYPE, _text(entry.target)
            self._tar.addfile(info)
        elif entry.kind == "fifo":
            info.type = tarfile.FIFOTYPE
            self._tar.addfile(info)
        else:
            self.remarks.append(f"{show(at)}: a {entry.kind} is left out")

    def _file(self, info: tarfile.TarInfo, root: int, at: bytes, entry: Entry) -> None:
        with os.fdopen(open_staged(root, at), "rb") as stream:
            self._add_xattrs(info, stream.fileno(), at, WHITEOUT)
            info.size = entry.size
            self._tar.addfile(info, stream)

    def _add_xattrs(self, info: tarfile.TarInfo, opened: int, shown: bytes, mark: str) -> None:
        """Add the user's xattrs, and of the overlay's only ``mark``. The overlay's other xattrs are bookkeeping."""
        headers = dict(info.pax_headers)
        for name in _user_xattrs(opened):
            value = xattr.get(opened, name)
            if name.startswith("user.overlay.") and (name != mark or value == b"x"):
                continue
            if "=" in name:
                self.remarks.append(f"{show(shown)}: its attribute {show(os.fsencode(name))} is left out")
                continue
            headers[XATTR + name] = _text(value)
        info.pax_headers = headers


def _user_xattrs(opened: int) -> list[str]:
    try:
        return [name for name in xattr.names(opened) if name.startswith("user.")]
    except OSError:
        return []  # the file system has no xattrs


def _info(name: bytes, mode: int, mtime: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(_text(name))
    info.mode, info.mtime = mode, 0
    if mtime > 0:
        info.pax_headers = {"mtime": f"{mtime // 10**9}.{mtime % 10**9:09d}"}
    return info


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _is_whiteout(root: int, path: bytes, entry: Entry) -> bool:
    """Whether the entry is a whiteout in either form; an archive uses only one."""
    if entry.kind != "device":
        return is_whiteout(root, path, entry)
    above, _slash, name = path.rpartition(b"/")
    with directory(root, above) as opened:
        return os.stat(name, dir_fd=opened, follow_symlinks=False).st_rdev == os.makedev(0, 0)
