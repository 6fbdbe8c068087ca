"""Protections of a sandbox, and the aims of a command that they hold. Pure.

Rules of this file:
1. A protection is in the value only if it is in force for this command: at its level, in its mode, with its grant
   (``session/confinement/protections.py`` makes the value). ``NO_PROTECTIONS`` is level 0, and every doubt.
2. An aim that is held needs no question: the command fails, or meets only what is its own.
"""

from __future__ import annotations

from mudroom.core.command.verdict import Aim
from mudroom.core.tree.path import is_below, show
from mudroom.typing import NamedTuple


class Protections(NamedTuple):
    project: bytes = b""
    """The project's path, where the view is staged; empty: paths are not held."""
    home: bytes = b""
    private: tuple[bytes, ...] = ()
    """Directories that the command has for itself, such as the home and /tmp."""
    shown: tuple[bytes, ...] = ()
    """Places in them that are not the command's own: of the host, of the fork, caches that later commands use."""
    own_processes: bool = False
    """No process of the host or of another command is in the pid namespace."""
    no_sockets: bool = False
    """No socket of a server of the host can be reached, by path, by abstract name or by an address from settings."""
    no_accounts: bool = False
    """No credential of the user is in a file or variable of the command, and the gate inserts none."""
    no_hosts: bool = False
    """No rule of the gate opens a host."""


NO_PROTECTIONS = Protections()
_VAR_RUN, _RUN = b"/var/run", b"/run"


def hold(aim: Aim, protections: Protections) -> str:
    """Return the protection that holds the aim, as a clause for people; empty if none does."""
    if aim.kind == "path":
        return _hold_path(aim.path, protections)
    is_held, clause = {
        "processes": (
            protections.own_processes,
            "the sandbox has a pid namespace of its own, so it reaches its own processes only",
        ),
        "server": (protections.no_sockets, "the sandbox shows no socket of this machine's servers, so it reaches none"),
        "account": (protections.no_accounts, "the sandbox holds no credentials, so it acts with no account"),
        "host": (protections.no_hosts, "no rule opens a host to the sandbox, so it reaches none"),
    }[aim.kind]
    return clause if is_held else ""


def _hold_path(path: bytes, protections: Protections) -> str:
    if not protections.project:
        return ""
    if path[:1] == b"~":
        path = protections.home + path[1:]
    place = run_path(path)
    if is_below(place, protections.project):
        return "in the project, which is staged"
    own = next((private for private in protections.private if is_below(place, private)), None)
    if own is None or any(is_below(place, shown) or is_below(shown, place) for shown in protections.shown):
        return ""
    return f"the sandbox has {'a home' if own == protections.home else show(own)} of its own"


def run_path(path: bytes) -> bytes:
    """Return the path with /run for /var/run, which is a link to it (hier(7); ``sandbox/linux/plan.py`` makes it)."""
    return _RUN + path[len(_VAR_RUN) :] if is_below(path, _VAR_RUN) else path
