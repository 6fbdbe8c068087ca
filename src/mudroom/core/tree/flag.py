"""Flags: what a reviewer should notice about a path, by its name alone.

``executes-later``   the file runs when somebody opens, builds, installs or enters the project
``secret``           the name is one under which keys and passwords are kept
``protected``        never applied unless the user names the path: it would change what later commands do on the host

The patterns hold wherever in the tree the file is, nested repositories included (CVE-2025-53773, CVE-2026-25725).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from mudroom.core.tree.change import Change
from mudroom.core.tree.secret import is_secret

_EXECUTES_NAMES = frozenset(
    b""".envrc .bashrc .bash_profile .profile .zshrc .zshenv .zprofile .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs
    package.json Makefile makefile GNUmakefile CMakeLists.txt conftest.py setup.py setup.cfg pyproject.toml tox.ini
    noxfile.py sitecustomize.py usercustomize.py pyvenv.cfg Rakefile Gemfile build.rs build.gradle build.gradle.kts
    justfile Justfile Taskfile.yml Dockerfile docker-compose.yml compose.yaml .pre-commit-config.yaml .gitattributes
    .gitmodules .gitconfig .mcp.json .gitlab-ci.yml Jenkinsfile lefthook.yml flake.nix shell.nix default.nix""".split()
)
_EXECUTES_SUFFIXES = (b".pth", b".code-workspace")
_EXECUTES_PARTS = ((b".git", b"hooks"), (b".github", b"workflows"))
_EXECUTES_DIRECTORIES = frozenset(
    (b".vscode", b".idea", b".husky", b".githooks", b".devcontainer", b".claude", b".cursor", b".codex")
)

# commondir says where else git finds its settings and hooks: gitrepository-layout(5).
_GIT_CONFIGURATION = frozenset((b"config", b"config.worktree", b"commondir"))
_HALLMARKS = frozenset((b"HEAD", b"objects", b"refs"))
"""What makes a directory a repository."""


def flags_of(path: bytes) -> tuple[str, ...]:
    """The flags of a path, in a fixed order."""
    parts = path.split(b"/")
    protected = is_protected(path)
    found = []
    if _executes_later(parts) or (protected and git_directory(path) is not None):
        found.append("executes-later")
    if is_secret(parts[-1]):
        found.append("secret")
    if protected:
        found.append("protected")
    return tuple(found)


def _executes_later(parts: list[bytes]) -> bool:
    if parts[-1] in _EXECUTES_NAMES or parts[-1].endswith(_EXECUTES_SUFFIXES):
        return True
    if not _EXECUTES_DIRECTORIES.isdisjoint(parts):
        return True
    return any(pair in _EXECUTES_PARTS for pair in itertools.pairwise(parts)) or parts[-2:] == [b".git", b"config"]


def git_directory(path: bytes) -> bytes | None:
    """The ``.git`` directory that ``path`` lies in (or is), outermost first; None if it is in none."""
    parts = path.split(b"/") if b".git" in path else []
    if b".git" not in parts:
        return None
    return b"/".join(parts[: parts.index(b".git") + 1])


def repositories(changes: Iterable[Change]) -> set[bytes]:
    """The ``.git`` directories that changes are in. A ``.git`` file is not among them: it names another directory,
    whose hooks would run, so it has to be named itself."""
    found: set[bytes] = set()
    files: set[bytes] = set()
    for change in changes:
        git = git_directory(change.path)
        if git is not None:
            found.add(git)
        if git == change.path and any(e is not None and e.kind != "directory" for e in (change.base, change.staged)):
            files.add(change.path)
    return found - files


def git_runs(change: Change, exists: Callable[[bytes], bool], is_there: Callable[[bytes], bool]) -> bool:
    """Whether git would run what a change brings, which its path alone does not tell: a ``.git`` that is no directory
    names another repository; settings and hooks of a repository without a ``.git``, or what makes a directory that has
    some into one. ``exists``: whether fork or project have a path; ``is_there``: whether the project does."""
    parts = change.path.split(b"/")
    if parts[-1] == b".git":
        return any(entry is not None and entry.kind != "directory" for entry in (change.base, change.staged))
    tops = [parts[:index] for index, part in enumerate(parts) if part == b"hooks"]
    if parts[-1] in _GIT_CONFIGURATION:
        tops.append(parts[:-1])
    if any(_is_repository(top, exists) for top in tops):
        return True
    top = parts[:-1]
    if parts[-1] not in _HALLMARKS or not any(is_there(_in(top, name)) for name in (*_GIT_CONFIGURATION, b"hooks")):
        return False
    return _is_repository(top, exists) and not _is_repository(top, is_there)


def _is_repository(top: list[bytes], exists: Callable[[bytes], bool]) -> bool:
    """gitrepository-layout(5); setup.c, is_git_directory: HEAD, and objects and refs beside it or where a commondir
    says that they are."""
    if not exists(_in(top, b"HEAD")):
        return False
    return exists(_in(top, b"commondir")) or (exists(_in(top, b"objects")) and exists(_in(top, b"refs")))


def _in(top: list[bytes], name: bytes) -> bytes:
    return b"/".join((*top, name))


def protect(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Flags of a change, and those of what git runs, in their fixed order."""
    wanted = {*flags, "executes-later", "protected"}
    first = tuple(flag for flag in ("executes-later", "secret", "protected") if flag in wanted)
    return (*first, *(flag for flag in flags if flag not in first))


def is_protected(path: bytes) -> bool:
    """Whether apply leaves ``path`` out unless it is named: a ``.mudroom``, git's hooks and settings. A ``.mudroom``
    anywhere makes the directory that it is in a project of its own, where this project's policy does not hold."""
    if b".mudroom" in path and b".mudroom" in path.split(b"/"):
        return True
    return b".git" in path and any(_is_configuration(within) for within in _within_repositories(path))


def _within_repositories(path: bytes) -> Iterator[list[bytes]]:
    """Where in a ``.git`` directory the path is, for each that it is in: one may lie in another."""
    parts = path.split(b"/")
    for index, part in enumerate(parts[:-1]):
        if part == b".git":
            yield parts[index + 1 :]


def _is_configuration(within: list[bytes]) -> bool:
    if within[0] in (b"modules", b"worktrees"):
        return within[-1] in _GIT_CONFIGURATION or b"hooks" in within[2:]
    return within[0] == b"hooks" or (len(within) == 1 and within[0] in _GIT_CONFIGURATION)
