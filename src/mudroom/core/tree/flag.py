"""Flags that mark a path for the reviewer, derived from its name.

``executes-later``   the file runs when the project is opened, built, installed or entered
``secret``           the name is common for keys and passwords
``protected``        applied only if the user names the path: the file changes what later commands do on the host

The patterns match at any depth, including nested repositories (CVE-2025-53773, CVE-2026-25725).
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

# commondir names another directory for git's settings and hooks: gitrepository-layout(5).
_GIT_CONFIGURATION = frozenset((b"config", b"config.worktree", b"commondir"))
_HALLMARKS = frozenset((b"HEAD", b"objects", b"refs"))
"""Names that make a directory a git repository."""


def flags_of(path: bytes) -> tuple[str, ...]:
    """Return the flags of a path, in a fixed order."""
    parts = path.split(b"/")
    protected = is_protected(path)
    flags = []
    if _executes_later(parts) or (protected and git_directory(path) is not None):
        flags.append("executes-later")
    if is_secret(parts[-1]):
        flags.append("secret")
    if protected:
        flags.append("protected")
    return tuple(flags)


def _executes_later(parts: list[bytes]) -> bool:
    if parts[-1] in _EXECUTES_NAMES or parts[-1].endswith(_EXECUTES_SUFFIXES):
        return True
    if not _EXECUTES_DIRECTORIES.isdisjoint(parts):
        return True
    return any(pair in _EXECUTES_PARTS for pair in itertools.pairwise(parts)) or parts[-2:] == [b".git", b"config"]


def git_directory(path: bytes) -> bytes | None:
    """Return the outermost ``.git`` directory that is, or contains, ``path``; None if there is none."""
    parts = path.split(b"/") if b".git" in path else []
    if b".git" not in parts:
        return None
    return b"/".join(parts[: parts.index(b".git") + 1])


def repositories(changes: Iterable[Change]) -> set[bytes]:
    """Return the ``.git`` directories that contain changes. A ``.git`` file is not included: it points to another
    directory whose hooks would run, so the user has to name the file itself."""
    directories: set[bytes] = set()
    files: set[bytes] = set()
    for change in changes:
        git = git_directory(change.path)
        if git is not None:
            directories.add(git)
        if git == change.path and any(
            entry is not None and entry.kind != "directory" for entry in (change.base, change.staged)
        ):
            files.add(change.path)
    return directories - files


def git_runs(change: Change, exists: Callable[[bytes], bool], in_project: Callable[[bytes], bool]) -> bool:
    """Return whether git would execute something that this change brings, in the cases that ``is_protected`` cannot see
    by path: a ``.git`` that is not a directory and so points to another repository; settings and hooks of a bare
    repository; or a file that turns a directory with hooks or settings into a repository. ``exists`` tells whether the
    fork or the project has a path, ``is_there`` whether the project has it."""
    parts = change.path.split(b"/")
    if parts[-1] == b".git":
        return any(entry is not None and entry.kind != "directory" for entry in (change.base, change.staged))
    tops = [parts[:index] for index, part in enumerate(parts) if part == b"hooks"]
    if parts[-1] in _GIT_CONFIGURATION:
        tops.append(parts[:-1])
    if any(_is_repository(top, exists) for top in tops):
        return True
    top = parts[:-1]
    if parts[-1] not in _HALLMARKS or not any(in_project(_in(top, name)) for name in (*_GIT_CONFIGURATION, b"hooks")):
        return False
    return _is_repository(top, exists) and not _is_repository(top, in_project)


def _is_repository(top: list[bytes], exists: Callable[[bytes], bool]) -> bool:
    """Return whether git takes ``top`` for a repository: it has HEAD, and either commondir or both objects and refs.
    Sources: gitrepository-layout(5); is_git_directory in git's setup.c."""
    if not exists(_in(top, b"HEAD")):
        return False
    return exists(_in(top, b"commondir")) or (exists(_in(top, b"objects")) and exists(_in(top, b"refs")))


def _in(top: list[bytes], name: bytes) -> bytes:
    return b"/".join((*top, name))


def protect(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``flags`` with ``executes-later`` and ``protected`` added, in the fixed order."""
    present = {*flags, "executes-later", "protected"}
    leading = tuple(flag for flag in ("executes-later", "secret", "protected") if flag in present)
    return (*leading, *(flag for flag in flags if flag not in leading))


def is_protected(path: bytes) -> bool:
    """Return whether apply leaves out ``path`` unless the user names it: anything in a ``.mudroom``, and git's hooks
    and settings. A ``.mudroom`` in any directory makes that directory a separate project, in which this project's
    policy does not hold."""
    if b".mudroom" in path and b".mudroom" in path.split(b"/"):
        return True
    return b".git" in path and any(_is_configuration(within) for within in _within_repositories(path))


def _within_repositories(path: bytes) -> Iterator[list[bytes]]:
    """Yield the components of ``path`` below each ``.git`` directory in it; repositories can be nested."""
    parts = path.split(b"/")
    for index, part in enumerate(parts[:-1]):
        if part == b".git":
            yield parts[index + 1 :]


def _is_configuration(within: list[bytes]) -> bool:
    if within[0] in (b"modules", b"worktrees"):
        return within[-1] in _GIT_CONFIGURATION or b"hooks" in within[2:]
    return within[0] == b"hooks" or (len(within) == 1 and within[0] in _GIT_CONFIGURATION)
