"""Import the commits that an agent made in its fork into the user's repository, as a branch.

The fork's repository was written by an agent, so git itself never runs on it. Objects and refs are read as data
(``git/objects.py``, ``git/refs.py``), new ones are checked (``git/check.py``, ``git/walk.py``), and one pack and one
branch are written (``git/write.py``). HEAD, index and work tree of the project's repository stay unchanged.

This file imports nothing heavy: dulwich comes with the extra ``git``, and is imported only when commits are imported.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.stage.source import Source

if TYPE_CHECKING:
    from mudroom.vault.git.check import CommitText
    from mudroom.vault.git.objects import ForkObjects
    from mudroom.vault.git.repository import Repository, RepositoryPlace
    from mudroom.vault.git.walk import NewObjects

DULWICH = (1, 2, 21)
"""The oldest supported version, as in pyproject.toml."""
_INSTALL = "pip install 'mudroom[git]'"
_SUBJECT_LENGTH = 200


class Commit(NamedTuple):
    id: str
    subject: str
    """One line, escaped for display."""
    author: str
    """Name and mail address, escaped for display."""


class Commits(NamedTuple):
    branch: str
    """Full name of the ref in the project's repository: refs/heads/mudroom/agent-1."""
    head: str
    """The commit it points to now."""
    commits: tuple[Commit, ...]
    """Commits that no branch or tag of the repository reached, oldest first."""
    objects: int
    """Number of copied objects. May be low or 0 if git still has the objects of a removed branch."""
    before: str
    """The commit the branch pointed to before; empty if it is new."""


def bring_commits(
    project: bytes,
    repository: bytes,
    view: Source,
    *,
    branch: str | None,
    fork: str,
    source_ref: str | None = None,
) -> Commits:
    """Import the commits at ``source_ref`` of a fork (default: its HEAD) into the project's repository, as a new branch
    or by moving an existing one forward.

    ``repository``: the path of the ``.git`` below the project. ``view``: the whole fork, as a command sees it; no
    command may be running in it. ``branch``: default ``mudroom/<fork>``. ``source_ref``: HEAD, a full ref name
    (refs/heads/x), the name of a branch or tag, or a commit id.

    Objects are on disk before the branch is. Raise UsageError, without changing a branch: if there is nothing new to
    import; if the branch exists and is not an ancestor of the commits, or a work tree is on it; if an object is
    missing, damaged, too large or refused by git's fsck; if either repository is of an unsupported kind.
    """
    _require_dulwich()
    from mudroom.vault.git.history import History
    from mudroom.vault.git.objects import ForkObjects
    from mudroom.vault.git.refs import Refs
    from mudroom.vault.git.repository import Repository, find_repository
    from mudroom.vault.git.walk import Walk
    from mudroom.vault.git.write import RepositoryWriter

    place = find_repository(project, repository)
    git, common = _in_view(project, repository, view, place)
    name = _branch_name(branch, fork)
    with Repository(place) as live:
        head = Refs(view, git, common, live.format.hex_length).resolve(source_ref or "HEAD")
        before = _require_free(live, name)
        known = live.packs()
        with ForkObjects(view, common + b"/objects", live.format.name, known) as objects:
            history = History(live, objects)
            head = history.peel(head)
            if before and not history.reaches(head, before):
                raise UsageError(
                    f"the branch {show(name[11:])} has commits that the fork's does not have",
                    "it is never overwritten: choose another with --branch",
                )
            new = Walk(live, history).new(head)
            if not new.commits:
                raise UsageError(
                    f"the fork {fork} has no commits that the repository does not have",
                    "what is not committed comes with mudroom apply, without --commits",
                )
            write = RepositoryWriter(live)
            if new.missing:
                write.add_objects(len(new.missing), _checked(objects, new))
        write.set_branch(name, before, head, b"mudroom: commits of the fork " + fork.encode())
    commits = tuple(_describe(name, text) for name, text in new.commits)
    return Commits(os.fsdecode(name), head.decode(), commits, len(new.missing), before.decode())


def remove_branch(project: bytes, repository: bytes, commits: Commits) -> None:
    """Move a branch back to where it was before ``bring_commits``, or remove it if it was new.

    Objects stay until git's garbage collection. Raise UsageError if the branch has moved since, or a work tree is on
    it.
    """
    _require_dulwich()
    from mudroom.vault.git.repository import Repository, find_repository
    from mudroom.vault.git.write import RepositoryWriter

    name, head = os.fsencode(commits.branch), commits.head.encode()
    with Repository(find_repository(project, repository)) as live:
        current = _require_free(live, name)
        if current != head:
            state = "is not there" if not current else "has moved"
            raise UsageError(f"the branch {show(name[11:])} {state} since its commits were brought", "see git reflog")
        if commits.before:
            RepositoryWriter(live).set_branch(name, head, commits.before.encode(), b"mudroom: undo")
        else:
            RepositoryWriter(live).remove_branch(name, head)


def _require_dulwich() -> None:
    needed = ".".join(map(str, DULWICH))
    try:
        from dulwich import __version__ as version
    except ImportError:
        raise UsageError(f"importing commits needs dulwich {needed}, which is not installed", _INSTALL) from None
    if version < DULWICH:
        shown = ".".join(map(str, version))
        raise UsageError(f"importing commits needs dulwich {needed}; found: {shown}", _INSTALL)


# --- whose repository, and which branch ---


def _in_view(project: bytes, repository: bytes, view: Source, place: RepositoryPlace) -> tuple[bytes, bytes]:
    """Return the directories of HEAD and of objects in the fork. The project's repository decides them, never the
    fork's.
    """
    from mudroom.vault.git.place import is_outside
    from mudroom.vault.git.private_directory import fork_git_directory

    shown = show(repository)
    root = os.path.realpath(project)
    if is_outside(project, place):
        return fork_git_directory(project, repository, view, place)
    at = os.path.join(root, repository)
    live_link, link = _link(at), None
    entry = view.look(repository)
    if entry is not None and entry.kind == "file":
        from mudroom.vault.git.read import read_small

        link = read_small(view, repository, 1 << 16)
    elif entry is not None and entry.kind == "symlink":
        link = entry.target
    if entry is None or link != live_link or (link is None and entry.kind != "directory"):
        state = "is gone" if entry is None else "is not what the project has there"
        raise UsageError(f"{shown} in the fork {state}: its commits cannot be brought", "mudroom diff shows what it is")
    return place.git[len(root) + 1 :], place.common[len(root) + 1 :]


def _link(path: bytes) -> bytes | None:
    """Return the text of a ``.git`` file or the target of a ``.git`` link; None for a directory."""
    if os.path.islink(path):
        return os.readlink(path)
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as stream:
        return stream.read(1 << 16)


def _branch_name(branch: str | None, fork: str) -> bytes:
    from dulwich.refs import Ref, check_ref_format

    requested = os.fsencode(branch or f"mudroom/{fork}")
    short = requested.removeprefix(b"refs/heads/")
    name = b"refs/heads/" + short
    bad = short.startswith((b"-", b"refs/")) or short == b"HEAD"
    if bad or not check_ref_format(Ref(name)) or len(max(name.split(b"/"), key=len)) > 250:
        raise UsageError(f"{show(requested)} cannot be the name of a branch", "choose one with --branch")
    return name


def _require_free(live: Repository, name: bytes) -> bytes:
    """Return the commit a branch points to, b"" if it is new. Raise UsageError if the branch must not be changed."""
    before = live.branch(name)
    where = live.checked_out().get(name)
    if where is not None:
        raise UsageError(f"{show(name[11:])} is checked out, so it is not moved", "git switch to another branch first")
    other = live.conflicting_ref(name)
    if other is not None:
        raise UsageError(f"{show(name)} cannot exist beside {show(other)}", "choose another --branch")
    return before


# --- what is brought ---


def _checked(objects: ForkObjects, new: NewObjects) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the objects to copy, each with its hash compared once more."""
    from mudroom.vault.git.check import check_attributes
    from mudroom.vault.git.read import refusal

    for name, kind in new.missing.items():
        actual, data = objects.get(name) or (b"", b"")
        if actual != kind:
            reason = f"is a {actual.decode()}, not a {kind.decode()}" if actual else "is missing"
            raise refusal(f"the object {name.decode()} {reason}")
        try:
            if (name, b".gitmodules") in new.settings:
                _check_submodules(data)
            if (name, b".gitattributes") in new.settings:
                check_attributes(data)
        except ValueError as error:
            raise refusal(f"the object {name.decode()} {error}") from None
        yield name, kind, data


def _check_submodules(data: bytes) -> None:
    from dulwich.config import ConfigFile

    from mudroom.vault.git.check import check_submodules

    try:
        settings = ConfigFile.from_file(io.BytesIO(data), expand_includes=False)
    except ValueError:
        raise ValueError("is a .gitmodules that cannot be parsed") from None
    submodules = {}
    for section in settings.sections():
        if section[0].lower() == b"submodule" and len(section) > 1:
            submodules[section[1]] = {key.lower(): value for key, value in settings.items(section)}
    check_submodules(submodules)


def _describe(name: bytes, text: CommitText) -> Commit:
    paragraph = text.message.strip().partition(b"\n\n")[0]
    subject = _plain(b" ".join(paragraph.split()))
    return Commit(name.decode(), subject[:_SUBJECT_LENGTH], _plain(text.author)[:_SUBJECT_LENGTH])


def _plain(text: bytes) -> str:
    """Return text as one line without control characters."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in text.decode("utf-8", "replace")
    )
