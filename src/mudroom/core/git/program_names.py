"""Files that commands in a repository's settings and hooks name. Pure.

The keys that hold a command: git-config(1), gitattributes(5). Each word in a command or hook may be a path
(``sh run``). It is compared with the paths of changed files, so other words do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mudroom.core.git.settings_file import GitSetting
from mudroom.core.text.regex import regex

_COMMAND_KEYS = frozenset(
    b"""fsmonitor sshcommand editor pager askpass gitproxy alternaterefscommand program defaultkeycommand helper clean
    smudge process external command textconv driver cmd difffilter uploadpack receivepack packobjectshook tunnel
    sendmailcmd tocmd cccmd headercmd""".split()
)
"""Keys in any section whose value git runs: core.fsmonitor, filter.*.clean, diff.*.textconv, merge.*.driver."""
_PATHS_OF_PROGRAMS = frozenset((b"mergetool", b"difftool", b"man", b"browser"))
"""Sections in which ``path`` is a program's path."""
_NAMING = (b"hookspath", b"include", b"path", b"alias", b"pager", b"update", *sorted(_COMMAND_KEYS))
_BETWEEN = regex(rb"[\s\0'\"`;&|<>(){}$=,!]+")
"""NUL is a separator: no path holds one, and a hook may be a compiled program."""
_VARIABLE = regex(rb"\$\w+(?=/)")
_MOST = 10_000
"""Most words that are examined in a text."""


def may_name(data: bytes) -> bool:
    """Return whether a settings file may name a program or place in the project. In most repositories it does not, and
    is not parsed."""
    lower = data.lower()
    return any(word in lower for word in _NAMING)


def commands(settings: Iterable[GitSetting]) -> Iterator[bytes]:
    """Yield the values that git runs as commands."""
    for setting in settings:
        value = setting.value or b""
        is_command = setting.key in _COMMAND_KEYS or setting.section == b"pager"
        is_program = setting.key == b"path" and setting.section in _PATHS_OF_PROGRAMS
        if is_command or is_program or (value.startswith(b"!") and setting.section in (b"alias", b"submodule")):
            yield value


def path_words(text: bytes) -> Iterator[bytes]:
    """Yield the words in a command or script that may be paths. A word with a leading slash is yielded without it, too:
    it may follow the work tree's path (``$top/tools/check``)."""
    for word in _BETWEEN.split(_VARIABLE.sub(b" ", text), _MOST)[:_MOST]:
        if word.strip(b"./") and not word.startswith(b"-"):
            yield from (word, word.lstrip(b"/")) if word.startswith(b"/") else (word,)
