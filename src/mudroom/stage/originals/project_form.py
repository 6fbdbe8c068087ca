"""What the project's files have beside content and mode, for remarks about changes to them: a snapshot has none of it.

``core/tree/landing_form.py`` has the rules.
"""

from __future__ import annotations

import os

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.landing_form import (
    ACCESS,
    DEFAULT,
    blocking_flag,
    grants,
    lost_in_words,
    not_applied,
)
from mudroom.core.tree.path import ancestors, parent
from mudroom.stage import disk
from mudroom.stage.beneath import LastDirectory, open_root
from mudroom.stage.form import attributes_at, flags_at, is_own_group
from mudroom.stage.view import Attributes


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
