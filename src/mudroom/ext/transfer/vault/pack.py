"""Write trees into a tar archive (POSIX.1-2001, pax): layers with their whiteouts and opaque marks, and snapshots.

Names, link targets and xattr values are bytes; pax headers carry them as UTF-8 with ``hdrcharset=BINARY``. A whiteout
is a character device 0:0, and an xattr is ``SCHILY.xattr.NAME``, both as GNU tar and others write them. In such a name
``%``, ``=`` and bytes that are not printable ASCII are ``%XX`` (GNU tar, xheader.c, for the first two).

``unpack.py`` accepts every archive that is written here. An entry that never lands (``landing_form.py``) is left out;
in a layer a whiteout takes its place, so that the entry below it stays hidden.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Callable, Collection

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.landing_form import LANDING_KINDS, bits_left_out
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import disk, safe_open, xattr
from mudroom.stage.beneath import directory, entries, look, open_layer, open_root
from mudroom.stage.layers.layer import OPAQUE, WHITEOUT, is_whiteout, loosened, open_staged
from mudroom.typing import IO

XATTR = "SCHILY.xattr."
FILE_MODE, DIRECTORY_MODE = 0o777, 0o3777
"""Mode bits in an archive. A directory's set-group-ID and sticky bits land if the project's directory has them."""
HEADER_LIMIT = 1 << 20
"""Maximum bytes in an entry's header, and in a reader's read."""
ENTRY_LIMIT = 2_000_000
_PLAIN = frozenset(range(0x21, 0x7F)) - frozenset(b"%=")


class Packer:
    """Writes to ``stream``, which its owner closes.

    ``remarks``: files that were left out, with the reason. ``staying``: paths at which the project's own files stay,
    whatever the fork has there. ``limit``: bytes in all contents together, where holes count, too; None: no limit.
    """

    def __init__(self, stream: IO[bytes], staying: Collection[bytes] = (), limit: int | None = None) -> None:
        self._staying, self._left = staying, limit
        self._tar = tarfile.open(  # noqa: SIM115 - closed by close()
            fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
        )
        self.remarks: list[str] = []
        self._count = 0

    def _add(self, info: tarfile.TarInfo, stream: IO[bytes] | None = None) -> None:
        """Add an entry. Raise MudroomError if no import would accept it."""
        self._count += 1
        if self._count > ENTRY_LIMIT:
            raise MudroomError(f"the fork has more than {ENTRY_LIMIT:,} entries, so it cannot be exported", _KEEP)
        if self._left is not None:
            self._left -= info.size
            if self._left < 0:
                raise MudroomError(f"the fork is too large to be exported: {show(os.fsencode(info.name))}", _KEEP)
        texts = (info.name, info.linkname, *info.pax_headers, *info.pax_headers.values())
        if sum(len(os.fsencode(text)) + 32 for text in texts) > HEADER_LIMIT:
            raise MudroomError(f"the attributes of {show(os.fsencode(info.name))} are too large for an archive", _KEEP)
        self._tar.addfile(info, stream)

    def close(self) -> None:
        """Write the archive's end."""
        self._tar.close()

    def data(self, name: bytes, content: bytes) -> None:
        info = _info(name, 0o600, 0)
        info.size = len(content)
        self._add(info, io.BytesIO(content))

    def file(self, name: bytes, path: bytes) -> None:
        """Add a file from the vault, if it exists."""
        try:
            with os.fdopen(safe_open.open_regular(path), "rb") as stream:
                info = _info(name, 0o600, 0)
                info.size = os.fstat(stream.fileno()).st_size
                self._add(info, stream)
        except FileNotFoundError:
            return

    def tree(
        self,
        name: bytes,
        place: bytes,
        *,
        is_layer: bool = True,
        is_secret: Callable[[bytes], bool] = lambda _path: False,
    ) -> None:
        """Add a whole directory. ``is_layer``: it may have whiteouts. ``is_secret``: whether an entry is left out.

        A directory precedes its entries; a file's first name precedes its other links.
        """
        root = open_layer(place) if is_layer else open_root(place)
        links: dict[tuple[int, int], bytes] = {}
        with Descriptor(root), loosened(root) as enter:
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
                    if is_secret(at):
                        continue
                    if entry.kind == "directory":
                        enter(at, entry)
                        with directory(root, at) as opened:
                            self._directory(name + b"/" + at, opened, entry)
                        pending.append(at)
                    else:
                        self._other(name, root, at, entry, links, is_layer=is_layer)

    def _directory(self, name: bytes, opened: int, entry: Entry) -> None:
        info = _info(name, entry.mode & DIRECTORY_MODE, entry.mtime)
        self._remark_bits(name, entry.mode, info.mode)
        info.type = tarfile.DIRTYPE
        self._add_xattrs(info, opened, OPAQUE)
        self._add(info)

    def _remark_bits(self, shown: bytes, before: int, after: int) -> None:
        if bits := bits_left_out(before, after):
            self.remarks.append(f"{show(shown)}: of its mode {before:04o} is left out: {bits}")

    def _other(
        self,
        tree: bytes,
        root: int,
        at: bytes,
        entry: Entry,
        links: dict[tuple[int, int], bytes],
        *,
        is_layer: bool,
    ) -> None:
        name = tree + b"/" + at
        info = _info(name, entry.mode & FILE_MODE, entry.mtime)
        is_gone = is_layer and _is_whiteout(root, at, entry)
        if not is_gone and entry.kind not in LANDING_KINDS:
            self.remarks.append(f"{show(at)}: a {entry.kind} is left out")
            is_gone = at not in self._staying
            if not is_gone:
                return  # the project's own file is there, and shows through
        if is_gone:
            if is_layer:
                info.type, info.devmajor, info.devminor = tarfile.CHRTYPE, 0, 0
                self._add(info)
            return
        if entry.kind == "file":
            self._remark_bits(at, entry.mode, info.mode)
        if entry.kind == "symlink":
            info.type, info.linkname = tarfile.SYMTYPE, _text(entry.target)
            self._add(info)
        else:
            first = links.setdefault((entry.device, entry.inode), at)
            if entry.links > 1 and first != at:
                info.type, info.linkname = tarfile.LNKTYPE, _text(tree + b"/" + first)
                self._add(info)
            else:
                self._file(info, root, at, entry)

    def _file(self, info: tarfile.TarInfo, root: int, at: bytes, entry: Entry) -> None:
        with os.fdopen(open_staged(root, at), "rb") as stream:
            self._add_xattrs(info, stream.fileno(), WHITEOUT)
            info.size = entry.size
            self._add(info, stream)

    def _add_xattrs(self, info: tarfile.TarInfo, opened: int, mark: str) -> None:
        """Add the user's xattrs, but from the overlay's only ``mark``. The overlay's other xattrs are bookkeeping."""
        headers = dict(info.pax_headers)
        for name in _user_xattrs(opened):
            value = xattr.get(opened, name)
            if name.startswith("user.overlay.") and (name != mark or value == b"x"):
                continue
            headers[XATTR + _escaped(name)] = _text(value)
        info.pax_headers = headers


_KEEP = "the fork is unchanged: apply it, or remove the entry from it"


def _escaped(name: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in os.fsencode(name))


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
    """Return whether the entry is a whiteout in either form; an archive uses only one."""
    if entry.kind != "device":
        return is_whiteout(root, path, entry)
    if sys.platform == "win32":
        return True  # there are no other devices
    above, _slash, name = path.rpartition(b"/")
    with directory(root, above) as opened:
        return disk.stat_at(opened, name).st_rdev == os.makedev(0, 0)
