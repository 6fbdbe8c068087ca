"""The user's git settings as data: global files, the repository's own, and files that they include. git-config(1).

If an ``includeIf`` condition is not understood, the settings in its file are uncertain; an uncertain identity is never
used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from mudroom.core.git.settings_file import GitSetting, parse_settings
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.stage import disk
from mudroom.stage.source import read_own
from mudroom.typing import NamedTuple
from mudroom.vault.git.place import SETTINGS_LIMIT, RepositoryPlace, is_true

_DEPTH = 10  # config.c, MAX_INCLUDE_DEPTH
_GLOB = regex(rb"\*\*/|\*\*|\*|\?|[^*?]+")
_REGEX = {b"**/": b"(?:.*/)?", b"**": b".*", b"*": b"[^/]*", b"?": b"[^/]"}


class UserFiles(NamedTuple):
    """The user's settings files, highest precedence last: git-config(1), "Files"."""

    home: bytes
    paths: tuple[bytes, ...]
    variables: Mapping[bytes, bytes] | None = None
    """Variables for the user's programs; None: this process's."""


def user_git_files(environ: Mapping[bytes, bytes]) -> UserFiles:
    """Return the user's git settings files: git-config(1), "Files"."""
    home = environ.get(b"HOME", b"/")
    own = environ.get(b"XDG_CONFIG_HOME") or home + b"/.config"
    system = () if environ.get(b"GIT_CONFIG_NOSYSTEM") else (environ.get(b"GIT_CONFIG_SYSTEM") or b"/etc/gitconfig",)
    instead = environ.get(b"GIT_CONFIG_GLOBAL")
    personal = (instead,) if instead is not None else (own + b"/git/config", home + b"/.gitconfig")
    return UserFiles(home, tuple(path for path in (*system, *personal) if path), environ)


class _Found(NamedTuple):
    setting: GitSetting
    is_certain: bool
    is_own: bool = True
    """Whether it is from the user's own files, not from the repository's."""


class UserSettings:
    def __init__(self, user: UserFiles, place: RepositoryPlace) -> None:
        """Raise UsageError if a file cannot be parsed."""
        self._home, self._git = user.home, place.git
        self._found: list[_Found] = []
        for path in user.paths:
            self._found += self._read(path, is_certain=True)
        self._add(place.common + b"/config")
        if self.flag(b"extensions", b"worktreeconfig", default=False):
            self._add(place.git + b"/config.worktree")

    def _add(self, path: bytes) -> None:
        self._found += [found._replace(is_own=False) for found in self._read(path, is_certain=True)]

    def _read(self, path: bytes, *, is_certain: bool, depth: int = 0) -> Iterator[_Found]:
        try:
            settings = parse_settings(read_own(path, SETTINGS_LIMIT))
        except ValueError as error:
            raise UsageError(f"{show(path)} cannot be read: {error}", "git config --list") from None
        for setting in settings:
            yield _Found(setting, is_certain)
            if setting.section not in (b"include", b"includeif") or setting.key != b"path" or not setting.value:
                continue
            holds = True if setting.section == b"include" else self._holds(setting.subsection or b"", path)
            if holds is not False and depth < _DEPTH:
                target = os.path.join(os.path.dirname(path), self.expanded(setting.value))
                yield from self._read(target, is_certain=is_certain and holds is True, depth=depth + 1)

    def expanded(self, path: bytes) -> bytes:
        """Return a path with the user's home for its tilde."""
        return self._home + path[1:] if path.startswith(b"~/") else path

    def _holds(self, condition: bytes, path: bytes) -> bool | None:
        """Return whether a condition holds; None if unknown."""
        kind, _colon, pattern = condition.partition(b":")
        if kind not in (b"gitdir", b"gitdir/i"):
            return None
        pattern = self.expanded(pattern)
        if pattern.startswith(b"./"):
            pattern = os.path.join(disk.real_path(os.path.dirname(path)), pattern[2:])
        elif not pattern.startswith(b"/"):
            pattern = b"**/" + pattern
        if pattern.endswith(b"/"):
            pattern += b"**"
        parts = (_REGEX.get(part) or re.escape(part) for part in _GLOB.findall(pattern))
        flags = re.IGNORECASE if kind.endswith(b"/i") else 0
        return re.fullmatch(b"".join(parts), self._git, flags | re.DOTALL) is not None

    def value(self, section: bytes, key: bytes) -> bytes | None:
        """Return a setting's value, or None if it is not set. Raise UsageError if it is uncertain."""
        return self._value(self._found, section, key)

    def own_value(self, section: bytes, key: bytes, subsection: bytes | None = None) -> bytes | None:
        """Return a value as ``value`` does, from the user's own files alone."""
        return self._value([found for found in self._found if found.is_own], section, key, subsection)

    def _value(self, among: list[_Found], section: bytes, key: bytes, subsection: bytes | None = None) -> bytes | None:
        for setting, is_certain, _is_own in reversed(among):
            if (setting.section, setting.subsection, setting.key) == (section, subsection, key):
                if not is_certain:
                    name = f"{section.decode()}.{key.decode()}"
                    raise UsageError(
                        f"{name} depends on a condition that mudroom does not know",
                        f"git config {name} VALUE sets it for this repository",
                    )
                return setting.value if setting.value is not None else b"true"
        return None

    def flag(self, section: bytes, key: bytes, *, default: bool) -> bool:
        value = self.value(section, key)
        return default if value is None else is_true(GitSetting(section, None, key, value))

    def identity(self) -> bytes:
        """Return the user's name and mail address as git writes them. Raise UsageError if they are not set."""
        values = {}
        for key in (b"name", b"email"):
            value = (self.value(b"user", key) or b"").strip(b" \t\n.,:;<>\"\\'")  # ident.c, crud
            values[key] = value.translate(None, b"<>\n\0")
            if not values[key]:
                raise UsageError(
                    f"git does not know who you are: user.{key.decode()} is not set",
                    f"git config --global user.{key.decode()} {'NAME' if key == b'name' else 'you@example.org'}",
                )
        return b"%s <%s>" % (values[b"name"], values[b"email"])
