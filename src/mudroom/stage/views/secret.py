"""Find a project's secrets, and create the layer that shows them empty.

Every directory in the project is listed once, and again when its stamp has changed. The index is stored in the vault
(``secrets``) and is only a cache. A long-lived owner, such as a session, lets the kernel report which directories
change (``directory_watch.py``): then a search costs the same for ten directories and for 100,000.

Some names are decided by more than their directory: a settings file by its content, a symbolic link with a secret's
name by the project file to which it leads. These few suspects are examined in each search, and a file is read again
when its own stamp has changed. A secret's inode may have other names, which the user has made; they are searched for
only if the inode has more links than names that are known (``other_names``).

The mask is a layer between the base and the fork's layers: an empty file for each secret, so that mounts, copies and
file tools show the same.
"""

from __future__ import annotations

import errno
import marshal
import os
import stat
import sys
import time
from _blake2 import blake2b
from _thread import get_ident
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import is_below
from mudroom.core.tree.pattern import matches
from mudroom.core.tree.secret import ELSEWHERE, Test, is_masked, secret_test, tests_in
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import open_layer
from mudroom.stage.layers.layer import LayerWriter, remove_tree
from mudroom.stage.source import OpenSource, is_secret
from mudroom.stage.stamp import is_settled
from mudroom.typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from mudroom.stage.views.directory_watch import DirectoryWatch

DIRECTORIES = 100_000
"""Maximum number of directories searched, those near the top first."""
_WATCHED = 500
"""Number of directories from which a watch pays off: to examine one takes 2 µs, to watch it 3 µs."""
_QUIET = 2
"""Consecutive searches without a change before a watch begins: a process for a single command does not need it."""
_MOST_QUIET = 64
_FORMAT = 4
"""Version of the index, and of the table of names: another version may find other secrets."""
_OURS = b".%d-%d"
"""Suffix that only this thread uses: agents start side by side."""

_Stamp = tuple[int, ...]
"""Device, inode, mtime and ctime of a directory; empty if its next change may leave the stamp as it is."""
_TOO_DEEP: _Stamp = (errno.ENAMETOOLONG,)
"""For a directory whose path is longer than the kernel accepts; its contents were not searched."""
_Row = tuple[_Stamp, tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]
"""For one directory: its stamp, the secrets in it, the directories in it, the suspects in it."""
_Index = dict[bytes, _Row]
"""By path; a directory comes after its parent."""
_Judged = dict[bytes, tuple[_Stamp, bool]]
_Inode = tuple[int, int, int]
"""Device, inode number, number of links."""
_Others = tuple[frozenset[_Inode], tuple[bytes, ...], bool] | None


class Mask(NamedTuple):
    paths: frozenset[bytes] = frozenset()
    """The files that are shown empty."""
    layer: bytes = b""
    """The mask layer's directory; empty if there are no secrets."""
    git: bytes = b""
    """Directory of the layer that keeps masked files from git (``git_mask.py``); empty if not needed."""
    known: frozenset[bytes] = frozenset()
    """Files with secret names that are shown, because git has them. An older command may have seen them empty."""
    harmless: frozenset[bytes] = frozenset()
    """Files that could be secrets by their names, and are none by their content; no fork holds a former content."""
    complete: bool = True
    """False if the search was incomplete: the project has more directories than were visited, or a path was too
    long."""
    shown: frozenset[bytes] = frozenset()
    """Project secrets that these commands may read: the user or the policy shows them."""
    patterns: tuple[bytes, ...] = ()
    """Patterns for more files to mask: the policy's ``secrets.mask``."""
    show: tuple[bytes, ...] = ()
    """Patterns for files to show: the policy's ``secrets.show``, and ``--show``."""

    @property
    def has_secrets(self) -> bool:
        """Whether the project has secrets, shown or not."""
        return bool(self.paths or self.shown or self.known)

    def allows(self, path: bytes) -> bool:
        """Return whether these commands may read a secret that a fork holds at ``path``."""
        return path in self.known or not is_masked(path, self.patterns, self.show)


NO_MASK = Mask()


class Finder:
    """Finds secrets, with a cache.

    Its owner (``session/secrets.py``) calls it with its lock held.
    """

    def __init__(self, project: bytes, index: bytes, mask: Sequence[bytes] = ()) -> None:
        """``index``: the file that keeps the cache between processes. ``mask``: more patterns for names and paths."""
        self._project, self._index, self._mask = project, index, tuple(mask)
        self._rows: _Index | None = None
        self._secrets: list[bytes] = []
        self._suspects: list[bytes] = []
        self._judged: _Judged = {}
        """By a suspect's path: the file's stamp, and whether it is a secret."""
        self._links: dict[bytes, bytes] = {}
        """Links with secrets' names, by the project file to which they lead."""
        self._others: _Others = None
        """The last answer of ``other_names``, while no directory has changed, and whether it is complete."""
        self._reaches_all = True
        self._complete = True
        self._watch: DirectoryWatch | None = None
        self._quiet, self._patience = 0, _QUIET

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def find(self, show: Sequence[bytes]) -> tuple[list[bytes], bool]:
        """Return the project's secrets, sorted, and whether all directories were searched. ``show``: paths and patterns
        to leave out."""
        changed = self._told()
        if changed is None:
            began, known = time.time_ns(), self._load()
            changed = self._look_at_all(known)
            is_new = (bool(changed) or not known) and self._search(known, changed, began)
            self._quiet = 0 if is_new else self._quiet + 1
        elif changed:
            self._update(self._load(), changed, time.time_ns())
        if (self._suspects or self._judged) and self._judge(time.time_ns()):
            self._save(self._load())
        return sorted(path for path in self._found() if not self._is_shown(path, show)), self._complete

    def shown(self, show: Sequence[bytes]) -> frozenset[bytes]:
        """Return the secrets that the last ``find`` has left out because of ``show``."""
        return frozenset(path for path in self._found() if self._is_shown(path, show)) if show else frozenset()

    @property
    def harmless(self) -> frozenset[bytes]:
        """The files whose content the last ``find`` has found harmless."""
        return frozenset(path for path, (_stamp, is_one) in self._judged.items() if not is_one)

    def other_names(self, secrets: Mapping[bytes, Entry]) -> tuple[bytes, ...]:
        """Return the other names in the project that the inodes of ``secrets`` have."""
        names = Counter((entry.device, entry.inode, entry.links) for entry in secrets.values() if entry.links > 1)
        wanted = frozenset(inode for inode, known in names.items() if inode[2] > known)
        if not wanted:
            return ()
        if self._others is None or self._others[0] != wanted:
            self._others = wanted, tuple(self._names_of(wanted)), self._reaches_all
            self._save(self._load())
        return tuple(path for path in self._others[1] if path not in secrets)

    @property
    def is_complete(self) -> bool:
        """Whether the last ``find`` and ``other_names`` have searched all directories."""
        return self._complete and (self._others is None or self._others[2])

    def _names_of(self, wanted: frozenset[_Inode]) -> Iterator[bytes]:
        """Yield the names that these inodes have in the directories that were searched, then in those of others'
        files. At the end ``_reaches_all`` says whether none was left out."""
        inodes = {inode for _device, inode, _links in wanted}
        pending = deque((path, False) for path in self._load())
        self._reaches_all = True
        for _directory in range(DIRECTORIES):
            if not pending:
                return
            path, is_beyond = pending.popleft()
            prefix = path + b"/" if path else b""
            try:
                with os.scandir(self._project + b"/" + path if path else self._project) as scan:
                    for item in scan:
                        name = os.fsencode(item.name)
                        if item.is_dir(follow_symlinks=False):
                            if is_beyond or name in ELSEWHERE:
                                pending.append((prefix + name, True))
                        elif item.inode() in inodes and item.is_file(follow_symlinks=False):
                            info = item.stat(follow_symlinks=False)
                            if (info.st_dev, info.st_ino, info.st_nlink) in wanted:
                                yield prefix + name
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue  # gone, or closed to this user and so to every command
            except OSError:
                self._reaches_all = False
        self._reaches_all = self._reaches_all and not pending

    def _found(self) -> set[bytes]:
        """Return all secrets that the last search has found."""
        judged = (path for path, (_stamp, is_one) in self._judged.items() if is_one)
        return {*self._secrets, *judged}

    def _is_shown(self, path: bytes, show: Sequence[bytes]) -> bool:
        link = self._links.get(path)
        return matches(path, show) or (link is not None and matches(link, show))

    def _judge(self, began: int) -> bool:
        """Judge the suspects. Return whether a judgement has changed."""
        before, self._judged, self._links = self._judged, {}, {}
        unread: dict[bytes, list[Test]] = {}
        root = self._project + b"/"
        for path in self._suspects:
            try:
                info = os.lstat(root + path)
            except OSError:
                continue
            if not stat.S_ISREG(info.st_mode):
                self._follow(path, unread)
            elif path in before and before[path][0] == _stamp(info):
                self._judged[path] = before[path]
            else:
                unread.setdefault(path, [secret_test(path)])
        if unread:
            with OpenSource(self._project) as source:
                for path, tests in unread.items():
                    self._read(source, path, tests, began)
        return self._judged != before

    def _follow(self, link: bytes, unread: dict[bytes, list[Test]]) -> None:
        """Judge the project's file to which a link with a secret's name leads, by the link's name, too."""
        root = os.path.realpath(self._project)
        real = os.path.realpath(root + b"/" + link)
        if real != root and is_below(real, root):
            target = real[len(root) + 1 :]
            self._links.setdefault(target, link)
            self._judged.pop(target, None)
            unread.setdefault(target, [secret_test(target)]).append(secret_test(link))

    def _read(self, source: OpenSource, path: bytes, tests: Sequence[Test], began: int) -> None:
        try:
            entry = source.look(path)
            if entry is None or entry.kind != "file":
                return
        except OSError:  # closed to this user
            entry = None
        stamp: _Stamp = ()
        if entry is not None and path not in self._links and is_settled(entry.ctime, began):
            stamp = entry.device, entry.inode, entry.size, entry.mtime, entry.ctime
        self._judged[path] = stamp, any(is_secret(source, path, test) for test in tests)

    def _told(self) -> set[bytes] | None:
        """Return the directories that the kernel reports as changed, or None if each must be examined."""
        if self._watch is None:
            return None
        changed = self._watch.changed()
        if changed is None:
            self._give_up()
            return None
        return changed.directories

    def _give_up(self) -> None:
        """Close the watch. After each failure the project must be quiet for twice as many searches before it is watched
        again."""
        self.close()
        self._quiet, self._patience = 0, min(2 * self._patience, _MOST_QUIET)

    def _look_at_all(self, known: _Index) -> set[bytes]:
        """Return the directories whose stamp differs from the index. Begin a watch if it is time for one."""
        root, stale = self._project, set()
        watch = self._watch = self._begin_watch(len(known))
        for path, row in known.items():
            # Watch first, then examine: a change in between is seen by one or the other.
            if watch is not None and not self._watched(path):
                watch = None
            try:
                info = os.lstat(root + b"/" + path if path else root)
                if row[0] != (info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns):
                    stale.add(path)
            except OSError:
                stale.add(path)
        return stale

    def _begin_watch(self, directories: int) -> DirectoryWatch | None:
        if directories < _WATCHED or self._quiet < self._patience or sys.platform != "linux":
            return None
        from mudroom.stage.views.directory_watch import DirectoryWatch

        try:
            return DirectoryWatch(self._project, directories)
        except OSError:  # the user's inotify instances are used up, or there is no /proc
            self._give_up()
            return None

    def _watched(self, path: bytes) -> bool:
        """Watch one more directory. Return False if there is no watch, or it was given up."""
        if self._watch is None:
            return False
        try:
            self._watch.add(path)
        except OSError:  # the user's share is used up, or this directory's changes are not reported
            self._give_up()
        return self._watch is not None

    def _search(self, known: _Index, changed: set[bytes], began: int) -> bool:
        """Search the project, and save the index. Return whether it has changed. ``known``: rows to rely on, except for
        ``changed``."""
        rows: _Index = {}
        self._others = None
        is_complete, pending = True, deque([b""])
        while pending and len(rows) < DIRECTORIES:
            path = pending.popleft()
            row = known.get(path)
            if row is None or path in changed:
                row = self._list(path, began)
            rows[path] = row
            prefix = path + b"/" if path else b""
            pending += [prefix + name for name in row[2]]
            is_complete = is_complete and row[0] != _TOO_DEEP
        self._rows, self._complete = rows, is_complete and not pending
        self._secrets, self._suspects = _in_rows(rows, 1), _in_rows(rows, 3)
        if rows != known:
            self._save(rows)
        return rows != known

    def _update(self, known: _Index, changed: set[bytes], began: int) -> None:
        """List these directories again; the index is saved with the next search."""
        self._others = None
        rows = {path: self._list(path, began) for path in changed if path in known}
        if any(row[2] != known[path][2] for path, row in rows.items()):
            self._search(known, changed, began)
            return
        is_new = any((row[1], row[3]) != (known[path][1], known[path][3]) for path, row in rows.items())
        known.update(rows)
        if is_new:
            self._secrets, self._suspects = _in_rows(known, 1), _in_rows(known, 3)

    def _list(self, path: bytes, began: int) -> _Row:
        """Return one directory's row. A directory that is gone, or closed to this user and so to every command, has no
        entries, and is listed again next time."""
        full = self._project + b"/" + path if path else self._project
        prefix = path + b"/" if path else b""
        secrets, below, suspects = [], [], []
        test_of = tests_in(path)
        self._watched(path)
        try:
            info = os.lstat(full)
            with os.scandir(full) as scan:
                for item in scan:
                    name = os.fsencode(item.name)
                    if item.is_dir(follow_symlinks=False):
                        if name not in ELSEWHERE:
                            below.append(name)
                        continue
                    test = "name" if self._mask and matches(prefix + name, self._mask) else test_of(name)
                    if test == "name" and item.is_file(follow_symlinks=False):
                        secrets.append(name)
                    elif test and (item.is_symlink() or item.is_file(follow_symlinks=False)):
                        suspects.append(name)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return (), (), (), ()
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            return _TOO_DEEP, (), (), ()
        stamp = (info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
        changed = info.st_ctime_ns if os.name == "posix" else info.st_mtime_ns
        settled = stamp if is_settled(changed, began) else ()
        return settled, tuple(sorted(secrets)), tuple(sorted(below)), tuple(sorted(suspects))

    def _load(self) -> _Index:
        if self._rows is None:
            self._rows, self._complete, self._judged, self._others = _read_index(self._index, self._mask)
            self._secrets, self._suspects = _in_rows(self._rows, 1), _in_rows(self._rows, 3)
        return self._rows

    def _save(self, rows: _Index) -> None:
        beside = self._index + _OURS % (os.getpid(), get_ident()) + b".new"
        index = _FORMAT, self._mask, self._complete, rows, self._judged, self._others
        safe_open.replace(self._index, marshal.dumps(index), beside, durable=False)


def _stamp(info: os.stat_result) -> _Stamp:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _in_rows(rows: _Index, column: Literal[1, 3]) -> list[bytes]:
    return [path + b"/" + name if path else name for path, row in rows.items() for name in row[column]]


def _read_index(path: bytes, mask: tuple[bytes, ...]) -> tuple[_Index, bool, _Judged, _Others]:
    """Return an index's rows if it was made with the same mask, whether it is complete, and what was found beyond."""
    try:
        with open(path, "rb") as stream:
            written, made_with, *index = marshal.loads(stream.read())
    except (FileNotFoundError, EOFError, ValueError, TypeError):
        return {}, True, {}, None  # missing, or written by another mudroom or Python version: it is only a cache
    if (written, made_with) != (_FORMAT, mask):
        return {}, True, {}, None
    complete, rows, judged, others = index
    return rows, complete, judged, others


def files_at(source: OpenSource, paths: Sequence[bytes]) -> dict[bytes, Entry]:
    """Return the entries of those paths that are now regular files."""
    entries = ((path, source.look(path)) for path in paths)
    return {path: entry for path, entry in entries if entry is not None and entry.kind == "file"}


def make_mask(source: OpenSource, masks: bytes, secrets: Mapping[bytes, Entry], complete: bool) -> Mask:
    """Return the mask for these files; create its layer below the directory ``masks`` if it does not exist."""
    if not secrets:
        return NO_MASK._replace(complete=complete)
    shown = [(path, entry.mode) for path, entry in secrets.items()]
    name = blake2b(repr(shown).encode(), digest_size=12).hexdigest().encode()
    layer = masks + b"/" + name
    if not os.path.isdir(layer):
        os.makedirs(masks, mode=0o700, exist_ok=True)
        beside = layer + _OURS % (os.getpid(), get_ident())
        os.mkdir(beside, 0o700)
        _write(beside, source, shown)
        try:
            disk.rename_path(beside, layer)
        except OSError:
            remove_tree(beside)  # another process was faster
    return Mask(frozenset(secrets), layer, complete=complete)


def _write(layer: bytes, source: OpenSource, shown: Sequence[tuple[bytes, int]]) -> None:
    with Descriptor(open_layer(layer)) as root:
        writer = LayerWriter(root, source)
        for path, mode in shown:
            writer.data(path, b"", mode=mode)
        writer.finish()
        top = source.look(b"")
        disk.set_mode(root, b".", top.mode if top is not None else 0o755)
