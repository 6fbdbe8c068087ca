"""Repositories and linked directories made in a fork: which of them may be applied like other files. Pure.

A repository made by ``git init`` or ``git clone`` is applied as a whole if it is harmless: all its settings are in the
table below, it has no active hook, and it does not lead elsewhere. Otherwise all of it is protected; half a repository
would be a broken one.

A linked directory (``git worktree add``, ``git submodule add``) has a file ``.git`` that leads into one of the
project's repositories, which are never applied as files. Without that, the directory is a copy that no repository
knows, so it is protected as well; git makes it again from its branch or its URL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from mudroom.core.git.settings_file import GitSetting, parse_settings
from mudroom.core.text.regex import regex
from mudroom.core.tree.change import Change
from mudroom.core.tree.flag import MADE, git_directory, git_runs, hallmark, is_protected, is_repository, is_setting
from mudroom.core.tree.git_name import spell
from mudroom.core.tree.path import is_below, name, parent, show
from mudroom.core.tree.quote import show_words
from mudroom.typing import Literal, NamedTuple

_PLAIN_KEYS = frozenset({
    b"core.repositoryformatversion", b"core.filemode", b"core.bare", b"core.logallrefupdates", b"core.symlinks",
    b"core.ignorecase", b"core.precomposeunicode", b"core.autocrlf", b"core.eol", b"core.safecrlf",
    b"core.sparsecheckout", b"core.sparsecheckoutcone", b"core.abbrev", b"core.quotepath", b"index.sparse",
    b"index.version", b"extensions.noop", b"extensions.objectformat", b"extensions.refstorage",
    b"extensions.compatobjectformat", b"extensions.partialclone", b"extensions.preciousobjects",
    b"extensions.worktreeconfig", b"extensions.relativeworktrees", b"user.name", b"user.email", b"author.name",
    b"author.email", b"committer.name", b"committer.email", b"init.defaultbranch", b"push.default",
    b"push.autosetupremote", b"pull.rebase", b"pull.ff", b"fetch.prune", b"merge.ff", b"rebase.autostash",
    b"commit.gpgsign", b"tag.gpgsign", b"gc.auto", b"submodule.active", b"lfs.repositoryformatversion",
})  # fmt: skip
_PLAIN_KEYS_BY_NAME = {
    b"remote": frozenset(
        b"fetch push tagopt prune prunetags mirror promisor partialclonefilter skipdefaultupdate gh-resolved".split()
    ),
    b"branch": frozenset(b"merge rebase description vscode-merge-base gh-merge-base".split()),
    b"submodule": frozenset(b"active branch ignore shallow fetchrecursesubmodules".split()),
    b"advice": frozenset((b"*",)),
    b"color": frozenset((b"*",)),
}
"""Keys by section that are harmless with any subsection."""
_URL_KEYS = {
    b"remote": frozenset((b"url", b"pushurl", b"pushdefault")),
    b"branch": frozenset((b"remote", b"pushremote")),
    b"submodule": frozenset((b"url",)),
}
_UPDATES = frozenset((b"checkout", b"rebase", b"merge", b"none"))
_SCHEMES = frozenset(b"http https ssh git file git+ssh ssh+git ftp ftps".split())
_SCHEME = regex(rb"([A-Za-z0-9][A-Za-z0-9+.-]*)://")
_BRANCH = regex(rb"ref: refs/heads/([A-Za-z0-9][A-Za-z0-9._/-]{0,199})\s*")
_LONGEST_LINK = 100  # components
_LINK = regex(rb"gitdir: ([^\0\n]+?)[\r\n]*")

Read = Callable[[bytes], bytes | None]
"""Return a file's content in the fork; None if it cannot be read or is too large."""


class NewRepository(NamedTuple):
    top: bytes
    """``x/.git``, or ``x`` for a bare repository."""
    reason: str
    """Why it is protected; "" if it is harmless."""


class LinkedDirectory(NamedTuple):
    path: bytes
    kind: Literal["work-tree", "submodule"]
    target: bytes
    """The directory in a repository to which its ``.git`` leads."""


# --- repositories ---


def new_tops(changes: Iterable[Change]) -> list[bytes]:
    """Return the directories of new repositories: each ``.git`` directory and each bare repository that the project
    does not have. ``changes`` are in walking order. A directory inside another repository belongs to that repository.
    """
    added = {change.path: change for change in changes if change.base is None and change.staged is not None}
    hallmarks = {parent(path) + b"/" + found for path in added if (found := hallmark(name(path))) is not None}
    tops: list[bytes] = []
    for path, change in added.items():
        if change.entry.kind != "directory" or (tops and is_below(path, tops[-1])):
            continue
        git = git_directory(path)
        if git == path or (git is None and is_repository(path.split(b"/"), hallmarks.__contains__)):
            tops.append(path)
    return tops


def examine(top: bytes, inside: Iterable[Change], exists: Callable[[bytes], bool], read: Read) -> NewRepository:
    """Return whether a new repository is harmless. ``inside``: the changes at and below ``top``. ``exists``: whether
    the fork or the project has a path."""
    for change in inside:
        reason = _reason_against(change, top, exists, read)
        if reason:
            return NewRepository(top, reason)
    return NewRepository(top, "")


def _reason_against(change: Change, top: bytes, exists: Callable[[bytes], bool], read: Read) -> str:
    path = change.path
    within = path[len(top) + 1 :]
    kind = change.entry.kind
    if kind == "symlink":
        return f"{show(within)} is a symbolic link" if within else "it is a symbolic link"
    if not within or not is_git_setting(change, within, exists):
        return ""
    spelling = spell(name(path))
    if spelling in (b"config", b"config.worktree") and kind == "file":
        return _reason_against_config(path, top, read)
    if spelling == b"hooks" or spell(name(parent(path))) == b"hooks":
        is_sample = name(path).endswith(b".sample") and kind == "file"
        is_harmless = is_sample or (spelling == b"hooks" and kind == "directory")
        return "" if is_harmless else f"it has the hook {show(within)}"
    return f"it has {show(within)}"


def is_git_setting(change: Change, within: bytes, exists: Callable[[bytes], bool]) -> bool:
    """Return whether git would follow the file: a setting in this repository, or in another one inside it."""
    parts = within.split(b"/")
    return is_setting(parts) or is_protected(change.path) or git_runs(change, exists, lambda _path: False)


def _reason_against_config(path: bytes, top: bytes, read: Read) -> str:
    shown = show(path[len(top) + 1 :])
    data = read(path)
    if data is None:
        return f"its {shown} cannot be read, or is too large"
    try:
        settings = parse_settings(data)
    except ValueError as error:
        return f"its {shown} is not understood: {error}"
    harmful = next((setting for setting in settings if not _is_harmless(setting, parent(path), top)), None)
    return f"its {shown} sets {show(harmful.name[:80])}" if harmful is not None else ""


def _is_harmless(setting: GitSetting, directory: bytes, top: bytes) -> bool:
    section, subsection, key, value = setting
    if subsection is None and section + b"." + key in _PLAIN_KEYS:
        return True
    if key in _URL_KEYS.get(section, ()):
        return value is not None and is_harmless_url(value)
    if setting.name == b"core.worktree":
        return value is not None and _is_module_work_tree(value, directory, top)
    if section == b"submodule" and key == b"update":
        return value in _UPDATES
    keys = _PLAIN_KEYS_BY_NAME.get(section, frozenset())
    return key in keys or b"*" in keys


def _is_module_work_tree(value: bytes, directory: bytes, top: bytes) -> bool:
    """Return whether a submodule repository (``x/.git/modules/lib``) has its work tree beside ``x/.git``."""
    if not is_below(directory, top + b"/modules") or value.startswith(b"/"):
        return False
    place = _resolved(directory, value)
    return bool(place) and is_below(place, parent(top)) and not is_below(place, top)


def _resolved(directory: bytes, path: bytes) -> bytes:
    """Return a path relative to ``directory`` as a path in the project; b"" if it is the project or outside it."""
    parts: list[bytes] = []
    for part in (directory + b"/" + path).split(b"/"):
        if part == b".." and not parts:
            return b""
        if part == b"..":
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/".join(parts)


def is_harmless_url(url: bytes) -> bool:
    """Return whether git can read this URL or path without running a command that it contains or a helper that the
    scheme names: gitremote-helpers(7)."""
    if url.startswith(b"-") or re.search(rb"[\0-\x1f\x7f]", url) or re.match(rb"[A-Za-z0-9]*::", url):
        return False
    scheme = _SCHEME.match(url)
    if scheme is None:
        return True
    rest = url[scheme.end() :].partition(b"/")[0].rpartition(b"@")[2]
    return scheme.group(1).lower() in _SCHEMES and not rest.startswith(b"-")


# --- linked directories ---


def link_target(path: bytes, content: bytes, exists: Callable[[bytes], bool]) -> bytes | None:
    """Return the path in the project to which a ``.git`` file leads; None if it leads to no repository there. ``path``:
    the file's path; ``content``: its text. For an absolute path the end is compared, since a fork can see the project
    at another place."""
    match = _LINK.fullmatch(content)
    if match is None:
        return None
    target = match.group(1)
    if target.startswith(b"/"):
        parts = target.split(b"/")[-_LONGEST_LINK:]
        candidates = [b"/".join(parts[index:]) for index in range(1, len(parts))]
    else:
        candidates = [_resolved(parent(path), target)]
    return next((end for end in candidates if git_directory(end) not in (None, end) and exists(end)), None)


def linked_directory(path: bytes, target: bytes) -> LinkedDirectory | None:
    """Return the linked directory whose ``.git`` file, at ``path``, leads to ``target``; None for another kind."""
    git = git_directory(target)
    within = target[len(git) + 1 :].split(b"/") if git is not None and git != target else [b""]
    if within[0] == b"worktrees" and len(within) == 2:
        return LinkedDirectory(parent(path), "work-tree", target)
    if within[0] == b"modules" and len(within) > 1:
        return LinkedDirectory(parent(path), "submodule", target)
    return None


def branch_of(head: bytes | None) -> bytes:
    """Return the branch that a HEAD file names; ``BRANCH`` if there is none, or its name is not a plain one."""
    match = _BRANCH.fullmatch(head or b"")
    return match.group(1) if match is not None else b"BRANCH"


# --- remarks ---


def repository_remark(repository: NewRepository) -> str:
    return f"is a repository {MADE}; it is left out unless you name it, because {repository.reason}"


def linked_remark(linked: LinkedDirectory, head: bytes | None) -> str:
    """Return a remark: what is left out, and the command that makes it. ``head``: the HEAD file in the target."""
    path = b"./" + linked.path if linked.path.startswith(b"-") else linked.path
    if linked.kind == "work-tree":
        command, needed = [b"git", b"worktree", b"add", path, branch_of(head)], "its branch"
    else:
        command, needed = [b"git", b"submodule", b"update", b"--init", path], "the commit that names it"
    noun = "work tree" if linked.kind == "work-tree" else "submodule"
    return (
        f"is a {noun} {MADE}; it is left out: after mudroom apply --git has brought {needed}, {show_words(command)}"
        " makes it"
    )
