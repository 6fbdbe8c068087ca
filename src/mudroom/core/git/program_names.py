"""Commands in a repository's settings. Pure.

The keys that hold a command: git-config(1), gitattributes(5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mudroom.core.git.settings_file import GitSetting

_COMMAND_KEYS = frozenset({
    b"fsmonitor", b"sshcommand", b"editor", b"pager", b"askpass", b"gitproxy", b"alternaterefscommand", b"program",
    b"defaultkeycommand", b"helper", b"clean", b"smudge", b"process", b"external", b"command", b"textconv",
    b"driver", b"cmd", b"difffilter", b"uploadpack", b"receivepack", b"packobjectshook", b"tunnel", b"sendmailcmd",
    b"tocmd", b"cccmd", b"headercmd",
})  # fmt: skip
"""Keys in any section whose value git runs: core.fsmonitor, filter.*.clean, diff.*.textconv, merge.*.driver."""
_PATHS_OF_PROGRAMS = frozenset((b"mergetool", b"difftool", b"man", b"browser"))
"""Sections in which ``path`` is a program's path."""
_NAMING = (b"hookspath", b"include", b"path", b"alias", b"pager", b"update", *sorted(_COMMAND_KEYS))


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
