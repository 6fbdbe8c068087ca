"""A private ``.git`` for forks when the work tree's own repository lies outside the project.

In a linked work tree or a submodule ``.git`` is a file. It names a directory outside the project, which commands cannot
see. A layer below the fork's own layers has a directory in its place, with HEAD, index, refs, settings and exclusions
as the user has them now. It has no objects; ``objects/info/alternates`` names the user's object directory, which is
mounted read-only. Commands write to the fork's own layer, so neither the user's repository nor its other work trees
change.

Left out are hooks, logs except the stash list, and settings that would lead elsewhere or start programs from the user's
repository (``_LEFT_OUT``). All reads are bounded, and follow no symbolic link: the repository may be a stranger's.
"""

from __future__ import annotations

import os
import stat
from _blake2 import blake2b
from collections.abc import Collection, Iterator, Sequence

from mudroom.core.confinement.credential_file import holds_secret
from mudroom.core.git.exclude import with_excluded
from mudroom.core.git.index import encode_index, parse_index, with_skip_worktree
from mudroom.core.git.settings_file import GitSetting, encode_settings, parse_settings
from mudroom.core.system.closing import Descriptor
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.stage import disk
from mudroom.stage.beneath import open_layer
from mudroom.stage.layers.layer import LayerWriter
from mudroom.stage.source import OpenSource, Source, is_absence, read_all, walk
from mudroom.stage.stamp import is_settled, stamp_of
from mudroom.typing import NamedTuple
from mudroom.vault.git.place import (
    RepositoryPlace,
    alternates,
    find_repository,
    is_outside,
    names_work_tree,
    object_directories,
    open_if_file,
    read_file,
    settings_of,
)

_MOST_REFS = 100_000
"""Maximum number of loose refs. git keeps more only if it is never allowed to pack them."""
_MOST_LOOSE = 100
"""Above this number, loose refs are written into one file."""
_MOST_FILES = 1000
"""Maximum number of state files for a rebase or a similar operation."""
_REF_LIMIT, _FILE_LIMIT, _PACKED_LIMIT, _INDEX_LIMIT = 4096, 16 << 20, 256 << 20, 1 << 30
_MOST_SUBMODULES = 100
# gitrepository-layout(5): per work tree, not in the common directory
_OWN_REFS = (b"refs/bisect", b"refs/worktree", b"refs/rewritten")
_COMMON_FILES = (b"shallow", b"info/exclude", b"info/attributes", b"info/grafts", b"logs/refs/stash")
_STATE_FILE = regex(rb"[A-Z_]+")
"""ORIG_HEAD, MERGE_HEAD, MERGE_MSG and others: gitglossary(7), "pseudoref"."""
_STATE_DIRECTORIES = (b"rebase-merge", b"rebase-apply", b"sequencer")
_LEFT_OUT = frozenset(
    (
        (b"core", b"bare"),
        (b"core", b"worktree"),
        (b"core", b"fsmonitor"),
        (b"extensions", b"worktreeconfig"),
        (b"extensions", b"relativeworktrees"),
        (b"extensions", b"refstorage"),
    )
)


class PrivateGit(NamedTuple):
    """A ``.git`` in the project that needs a private directory in forks."""

    path: bytes
    """Path below the project: ``.git``, or ``lib/x/.git`` for a submodule in a linked work tree."""
    place: RepositoryPlace


class Survey(NamedTuple):
    """The repositories that a project's ``.git`` leads to."""

    gits: tuple[PrivateGit, ...] = ()
    note: str = ""
    """Why there is no private directory, or why some objects are not visible; empty if git works."""


def survey(project: bytes) -> Survey:
    """Return the private directories that the project's forks need. Call it if ``.git`` is not a directory."""
    try:
        place = find_repository(project, b".git")
        if not is_outside(project, place):
            return Survey()
        problem = private_problem(project, place)
        gits = (PrivateGit(b".git", place), *_submodules(project)) if not problem else ()
        note = _note_of_alternates(gits)
    except UsageError:
        return Survey(note=".git leads to no git repository: git does not work in forks (git worktree repair)")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return Survey(note=f".git leads to a repository that cannot be read ({reason}): git does not work in forks")
    if problem:
        return Survey(note=f".git leads to {show(place.git)}, {problem}: git does not work in forks")
    return Survey(gits, note)


def _note_of_alternates(gits: Sequence[PrivateGit]) -> str:
    others = dict.fromkeys(path for git in gits for path in alternates(git.place))
    if not others:
        return ""
    names = ", ".join(show(path) for path in list(others)[:4]) + (", …" if len(others) > 4 else "")
    return f"objects of .git are also in {names}: git in forks sees those only with --read PATH"


def private_problem(directory: bytes, place: RepositoryPlace) -> str:
    """Return why forks get no private directory for this work tree; empty if they can have it."""
    if not names_work_tree(place, directory):
        return "which does not name this directory (git worktree repair, or git config core.worktree)"
    if place.common + b"/objects" not in object_directories(place):
        return "whose directory of objects is a symbolic link"
    for setting in settings_of(place):
        if setting[:3] == (b"extensions", None, b"refstorage") and (setting.value or b"").lower() != b"files":
            return f"which keeps its branches as {show(setting.value or b'')}"
    return ""


def _submodules(project: bytes) -> Iterator[PrivateGit]:
    """Yield the populated submodules of a linked work tree. Their repositories are outside, too."""
    pending = [b""]
    for _number in range(_MOST_SUBMODULES):
        if not pending:
            return
        above = pending.pop(0)
        try:
            settings = parse_settings(read_file(project, above + b".gitmodules", _FILE_LIMIT) or b"")
        except ValueError:
            continue
        for setting in settings:
            if setting.section != b"submodule" or setting.key != b"path" or not _is_plain(setting.value or b""):
                continue
            directory = above + (setting.value or b"")
            path = directory + b"/.git"
            try:
                is_file = stat.S_ISREG(os.lstat(project + b"/" + path).st_mode)
                place = find_repository(project, path) if is_file else None
                if (
                    place is None
                    or not is_outside(project, place)
                    or private_problem(project + b"/" + directory, place)
                ):
                    continue
            except (OSError, ValueError, UsageError):
                continue  # git reports it here as it does outside
            yield PrivateGit(path, place)
            pending.append(directory + b"/")


def _is_plain(path: bytes) -> bool:
    return all(part not in (b"", b".", b"..") and part.lower() != b".git" for part in path.split(b"/"))


def shown_directories(gits: Sequence[PrivateGit]) -> tuple[bytes, ...]:
    """Return the directories that commands must be able to read: only objects."""
    return tuple(dict.fromkeys(path for git in gits for path in object_directories(git.place)))


def id_length(place: RepositoryPlace) -> int:
    """Return the length of an object id in bytes. Raise ValueError if the settings cannot be parsed."""
    kinds = [setting.value for setting in settings_of(place) if setting[:3] == (b"extensions", None, b"objectformat")]
    return 32 if kinds and (kinds[-1] or b"").lower() == b"sha256" else 20


# --- change detection ---


def stamp(project: bytes, gits: Sequence[PrivateGit], masked: Collection[bytes], now: int) -> str:
    """Return a digest that changes when a private directory made now would differ; empty if a change within the present
    tick could be missed. ``now``: nanoseconds since 1970."""
    facts = [(git.path, path, stamp_of(path)) for git in gits for path in _watched(project, git)]
    if not all(found is None or is_settled(found.ctime, now) for _git, _path, found in facts):
        return ""
    return blake2b(repr((facts, sorted(masked))).encode(), digest_size=12).hexdigest()


def _watched(project: bytes, git: PrivateGit) -> Iterator[bytes]:
    place = git.place
    yield project + b"/" + git.path
    yield from (place.git + b"/" + name for name in (b"HEAD", b"index", b"config.worktree", b"info/sparse-checkout"))
    yield from (place.git + b"/" + name for name in (b"ORIG_HEAD", b"MERGE_HEAD", *_STATE_DIRECTORIES))
    yield from (place.common + b"/" + name for name in (b"config", b"packed-refs", *_COMMON_FILES))
    yield from _directories(place.common + b"/refs")
    if place.git != place.common:
        yield from (path for name in _OWN_REFS for path in _directories(place.git + b"/" + name))


def _directories(top: bytes) -> Iterator[bytes]:
    """Yield a directory and its subdirectories. A ref is replaced by rename(2), which changes its directory's times."""
    pending, number = [top], 0
    while pending and number < _MOST_REFS:
        path = pending.pop()
        number += 1
        yield path
        if os.path.islink(path):
            continue
        try:
            with os.scandir(path) as scan:
                pending += [item.path for item in scan if item.is_dir(follow_symlinks=False)]
        except OSError:
            continue


# --- writing it ---


def write_private(
    project: bytes, layer: bytes, gits: Sequence[PrivateGit], masked: Collection[bytes], lower: Source
) -> None:
    """Write the private directories into a new layer.

    ``masked``: files that commands see empty; git must not report them as changed. Raise ValueError if the repository
    cannot be read within the limits.
    """
    with Descriptor(open_layer(layer)) as root:
        writer = LayerWriter(root, lower)
        try:
            for git in gits:
                work = git.path[: -len(b".git")]
                hidden = [path[len(work) :] for path in masked if path.startswith(work)]
                _PrivateWriter(writer, git.path, git.place).write(hidden)
        finally:
            writer.finish()
        with OpenSource(project) as source:
            top = source.look(b"")
        disk.set_mode(root, b".", top.mode if top is not None else 0o755)


class _PrivateWriter:
    def __init__(self, writer: LayerWriter, path: bytes, place: RepositoryPlace) -> None:
        self._writer, self._path, self._place = writer, path, place
        self._directories: set[bytes] = set()

    def write(self, hidden: Collection[bytes]) -> None:
        git, common = self._place
        self._writer.new_directory(self._path, 0o755)
        self._directories.add(b"")
        for name in (b"objects/info", b"objects/pack", b"refs/heads", b"refs/tags", b"info"):
            self._directory(name)
        self._data(b"objects/info/alternates", _alternates(self._place))
        self._data(b"config", self._settings())
        # refs before packed-refs, as git reads them: git-pack-refs(1) removes a loose ref after it has packed it
        loose = dict(_loose_refs(common, b"refs", _OWN_REFS if git != common else ()))
        if git != common:
            loose |= {name: value for own in _OWN_REFS for name, value in _loose_refs(git, own, ())}
        self._refs(loose)
        for name in _COMMON_FILES:
            self._copy(common, name, _FILE_LIMIT)
        self._copy(git, b"info/sparse-checkout", _FILE_LIMIT)
        self._state()
        self._index(hidden)
        if not self._copy(git, b"HEAD", _REF_LIMIT):
            raise ValueError("it has no HEAD")

    def _settings(self) -> bytes:
        return encode_settings(map(self._located, settings_of(self._place)), _is_kept)

    def _located(self, setting: GitSetting) -> GitSetting:
        """Make an included file's path absolute: it is relative to the settings file (git-config(1), "Includes")."""
        if setting.section not in (b"include", b"includeif") or setting.key != b"path" or not setting.value:
            return setting
        if setting.value.startswith((b"/", b"~")):
            return setting
        return setting._replace(value=os.path.join(self._place.common, setting.value))

    def _refs(self, loose: dict[bytes, bytes]) -> None:
        common = self._place.common
        if len(loose) <= _MOST_LOOSE:
            self._copy(common, b"packed-refs", _PACKED_LIMIT)
        else:
            symbolic = {name: value for name, value in loose.items() if value.startswith(b"ref:")}
            plain = {name: value for name, value in loose.items() if name not in symbolic}
            own = {name: plain.pop(name) for name in list(plain) if name.startswith(tuple(o + b"/" for o in _OWN_REFS))}
            self._data(b"packed-refs", _packed(read_file(common, b"packed-refs", _PACKED_LIMIT) or b"", plain))
            loose = {**symbolic, **own}
        for name, value in loose.items():
            self._data(name, value + b"\n")

    def _state(self) -> None:
        """Copy the state of a merge, rebase or similar operation, which git status shows."""
        git = self._place.git
        with OpenSource(git) as source:
            names = [name for name, entry in sorted(source.names(b"").items()) if entry.kind == "file"]
            state = [path for top in _STATE_DIRECTORIES for path, entry in walk(source, top) if entry.kind == "file"]
        for name in names:
            if name != b"HEAD" and _STATE_FILE.fullmatch(name):
                self._copy(git, name, _FILE_LIMIT)
            elif name.startswith(b"sharedindex."):  # gitformat-index(5), split index
                self._copy(git, name, _INDEX_LIMIT)
        if len(state) > _MOST_FILES:
            raise ValueError(f"the state of a rebase has more than {_MOST_FILES:,} files")
        for path in state:
            self._copy(git, path, _FILE_LIMIT)

    def _index(self, hidden: Collection[bytes]) -> None:
        """Write the index with its original time, which git compares with the files' times (racy-git.txt), and exclude
        the hidden files."""
        git = self._place.git
        if not hidden:
            self._copy(git, b"index", _INDEX_LIMIT)
            return
        data = read_file(git, b"index", _INDEX_LIMIT)
        if data is not None:
            length = id_length(self._place)
            index = parse_index(data, length)
            if not index.required and not {entry.path for entry in index.entries}.isdisjoint(hidden):
                data = encode_index(with_skip_worktree(index.entries, hidden), length)
            self._data(b"index", data, os.lstat(git + b"/index").st_mtime_ns)
        excluded = read_file(self._place.common, b"info/exclude", _FILE_LIMIT) or b""
        self._data(b"info/exclude", with_excluded(excluded, hidden))

    # --- files ---

    def _copy(self, directory: bytes, name: bytes, limit: int) -> bool:
        """Copy a user's file with its time; return whether it exists."""
        descriptor = open_if_file(directory, name)
        if descriptor is None:
            return False
        with Descriptor(descriptor):
            info = os.fstat(descriptor)
            if info.st_size > limit:
                raise ValueError(f"{show(name)} has more than {limit:,} bytes")
            self._directory(os.path.dirname(name))
            self._writer.file(self._path + b"/" + name, descriptor, mode=0o644, mtime=info.st_mtime_ns)
        return True

    def _data(self, name: bytes, content: bytes, mtime: int | None = None) -> None:
        self._directory(os.path.dirname(name))
        self._writer.data(self._path + b"/" + name, content, mode=0o644, mtime=mtime)

    def _directory(self, name: bytes) -> None:
        if name in self._directories:
            return
        self._directory(os.path.dirname(name))
        self._writer.directory(self._path + b"/" + name, 0o755)
        self._directories.add(name)


def _is_kept(setting: GitSetting) -> bool:
    if setting.subsection is None and (setting.section, setting.key) in _LEFT_OUT:
        return False
    if holds_secret(b"%s = %s" % (setting.key, setting.value or b"")):
        return False  # tokens in URLs and headers: the layer is copied, and goes into archives
    is_hooks_path = setting[:3] == (b"core", None, b"hookspath")
    return not (is_hooks_path and (setting.value or b"/").startswith((b"/", b"~")))


def _alternates(place: RepositoryPlace) -> bytes:
    """Return the alternates file (gitrepository-layout(5)). Git would take a path that begins like a comment or quoted
    text for one, so special paths are quoted."""
    path = place.common + b"/objects"
    if b"\n" in path or b'"' in path or b"\\" in path:
        for character, escaped in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n")):
            path = path.replace(character, escaped)
        path = b'"' + path + b'"'
    return path + b"\n"


def _loose_refs(top: bytes, below: bytes, without: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the loose refs with their values. Raise ValueError if there are too many."""
    with OpenSource(top) as source:
        pending, number = [below], 0
        while pending:
            name = pending.pop()
            for last, entry in sorted(source.names(name).items()):
                at = name + b"/" + last
                if entry.kind == "directory":
                    pending += [at] if at not in without else []
                    continue
                number += 1
                if number > _MOST_REFS:
                    raise ValueError(f"it has more than {_MOST_REFS:,} refs as single files: git pack-refs --all")
                value = _ref(source, at) if entry.kind == "file" and not at.endswith(b".lock") else b""
                if value:
                    yield at, value


def _ref(source: OpenSource, path: bytes) -> bytes:
    try:
        return (read_all(source, path, _REF_LIMIT) or b"").strip()
    except OSError as error:
        if is_absence(error) or isinstance(error, PermissionError):
            return b""  # it has just been packed or deleted
        raise


def _packed(data: bytes, loose: dict[bytes, bytes]) -> bytes:
    """Return packed-refs with the loose refs added. The header claims only that it is sorted: git then looks up which
    refs are annotated tags (packed-backend.c, "peeled")."""
    rows: dict[bytes, bytes] = {}
    name = b""
    for line in data.split(b"\n"):
        if line.startswith(b"^") and name:
            rows[name] += line + b"\n"
        elif line and not line.startswith(b"#"):
            name = line.partition(b" ")[2]
            rows[name] = line + b"\n"
    rows |= {name: value + b" " + name + b"\n" for name, value in loose.items()}
    return b"# pack-refs with: sorted \n" + b"".join(rows[name] for name in sorted(rows))
