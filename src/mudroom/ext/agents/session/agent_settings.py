"""Agent settings that a fork's commands have changed: list them, land them in the home, undo a landing."""

from __future__ import annotations

import time
from collections.abc import Callable

from mudroom.ext.agents.core.home_change import HomeChange
from mudroom.ext.agents.home.agent_home import homes_of
from mudroom.ext.agents.home.agent_settings import LandedSetting, SettingsHome, land_settings, undo_settings
from mudroom.ext.agents.home.dotfiles import dotfiles_of
from mudroom.session.session import Session


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
