"""A fork's commits: values, branch names, and their place in the fork.

The fork's repository was written by an agent, so git itself never runs on it. Objects and refs are read as data
(``objects.py``, ``fork_refs.py``), new objects are checked (``check.py``, ``walk.py``), one pack is added and refs are
moved (``transfer.py``, ``ref_transaction.py``).

This file imports nothing heavy: dulwich is imported only when commits are brought or listed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

from mudroom.core.git.outcome import Commit
from mudroom.core.text.invisible_characters import escaped
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.ext.commits.git.check import CommitText, check_attributes, check_submodules
from mudroom.ext.commits.git.read import read_small, refusal
from mudroom.stage import disk
from mudroom.stage.source import Source
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.git.place import RepositoryPlace, is_outside
from mudroom.vault.git.private_directory import private_problem

if TYPE_CHECKING:
    from mudroom.ext.commits.git.objects import ForkObjects
    from mudroom.ext.commits.git.repository import Repository
    from mudroom.ext.commits.git.walk import NewObjects

DULWICH = (1, 2, 21)
"""The oldest supported version, as in pyproject.toml."""
_INSTALL = "pip install -U mudroom dulwich"
_SUBJECT_LENGTH = 200


def require_dulwich() -> None:
    """Raise UsageError unless a supported dulwich version is installed."""
    needed = ".".join(map(str, DULWICH))
    try:
        from dulwich import __version__ as version
    except ImportError:
        raise UsageError(f"commits need dulwich {needed}, which is not installed", _INSTALL) from None
    if version < DULWICH:
        shown = ".".join(map(str, version))
        raise UsageError(f"commits need dulwich {needed}; found: {shown}", _INSTALL)


# --- whose repository, and which branch ---


def directories_in_view(project: bytes, repository: bytes, view: Source, place: RepositoryPlace) -> tuple[bytes, bytes]:
    """Return the fork's directories with HEAD and with objects. The project's repository decides them, never the
    fork's."""
    shown = show(repository)
    root = disk.real_path(project)
    if is_outside(project, place):
        return _private_directory(project, repository, view, place)
    at = os.path.join(root, repository)
    live_link, link = _link(at), None
    entry = view.look(repository)
    if entry is not None and entry.kind == "file":
        link = read_small(view, repository, 1 << 16)
    elif entry is not None and entry.kind == "symlink":
        link = entry.target
    if entry is None or link != live_link or (link is None and entry.kind != "directory"):
        state = "is gone" if entry is None else "is not what the project has there"
        raise UsageError(f"{shown} in the fork {state}: its commits cannot be brought", "mudroom diff shows what it is")
    return place.git[len(root) + 1 :], place.common[len(root) + 1 :]


def _private_directory(project: bytes, repository: bytes, view: Source, place: RepositoryPlace) -> tuple[bytes, bytes]:
    """Return the directories with HEAD and with objects in a fork's view, for a ``.git`` that leads outside the
    project: both are the private repository. Raise UsageError if the fork has none, or the outside repository does
    not name this work tree."""
    shown, entry = show(repository), view.look(repository)
    try:
        directory = os.path.join(project, os.path.dirname(repository))
        # A link in the user's project may lead to a work tree elsewhere.
        is_inside = is_below(disk.real_path(directory), disk.real_path(project))
        problem = private_problem(directory, place) if is_inside else "whose work tree is not in it"
    except ValueError as error:
        problem = f"whose settings cannot be read: {error}"
    # a stranger's archive must not have commits brought into another of the user's repositories
    if problem:
        raise UsageError(
            f"{shown} belongs to a repository outside of the project, {problem}",
            "run mudroom in the directory of the main repository",
        )
    if entry is None or entry.kind != "directory":
        raise UsageError(
            f"{shown} belongs to a repository outside of the project, to which this fork cannot commit",
            "mudroom fork new NAME makes one that can",
        )
    return repository, repository


def _link(path: bytes) -> bytes | None:
    """Return the text of a ``.git`` file or the target of a ``.git`` link; None for a directory."""
    if os.path.islink(path):
        return os.readlink(path)
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as stream:
        return stream.read(1 << 16)


def branch_name(branch: str | None, fork: str) -> bytes:
    """Return a branch's full name; default: the fork's own. Raise UsageError if git refuses it."""
    from dulwich.refs import Ref, check_ref_format

    requested = os.fsencode(branch or f"mudroom/{fork}")
    short = requested.removeprefix(b"refs/heads/")
    name = b"refs/heads/" + short
    bad = short.startswith((b"-", b"refs/")) or short == b"HEAD"
    if bad or not check_ref_format(Ref(name)) or len(max(name.split(b"/"), key=len)) > 250:
        raise UsageError(f"{show(requested)} cannot be the name of a branch", "choose one with --branch")
    return name


def require_free(live: Repository, name: bytes) -> bytes:
    """Return the branch's present commit, or b"" if it is new. Raise UsageError if the branch must not be changed."""
    before = live.branch(name)
    where = live.checked_out().get(name)
    if where is not None:
        raise UsageError(f"{show(name[11:])} is checked out, so it is not moved", "choose another --branch")
    other = live.conflicting_ref(name)
    if other is not None:
        raise UsageError(f"{show(name)} cannot exist beside {show(other)}", "choose another --branch")
    return before


# --- the objects to bring ---


def checked_objects(objects: ForkObjects, new: NewObjects) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the objects to copy (id, kind, content), with each hash verified again."""
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

    try:
        settings = ConfigFile.from_file(io.BytesIO(data), expand_includes=False)
    except ValueError:
        raise ValueError("is a .gitmodules that cannot be parsed") from None
    submodules = {}
    for section in settings.sections():
        if section[0].lower() == b"submodule" and len(section) > 1:
            submodules[section[1]] = {key.lower(): value for key, value in settings.items(section)}
    check_submodules(submodules)


def describe(name: bytes, text: CommitText) -> Commit:
    """Return the first paragraph of a commit's message, and its author, for display."""
    paragraph = text.message.strip().partition(b"\n\n")[0]
    subject = _plain(b" ".join(paragraph.split()))
    return Commit(name.decode(), subject[:_SUBJECT_LENGTH], _plain(text.author)[:_SUBJECT_LENGTH])


def _plain(text: bytes) -> str:
    return escaped(text.decode("utf-8", "surrogateescape"))
