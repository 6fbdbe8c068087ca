"""An agent's changed settings as lines of a review, shown apart from the project's files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from mudroom.cli.change.agent_settings import section
from mudroom.core.text.escaping import escape_line
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show
from mudroom.ext.agents.core.home_change import HomeChange, changed_members, has_power, is_record
from mudroom.ext.agents.home.agent_settings import agent_settings
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.ext.agents.home.agent_settings import SettingsHome
    from mudroom.session import Session

_MOST_LISTED = 10
"""Most changes in a store that a review lists one by one."""
_MOST_OF_ONE = 5
"""Above that, most entries of a directory that are listed one by one."""
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


def _grouped(home: SettingsHome, settings: Sequence[HomeChange]) -> Iterator[str]:
    """Yield a line for each change in a store. Many changes in one directory share a line, so that they do not hide
    the others; one that may run a program has its own."""
    if len(settings) <= _MOST_LISTED:
        yield from (line_of(home, change) for change in settings)
        return
    folded: dict[bytes, list[HomeChange]] = {}
    for directory, group in _folders(home.places, b"", settings):
        for change in group:
            if not directory or has_power(change.path, members_of(home, change)):
                yield line_of(home, change)
            else:
                folded.setdefault(directory, []).append(change)
    for directory, group in folded.items():
        kinds = ", ".join(dict.fromkeys(change.change for change in group))
        conflict = _CONFLICT if any(change.conflict for change in group) else ""
        yield f"  ~/{show(directory)}  {counted(len(group), 'file')}: {kinds}{conflict}"


def _folders(
    places: Sequence[bytes], above: bytes, changes: Sequence[HomeChange]
) -> Iterator[tuple[bytes, Sequence[HomeChange]]]:
    """Yield the changes of each directory that shares a line, and those that are listed, with an empty name. The
    directories of a store, and those above them, list their own files. ``above``: a directory, with its slash."""
    parts: dict[bytes, list[HomeChange]] = {}
    for change in changes:
        name, slash, _below = change.path[len(above) :].partition(b"/")
        parts.setdefault(name + slash, []).append(change)
    if len(parts) > _MOST_OF_ONE and not any((place + b"/").startswith(above) for place in places):
        yield above, changes
        return
    for name, group in parts.items():
        if name.endswith(b"/"):
            yield from _folders(places, above + name, group)
        else:
            yield b"", group


def line_of(home: SettingsHome, change: HomeChange) -> str:
    """Return a change's line, with the members that differ in a file of settings."""
    names = members_of(home, change)
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    keys = f": {', '.join(names[:_MOST_NAMES])}{more}" if names else ""
    conflict = _CONFLICT if change.conflict else ""
    return f"  ~/{show(change.path)}  {change.change}{shown(keys)}{conflict}"


def members_of(home: SettingsHome, change: HomeChange) -> tuple[str, ...]:
    """Return the members that differ in a file of settings that is there."""
    if change.keys or change.change == "removed":
        return change.keys
    return changed_members(change.path, home.host_content(change.path) or b"", home.content(change.path) or b"")


def shown(text: str) -> str:
    """Return text that a sandbox wrote, escaped: no control character reaches the terminal."""
    return escape_line(text.encode("utf-8", "surrogateescape")).text
