"""A sandbox's protections, and which of a command's aims they hold. Pure.

Rules of this file:
1. ``Protections`` has a protection only if it is in force for this command: at its level, in its mode, with its grant
   (``session/confinement/protections.py`` makes the value). At level 0, and in every doubt, it is ``NO_PROTECTIONS``.
2. An aim that is held needs no question: the command fails, or reaches only what belongs to it.
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
    """Directories private to the command, such as the home directory and /tmp."""
    shown: tuple[bytes, ...] = ()
    """Places inside them that the command shares: with the host, with the fork, or with later commands (caches)."""
    own_processes: bool = False
    """The pid namespace contains no process from the host or another command."""
    no_sockets: bool = False
    """No socket of a host server can be reached: by path, by abstract name, or by an address from settings."""
    own_loopback: bool = False
    """No gate rule opens a port of the host's loopback."""
    no_accounts: bool = False
    """No file or variable that the command sees holds the user's credentials, and the gate inserts none."""
    no_hosts: bool = False
    """No gate rule opens a host."""


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
        "loopback": (
            protections.own_loopback,
            "no rule opens this machine's loopback to the sandbox, so it reaches its own",
        ),
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
    """Return the path with /run in place of /var/run, which is a link to it (hier(7); ``sandbox/linux/plan.py`` makes
    it)."""
    return _RUN + path[len(_VAR_RUN) :] if is_below(path, _VAR_RUN) else path
