"""Which directory a vault belongs to: another one at the same path, such as a new clone, inherits no fork and no undo.

The file ``directory`` has the directory's inode and birth time, its own inode, and marks: the times of files that were
in the directory, and the first entry of its repository's log. A restored or copied directory has other numbers and the
old marks; a new clone has other marks. A copied vault has the old file under another inode. The device number is left
out: it differs after a remount.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress

from mudroom.core.tree.path import show
from mudroom.errors import FULL, UsageError
from mudroom.stage import disk, safe_open
from mudroom.stage.disk import birth_time

NAME = b"/directory"
_LOG = b".git/logs/HEAD"
_OF_GIT = (b".git/description", _LOG, b".git")  # a file: in a linked work tree
_MOST, _SEEN = 8, 200
"""Files whose times are marks, the oldest; files that are looked at."""
ADOPT = "mudroom vault archive puts them aside, mudroom vault adopt takes them for this directory"


def require_same_directory(vault: bytes, project: bytes) -> bool:
    """Raise UsageError if the vault's forks and applies belong to another directory. Note the directory if the vault
    has no note of it, or holds neither forks nor applies. Return whether the directory or the vault is a copy, whose
    stamps must be renewed."""
    if not os.path.isdir(project):
        return False  # it inherits nothing
    inode = os.stat(project).st_ino
    try:
        text = safe_open.read(vault + NAME)
        own = os.stat(vault + NAME).st_ino
    except FileNotFoundError:
        return _note_if_room(vault, project)
    head, *marks = text.split(b"\n")
    noted, birth, known = [*head.split(b" "), b"", b""][:3]
    has_mark = any(line and _mark(project, line.partition(b" ")[2]) == line for line in marks)
    if noted == b"%d" % inode and has_mark and known == b"%d" % own:
        return False
    is_same = has_mark or (noted == b"%d" % inode and _is_as_old(project, birth, marks))
    is_filled = any(map(os.listdir, (vault + b"/forks", vault + b"/applies")))
    if is_same and is_filled and not (noted == b"%d" % inode and known == b"%d" % own):
        return True
    if not is_same and is_filled:
        raise UsageError(
            f"{show(project)} is another directory than the one its forks and applies belong to, last used "
            f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(os.stat(vault + b'/forks').st_mtime))}",
            ADOPT,
        )
    if text == described(project, own):  # a sync takes as long as a quarter of a command
        return False
    return _note_if_room(vault, project)


def note_directory(vault: bytes, project: bytes) -> None:
    if not os.path.isdir(project):
        return
    beside = vault + NAME + b"-" + os.urandom(4).hex().encode()
    with open(disk.open_path(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600), "wb") as stream:
        stream.write(described(project, os.fstat(stream.fileno()).st_ino))
        stream.flush()
        os.fsync(stream.fileno())
    disk.rename_path(beside, vault + NAME)


def described(project: bytes, own: int) -> bytes:
    """Return the content of the file ``directory``, whose inode is ``own``."""
    marks = [_mark(project, name) for name in (*_OF_GIT, *_oldest(project))]
    return b"\n".join([b"%d %d %d" % (os.stat(project).st_ino, birth_time(project), own), *filter(None, marks), b""])


def _note_if_room(vault: bytes, project: bytes) -> bool:
    try:
        note_directory(vault, project)
    except OSError as error:
        if error.errno not in FULL:  # undo and discard work on a full disk; it is noted at the next use
            raise
    return False


def _is_as_old(project: bytes, noted: bytes, marks: list[bytes]) -> bool:
    """Return whether a directory with the noted inode, and no noted mark, is the same: inodes are used again. Without
    birth times only a repository that has become another one tells a new directory."""
    birth = birth_time(project)
    if birth and noted != b"0":
        return noted == b"%d" % birth
    return not any(mark.endswith(b" " + _LOG) for mark in marks)


def _mark(project: bytes, name: bytes) -> bytes:
    """Return a line: a file's time in seconds, and its name; of the log its first entry's commit and time. Empty if
    there is no such file."""
    try:
        if name == _LOG:
            with open(project + b"/" + name, "rb") as stream:
                words = stream.readline(4096).partition(b"\t")[0].split()
            return b"%s:%s %s" % (words[1], words[-2], name) if len(words) > 3 else b""
        info = os.lstat(project + b"/" + name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return b""
    return b"%d %s" % (info.st_mtime, name) if stat.S_ISREG(info.st_mode) and b"\n" not in name else b""


def _oldest(project: bytes) -> list[bytes]:
    """Return the names of the oldest files in the directory and in the directories in it."""
    found: list[tuple[float, bytes]] = []
    directories = [b""]
    while directories and len(found) < _SEEN:
        above = directories.pop(0)
        try:
            with os.scandir(project + b"/" + above) as scan:
                entries = [entry for entry in scan if entry.name not in (b".git", b".mudroom")]
        except (FileNotFoundError, PermissionError):
            continue
        for entry in entries:
            if not above and entry.is_dir(follow_symlinks=False):
                directories.append(entry.name + b"/")
            elif entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # the user removes files meanwhile
                    found.append((entry.stat(follow_symlinks=False).st_mtime, above + entry.name))
    return [name for _time, name in sorted(found)[:_MOST]]
