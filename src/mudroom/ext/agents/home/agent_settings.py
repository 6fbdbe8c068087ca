"""Land an agent's chosen settings in the user's home, and undo that.

On disk:

    settings/<n>/record     the files that were written: host path, digest, mode before; JSON
    settings/<n>/<i>        entry i's content before; absent if there was no file

Order: the record and the old contents are made durable first, then each file is replaced by a rename. A host file that
has changed since it was copied, or that is a link, is left as it is.
"""

from __future__ import annotations

import json
import os
import stat
import time
from _blake2 import blake2b
from collections.abc import Callable, Sequence

from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.agents.core.home_change import HomeChange
from mudroom.ext.agents.home.agent_home import AgentHome, homes_of
from mudroom.ext.agents.home.dotfiles import Dotfiles, dotfiles_of
from mudroom.session.session import Session
from mudroom.stage import disk
from mudroom.typing import NamedTuple
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_directory

SettingsHome = AgentHome | Dotfiles

_LIMIT = 128 << 20


class LandedSetting(NamedTuple):
    path: bytes
    """Relative to the home; absolute after an undo."""
    reason: str = ""
    """Why it did not land; empty if it did."""


class _Write(NamedTuple):
    host: bytes
    content: bytes | None
    """None: the file is removed."""
    mode: int


def land_settings(vault: Vault, home: SettingsHome, changes: Sequence[HomeChange]) -> tuple[list[LandedSetting], str]:
    """Land changes as they were shown. Return each change's result, and the landing's name; empty if nothing has
    landed."""
    results, writes = [], []
    for change in changes:
        write, reason = _planned(home, change)
        results.append(LandedSetting(change.path, reason))
        writes += [write] if write is not None else []
    if not writes:
        return results, ""
    name = _record(vault, writes)
    for write in writes:
        _perform(write)
    return results, name


def _planned(home: SettingsHome, change: HomeChange) -> tuple[_Write | None, str]:
    host = home.host_path(change.path)
    if os.path.islink(host):
        return None, f"{show(host)} is a link: it is not replaced"
    if change.conflict:
        return None, "it has changed on the host, too, since it was copied"
    if change.change == "removed":
        return _Write(host, None, 0), ""
    if change.digest.startswith("link:"):
        return None, "it is a link"
    content = home.content(change.path)
    if content is None or blake2b(content, digest_size=16).hexdigest() != change.digest:
        return None, "it has changed in the fork since it was shown"
    try:
        return _Write(host, home.landed(change, content), change.mode), ""
    except ValueError as error:
        return None, str(error)


def _record(vault: Vault, writes: Sequence[_Write]) -> str:
    """Save the files' old contents durably. Return the landing's name."""
    above = vault.path + b"/settings"
    os.makedirs(above, mode=0o700, exist_ok=True)
    numbers = [int(name) for name in os.listdir(above) if name.isdigit()]
    name = b"%d" % (max(numbers, default=0) + 1)
    place = above + b"/" + name
    os.mkdir(place, 0o700)
    rows = []
    for number, write in enumerate(writes):
        before = _read(write.host)
        if before is not None:
            _write_durably(place + b"/%d" % number, before[0])
        digest = "" if write.content is None else blake2b(write.content, digest_size=16).hexdigest()
        rows.append({"host": os.fsdecode(write.host), "digest": digest, "mode": before[1] if before else None})
    _write_durably(place + b"/record", json.dumps(rows).encode())
    sync_directory(place)
    sync_directory(above)
    return name.decode()


def undo_settings(vault: Vault) -> tuple[list[LandedSetting], str]:
    """Undo the last landing. Return each file's result, and the landing's name. Raise UsageError if there is none."""
    above = vault.path + b"/settings"
    names = [name for name in os.listdir(above) if name.isdigit()] if os.path.isdir(above) else []
    if not names:
        raise UsageError("no settings of an agent have landed", "mudroom agent settings FORK --land PATH")
    name = max(names, key=int)
    place = above + b"/" + name
    with open(place + b"/record", "rb") as stream:
        rows = json.loads(stream.read())
    results = []
    for number, row in enumerate(rows):
        host = os.fsencode(row["host"])
        now = _read(host)
        digest = "" if now is None else blake2b(now[0], digest_size=16).hexdigest()
        if digest != row["digest"]:
            results.append(LandedSetting(host, "it has changed since it landed"))
            continue
        before = None
        if row["mode"] is not None:
            with open(place + b"/%d" % number, "rb") as stream:
                before = stream.read()
        _perform(_Write(host, before, row["mode"] or 0))
        results.append(LandedSetting(host))
    disk.rename_path(place, place + b".undone")
    return results, name.decode()


def _read(path: bytes) -> tuple[bytes, int] | None:
    """Return a host file's content and mode; None if it does not exist."""
    try:
        descriptor = disk.open_path(path, os.O_RDONLY | disk.O_NOFOLLOW | disk.O_NONBLOCK | disk.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(descriptor, "rb") as stream:
        return stream.read(_LIMIT), stat.S_IMODE(os.fstat(descriptor).st_mode)


def _perform(write: _Write) -> None:
    directory, name = os.path.split(write.host)
    if write.content is None:
        if os.path.lexists(write.host):
            os.unlink(write.host)
        return
    os.makedirs(directory, mode=0o700, exist_ok=True)
    new = directory + b"/." + name + b".mudroom-" + os.urandom(4).hex().encode()
    _write_durably(new, write.content, write.mode)
    disk.rename_path(new, write.host)
    sync_directory(directory)


def _write_durably(path: bytes, content: bytes, mode: int = 0o600) -> None:
    descriptor = disk.open_path(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        disk.set_mode_of(descriptor, mode)
        os.fsync(descriptor)


# --- for a session ---


def agent_settings(session: Session, fork: str) -> list[tuple[SettingsHome, list[HomeChange]]]:
    """Return the changes in each of a fork's staged stores, and in the user's git and shell settings; stores without
    changes are left out. Raise UsageError if the fork does not exist."""
    opened, home = session.vault.fork(fork), session.machine.confinement.home
    homes: list[SettingsHome] = [*homes_of(opened, home), *dotfiles_of(opened, home)]
    return [(home, changes) for home in homes if (changes := home.changes())]


def land(session: Session, fork: str, chosen: Callable[[HomeChange], bool]) -> list[LandedSetting]:
    """Land the chosen changes in the home, and return the results. No command may run in the fork meanwhile."""
    results: list[LandedSetting] = []
    with session.forks.at_rest(fork):
        for home, changes in agent_settings(session, fork):
            landed, name = land_settings(session.vault, home, [change for change in changes if chosen(change)])
            results += landed
            if name:
                paths = [f"~/{item.path.decode('utf-8', 'replace')}" for item in landed if not item.reason]
                data = {"store": home.name, "landing": name, "paths": paths}
                session.vault.journal.append("settings", fork, data, time=time.time_ns())
    return results


def take_back(session: Session) -> list[LandedSetting]:
    """Undo this project's last landing, and return the results. Raise UsageError if there is none."""
    results, name = undo_settings(session.vault)
    data = {"undone": name, "paths": [item.path.decode("utf-8", "replace") for item in results if not item.reason]}
    session.vault.journal.append("settings", "", data, time=time.time_ns())
    return results
