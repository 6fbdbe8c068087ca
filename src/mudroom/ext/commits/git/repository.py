"""The user's own repository: objects and refs.

Its settings are read, because they are the user's. Commands named there (hooks, filters, other programs) are not run.
"""

from __future__ import annotations

import os
import struct
import zlib

from dulwich.config import ConfigFile
from dulwich.errors import ApplyDeltaError, ChecksumMismatch, FileFormatException
from dulwich.object_format import get_object_format
from dulwich.object_store import DiskObjectStore
from dulwich.objects import ObjectID
from dulwich.refs import DiskRefsContainer, Ref, SymrefLoop

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.commits.git.check import parse_commit
from mudroom.stage import disk
from mudroom.vault.git.place import RepositoryPlace

# gitrepository-layout(5), git-config(1) extensions.*: extensions that do not change objects and refs
_SUPPORTED = frozenset((b"noop", b"preciousobjects", b"partialclone", b"worktreeconfig", b"relativeworktrees"))
_OPERATIONS = (
    (b"rebase-merge", "a rebase"),
    (b"rebase-apply", "a rebase"),
    (b"MERGE_HEAD", "a merge"),
    (b"CHERRY_PICK_HEAD", "a cherry-pick"),
    (b"REVERT_HEAD", "a revert"),
    (b"sequencer", "a cherry-pick"),
    (b"BISECT_LOG", "a bisect"),
)
"""Files in a git directory that show an unfinished operation: wt-status.c, wt_status_get_state."""
_PATCH = "mudroom diff gives the changes as a patch"
NUMBERS = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}
_DAMAGE = (ApplyDeltaError, AssertionError, ChecksumMismatch, FileFormatException, ValueError, struct.error, zlib.error)
"""Raised by dulwich for damaged files; struct.error for a truncated pack index."""


class Repository:
    """The project's repository. Must be closed. Raise UsageError if mudroom cannot write this kind of repository."""

    def __init__(self, place: RepositoryPlace) -> None:
        self.place = place
        self._settings = _settings(place.common)
        self.format = get_object_format(self._check_kind())
        self.store = DiskObjectStore(os.fsdecode(place.common + b"/objects"), object_format=self.format)
        self.refs = DiskRefsContainer(place.common, place.git)
        self.is_partial = self._is_partial()
        """Whether it is a partial clone: git fetches missing objects on access."""
        self._present: dict[bytes, bool] = {}

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_error: object) -> None:
        self.store.close()

    def _check_kind(self) -> str:
        extensions = {key.lower(): value for key, value in self._settings.items((b"extensions",))}
        version = self.setting(b"core", b"repositoryformatversion", b"0")
        if b"refstorage" in extensions and extensions[b"refstorage"].lower() != b"files":
            kind = show(extensions[b"refstorage"])
            raise UsageError(f"the repository keeps its branches as {kind}, which mudroom cannot write", _PATCH)
        unknown = extensions.keys() - _SUPPORTED - {b"refstorage", b"objectformat"}
        if version not in (b"0", b"1") or (version == b"1" and unknown):
            reason = ", ".join(sorted(show(name) for name in unknown)) or f"version {show(version)}"
            raise UsageError(f"the repository is of a kind that mudroom does not know ({reason})", _PATCH)
        return extensions.get(b"objectformat", b"sha1").decode("ascii", "replace") if version == b"1" else "sha1"

    def setting(self, section: bytes, name: bytes, default: bytes) -> bytes:
        """Return a setting from the repository's own file, without included files."""
        try:
            return self._settings.get((section,), name)
        except KeyError:
            return default

    def _is_partial(self) -> bool:
        """Return whether this is a partial clone: gitrepository-layout(5). git before 2.24 wrote the extension."""
        remotes = [section for section in self._settings.sections() if section[0].lower() == b"remote"]
        promises = [key.lower() for section in remotes for key, _value in self._settings.items(section)]
        return b"promisor" in promises or bool(self.setting(b"extensions", b"partialclone", b""))

    # --- contents ---

    def has(self, name: bytes) -> bool:
        """Return whether the object is present. Raise MudroomError if it or a pack is damaged."""
        is_present = self._present.get(name)
        if is_present is None:
            try:
                is_present = self._present[name] = ObjectID(name) in self.store
            except _DAMAGE as error:  # dulwich reads a loose object's header, and a pack's index
                raise _damage(name) from error
        return is_present

    def get(self, name: bytes) -> tuple[bytes, bytes] | None:
        """Return an object's kind and content, or None. Raise MudroomError if the object is damaged."""
        try:
            number, data = self.store.get_raw(ObjectID(name))
        except KeyError:
            return None
        except _DAMAGE as error:
            raise _damage(name) from error
        return next(kind for kind, value in NUMBERS.items() if value == number), data

    def packs(self) -> frozenset[bytes]:
        """Return the packs' names, without suffix."""
        try:
            names = os.listdir(os.fsencode(self.store.pack_dir))
        except FileNotFoundError:
            return frozenset()
        return frozenset(name[:-4] for name in names if name.endswith(b".idx"))

    def head(self) -> bytes | None:
        """Return the checked-out commit, or None before the first."""
        try:
            return self.refs[Ref(b"HEAD")]
        except (KeyError, SymrefLoop):
            return None

    def head_target(self) -> bytes:
        """Return the full name of HEAD's branch, a detached HEAD's object id, or b"" if HEAD is missing."""
        text = _read_line(self.place.git + b"/HEAD")
        return text.removeprefix(b"ref:").strip() if text.startswith(b"ref:") else text

    def ref(self, name: bytes) -> bytes:
        """Return the object that a ref leads to, or b""."""
        try:
            return self.refs[Ref(name)]
        except (KeyError, SymrefLoop):
            return b""

    def tree_of(self, commit: bytes) -> bytes | None:
        """Return a commit's tree as a binary id; None for b"". Raise UsageError if the commit is missing."""
        if not commit:
            return None
        kind, data = self.get(commit) or (b"", b"")
        if kind != b"commit":
            raise UsageError(f"the commit {commit.decode()} is missing in the repository", "git fsck")
        return bytes.fromhex(parse_commit(data).tree.decode())

    def work_tree(self) -> bytes:
        """Return the work tree's absolute path, or b"": git-config(1), core.worktree, core.bare; ``gitdir`` for a
        linked one."""
        setting = self.setting(b"core", b"worktree", b"")
        if setting:
            return disk.real_path(os.path.join(self.place.git, setting))
        back = _read_line(self.place.git + b"/gitdir")  # gitrepository-layout(5), linked work tree
        if back:
            return disk.real_path(os.path.dirname(os.path.join(self.place.git, back)))
        if os.path.basename(self.place.git) != b".git" or self.setting(b"core", b"bare", b"false").lower() == b"true":
            return b""
        return os.path.dirname(self.place.git)

    def operation(self) -> str:
        """Return git's unfinished operation in this work tree, or "": git-status(1)."""
        return next((word for name, word in _OPERATIONS if os.path.lexists(self.place.git + b"/" + name)), "")

    def branch(self, name: bytes) -> bytes:
        """Return the object at a branch, or b"" if there is no such branch. Raise UsageError if the branch is
        symbolic."""
        value = self.refs.read_ref(Ref(name)) or b""
        if value.startswith(b"ref:"):
            raise UsageError(f"{show(name)} is a symbolic name of {show(value[4:].strip())}", "choose another --branch")
        return value

    def tips(self) -> set[bytes]:
        """Return the objects at branches, tags and HEADs; for an annotated tag, the tag object."""
        objects = set()
        for name in self.refs.allkeys():
            value = self.refs.read_ref(name) or b""
            if value and not value.startswith(b"ref:"):
                objects.add(value)
        for directory in self._work_trees():
            head = _read_line(directory + b"/HEAD")
            if head and not head.startswith(b"ref:"):
                objects.add(head)
        return objects

    def checked_out(self) -> dict[bytes, bytes]:
        """Return the branches that a work tree is on, or will return to after a rebase or bisect, with the work tree's
        git directory."""
        branches: dict[bytes, bytes] = {}
        for directory in self._work_trees():
            names = [_read_line(directory + b"/HEAD").removeprefix(b"ref:").strip()]
            names += [
                _read_line(directory + b"/" + name) for name in (b"rebase-merge/head-name", b"rebase-apply/head-name")
            ]
            bisected = _read_line(directory + b"/BISECT_START")
            names.append(b"refs/heads/" + bisected if bisected else b"")
            for name in names:
                for _step in range(5):
                    branches.setdefault(name, directory)
                    target = self.refs.read_ref(Ref(name)) if name.startswith(b"refs/") else None
                    if target is None or not target.startswith(b"ref:"):
                        break
                    name = target[4:].strip()
        return branches

    def _work_trees(self) -> list[bytes]:
        """Return all work trees' git directories, each with its HEAD."""
        others = self.place.common + b"/worktrees"
        names = sorted(os.listdir(others)) if os.path.isdir(others) else []
        return [self.place.common, *(others + b"/" + name for name in names)]

    def conflicting_ref(self, branch: bytes) -> bytes | None:
        """Return a branch that cannot exist together with this one: one name is a directory of the other."""
        for other in self.refs.allkeys():
            if other.startswith(branch + b"/") or branch.startswith(other + b"/"):
                return other
        return None


def _damage(name: bytes) -> MudroomError:
    return MudroomError(f"the project's own repository is damaged at {name.decode()}", "git fsck")


def _settings(common: bytes) -> ConfigFile:
    try:
        with open(common + b"/config", "rb") as stream:
            return ConfigFile.from_file(stream, expand_includes=False)
    except FileNotFoundError:
        return ConfigFile()
    except ValueError as error:
        raise UsageError(f"the settings of the repository cannot be read: {error}", "git config --list") from None


def _read_line(path: bytes) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(1 << 16).strip()
    except OSError:
        return b""
