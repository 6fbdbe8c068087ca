"""The protections in force for a command, by its level, mode, grant and settings on this machine.

Rules in this file:
1. Only modes that give the command its own namespaces, at levels 1 and 2, have protections. Level 0 and every fallback
   without namespaces have none.
2. The mode is the strongest that has not failed in this session. If it fails for the command, the command is judged
   again before it runs (``session/run.py``).
3. A command that joins a shared sandbox has no protections; this file is not called for it.
4. In doubt, a protection counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mudroom.core.command.protection import NO_PROTECTIONS, Protections, run_path
from mudroom.core.confinement.cache_place import CACHES
from mudroom.core.confinement.environment import select_variables
from mudroom.core.confinement.fallback import Mode
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.loopback import is_loopback
from mudroom.core.settings import Settings
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import is_below
from mudroom.errors import MudroomError
from mudroom.sandbox.host.host import Host
from mudroom.sandbox.linux.plan import SOCKETS_SINCE
from mudroom.session.confinement.agent_home import agent_homes
from mudroom.session.confinement.grant import Grant
from mudroom.typing import NamedTuple

NAMESPACED: tuple[Mode, ...] = ("overlay", "copy")
"""Modes in which the command has its own namespaces."""
_PRIVATE = (b"/tmp", b"/run", b"/var/tmp", b"/dev/shm")
"""With the home, the in-memory directories in ``sandbox/linux/plan.py``."""
_STORES = tuple(
    b".aws .azure .kube .config/gcloud .config/helm .config/containers .docker .terraform.d .terraformrc .boto".split()
)
_OF_ACCOUNTS = regex(
    rb"(?i).*(token|key|secret|passw|cred|kube|aws|google|gcloud|azure|arm_|tf_|helm|profile|account|xdg_)"
)
_OF_SERVERS = regex(rb"(?i).*(_host\Z|pghostaddr|_sock|address|dbus|docker|container|podman|systemd)")


class Confined(NamedTuple):
    """The facts about a command in its own sandbox that its protections depend on."""

    mode: Mode
    settings: Settings
    grant: Grant
    project: bytes
    home: bytes
    variables: Mapping[bytes, bytes]
    """Mudroom's own environment."""
    has_card: bool = False
    is_credited: bool = True
    """Whether the gate inserts credentials."""
    host_rules: Callable[[], Iterable[HostRule]] = tuple
    """Return the gate's rules, with this machine's answers."""
    has_grants: Callable[[], bool] = lambda: False
    """Return whether forks have grants to reach each other."""


def protections_of(command: Confined, survey: Callable[[], Host]) -> Protections:
    """Return the command's protections. ``survey``: returns the host as sandboxes show it."""
    grant, settings = command.grant, command.settings
    if grant.level == 0 or command.mode not in NAMESPACED or grant.image:
        return NO_PROTECTIONS
    extra = (*settings.environment, *grant.variables)
    environment = select_variables(command.variables, home=command.home, cwd=b"/", network=False, extra=extra)
    host = survey()
    shown = tuple(map(run_path, _shown(command, host)))
    network = settings.network_at(grant.level)
    is_apart = network != "open"
    is_bare = not (grant.live or grant.abstract or settings.credentials)
    hides_sockets = not settings.read or host.landlock_abi >= SOCKETS_SINCE
    return Protections(
        project=command.project,
        home=command.home,
        private=(command.home, *_PRIVATE),
        shown=shown,
        own_processes=True,
        no_sockets=is_apart
        and is_bare
        and hides_sockets
        and not any(is_below(path, b"/run") for path in shown)
        and not _meets(shown, command.home, (b".docker",))
        and not any(map(_OF_SERVERS.match, environment)),
        no_accounts=is_apart
        and is_bare
        and not (command.is_credited or grant.credentials or grant.variables)
        and not _meets(shown, command.home, _STORES)
        and not any(map(_OF_ACCOUNTS.match, environment)),
        own_loopback=network == "none" or (network == "gate" and not _opens_hosts(command, is_loopback)),
        no_hosts=network == "none" or (network == "gate" and not _opens_hosts(command)),
    )


def _opens_hosts(command: Confined, concerns: Callable[[str], bool] | None = None) -> bool:
    """Return whether a rule may let the command reach a host or ask for one. With ``concerns``: a host that it is true
    for; forks' names are for no such host."""
    try:
        rules = (*command.settings.hosts, *command.host_rules())
    except MudroomError:
        return True  # unreadable rules may open one
    if concerns is not None:
        return any(rule.action != "deny" and concerns(rule.pattern) for rule in rules)
    settings = command.settings
    if settings.agent_links or settings.fork_rules or any(rule.action != "deny" for rule in rules):
        return True
    return command.has_grants()


def _shown(command: Confined, host: Host) -> Iterable[bytes]:
    """Yield the paths in private directories that are not the command's own."""
    settings, grant, home = command.settings, command.grant, command.home
    yield command.project
    yield from (bind.path for bind in (*host.home, *grant.live))
    yield from (path for path, _content in host.files)
    yield from (path for _target, path in grant.links)
    yield from settings.read
    yield from (home + name[1:] for name in settings.credentials)
    yield from (home + b"/" + place for place, _name in CACHES)
    if command.has_card:
        yield from _of_agents(command)


def _of_agents(command: Confined) -> Iterable[bytes]:
    """Yield the paths of a fork's own copies of settings and stores: a command's writes there are applied later."""
    yield from (command.home + b"/" + place for place in agent_homes().settings_places())
    yield from (command.home + b"/" + place.path for staged in command.grant.staged for place in staged.places)


def _meets(shown: Iterable[bytes], home: bytes, stores: Iterable[bytes]) -> bool:
    """Return whether a shown path is in any of these stores in the home, or contains it."""
    places = [home + b"/" + store for store in stores]
    return any(is_below(path, place) or is_below(place, path) for path in shown for place in places)
