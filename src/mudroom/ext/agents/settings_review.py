"""An agent's changed settings as lines of a review, shown apart from the project's files."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence

from mudroom.cli.change.agent_settings import section
from mudroom.core.text.escaping import escape_line
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show
from mudroom.ext.agents.core.home_change import changed_members, is_record
from mudroom.ext.agents.session.agent_settings import agent_settings
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.ext.agents.core.home_change import HomeChange
    from mudroom.ext.agents.home.agent_settings import SettingsHome
    from mudroom.session import Session

_MOST_LISTED = 10
"""Most changes in a store that a review lists one by one."""
_MOST_OF_ONE = 5
"""Above that, most changes below one directory that are listed one by one."""
_MOST_NAMES = 8
"""Most members of a file that its line names."""
_CONFLICT = "  (changed on the host, too)"


def changed_settings(session: Session, fork: str) -> list[str]:
    """Return a line for each setting that the fork's agent has changed, or for many below one directory. Most forks
    have neither a staged store nor settings of their own."""
    place = session.vault.fork(fork).path
    if not any(os.path.isdir(place + name) for name in (b"/home", b"/dotfiles")):
        return []

    return [line for home, changes in agent_settings(session, fork) for line in _lines(home, changes)]


def settings_lines(fork: str, stores: Sequence[tuple[SettingsHome, list[HomeChange]]]) -> list[str]:
    """Return a review's section about the agent's settings; empty if none has changed."""
    return section(fork, [line for home, changes in stores for line in _lines(home, changes)])


def _lines(home: SettingsHome, changes: Sequence[HomeChange]) -> Iterator[str]:
    """Yield a line for each change that could run later or be obeyed, and the number of the others."""
    settings = [change for change in changes if not is_record(change)]
    yield from _grouped(home, settings)
    records = len(changes) - len(settings)
    if records:
        yield f"  and {counted(records, 'file')} of {home.name}'s logs, databases, locks and histories"


def _grouped(home: SettingsHome, changes: Sequence[HomeChange]) -> Iterator[str]:
    """Yield a line for each change in a store. Many changes below one directory share a line, so that they do not hide
    the others."""
    if len(changes) <= _MOST_LISTED:
        yield from (line_of(home, change) for change in changes)
        return
    top = posixpath.commonpath([posixpath.dirname(change.path) for change in changes])
    groups: dict[bytes, list[HomeChange]] = {}
    for change in changes:
        groups.setdefault(change.path[len(top) :].lstrip(b"/").partition(b"/")[0], []).append(change)
    for name, group in groups.items():
        if len(group) <= _MOST_OF_ONE:
            yield from (line_of(home, change) for change in group)
            continue
        kinds = ", ".join(dict.fromkeys(change.change for change in group))
        conflict = _CONFLICT if any(change.conflict for change in group) else ""
        yield f"  ~/{show(posixpath.join(top, name))}/  {len(group):,} files: {kinds}{conflict}"


def line_of(home: SettingsHome, change: HomeChange) -> str:
    """Return a change's line, with the members that differ in a file of JSON or TOML."""
    names = change.keys
    if not names and change.change != "removed" and change.path.endswith((b".json", b".toml")):
        names = changed_members(change.path, home.host_content(change.path) or b"", home.content(change.path) or b"")
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    keys = f": {', '.join(names[:_MOST_NAMES])}{more}" if names else ""
    conflict = _CONFLICT if change.conflict else ""
    return f"  ~/{show(change.path)}  {change.change}{shown(keys)}{conflict}"


def shown(text: str) -> str:
    """Return text that a sandbox wrote, escaped: no control character reaches the terminal."""
    return escape_line(text.encode("utf-8", "surrogateescape")).text
