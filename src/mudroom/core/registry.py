"""The optional parts of mudroom: one folder in ``mudroom/ext`` each, with the modules that it adds.

The kernel never imports from ``mudroom.ext`` by name. It looks up a row here, and loads the module at first use. An
installation may lack a folder: its features are then absent, the rest works, and a request for them fails with a
one-line message.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from mudroom.errors import MudroomError
from mudroom.typing import Any

ROWS: Mapping[str, Mapping[str, str]] = {
    "agents": {
        "card": "agents.card",
        "catalog": "agents.catalog",
        "conversation": "agents.home.conversation",
        "gate": "agents.links.card_address",
        "home": "agents.home.staged_home",
        "links": "agents.links.fork_dial",
        "logins": "agents.home.login",
        "net": "agents.cli.net_fork",
        "programs": "agents.cli.agent_run",
        "settings": "agents.settings_review",
    },
    "call": {
        "archives": "transfer.archives",
        "attempts": "attempts.library",
        "tools": "agents.library",
    },
    "certify": {
        "cli": "certify.cli.certify",
        "opening": "certify.opening",
    },
    "commits": {
        "cli": "commits.cli",
        "landing": "commits.landing",
        "session": "commits.session",
    },
    "decisions": {
        "queue": "decisions.cli",
    },
    "doctor": {
        "certify": "certify.cli.certify",
        "containers": "containers.cli.engine",
        "engine": "engine.doctor",
        "keeper": "keeper.cli.keeper",
    },
    "effects": {
        "desk": "effects.desk",
        "gate": "effects.gate",
        "review": "effects.review",
        "servers": "effects.servers",
        "session": "effects.session",
        "ssh": "effects.ssh_client",
    },
    "engine": {
        "plan": "engine.plan",
        "storage": "engine.storage",
    },
    "fleet": {
        "run": "fleet.cli.run_on_worker",
        "workers": "fleet.origin.worker_registry",
    },
    "fork": {
        "matrix": "attempts.cli.matrix",
    },
    "gpu": {
        "cdi": "gpu.cdi",
    },
    "inspection": {
        "gate": "inspection.inspector",
        "net": "inspection.cli",
        "session": "inspection.setup",
    },
    "keeper": {
        "process": "keeper.cli.keeper_process",
    },
    "level": {
        "2": "containers.level",
    },
    "live": {
        "cli": "live.cli",
    },
    "merging": {
        "locks": "merging.lock_file",
        "rules": "merging.rule",
    },
    "order": {
        "cli": "order.cli",
    },
    "outside": {
        "store": "outside.store",
    },
    "platform": {
        "darwin": "macos.platform",
        "win32": "windows.sandbox.platform",
    },
    "policy": {
        "learn": "learning.cli",
    },
    "reasons": {
        "cli": "reasons.cli",
        "trace": "reasons.trace",
    },
    "remarks": {
        "session": "remarks.session",
    },
    "upgrade": {
        "command": "upgrade.command",
    },
    "verb": {
        "acp": "agents.cli.acp",
        "agent": "agents.cli.agent",
        "comment": "remarks.cli.comment",
        "completion": "completion.cli",
        "fleet": "fleet.cli.fleet",
        "hook": "agents.cli.hook",
        "image": "containers.cli.image",
        "keeper": "keeper.cli.keeper",
        "keep": "outside.cli",
        "mcp": "agents.cli.mcp",
        "review": "tui.cli.review",
        "send": "remarks.cli.send",
        "serve": "web.cli.serve",
        "try": "attempts.cli.try",
        "worker": "fleet.cli.worker",
    },
    "views": {
        "cli": "views.cli",
        "kind": "views.kinds.kind",
    },
    "web": {
        "addresses": "web.cli.fork_links",
    },
    "windows": {
        "command": "windows.core.windows_command",
        "console": "windows.win32.console",
        "disk": "windows.stage.nt_disk",
        "environment": "windows.environment",
        "gate": "windows.net.nt_process",
        "lock": "windows.win32.lock",
        "main": "windows.cli.windows",
        "packet": "windows.system.nt_packet",
        "private": "windows.stage.nt_private",
        "process": "windows.win32.process",
    },
}
"""By kind, then by name: a module below ``mudroom.ext``. Its first component is the satellite's folder."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    "decisions": ("remarks",),
    "effects": ("inspection",),
    "fleet": ("inspection", "transfer"),
    "keeper": ("upgrade",),
    "order": ("review",),
    "reasons": ("review",),
    "remarks": ("review",),
    "tui": ("attempts", "decisions", "order", "reasons", "remarks", "review", "views"),
    "views": ("order", "review"),
    "web": ("attempts", "decisions", "order", "reasons", "remarks", "review", "views"),
}
"""Satellites that another one needs. If a needed satellite is absent, the one that needs it counts as absent, too."""


class NotInstalled(MudroomError):
    """The request needs a part that this installation lacks."""


AGENT_PROGRAMS = frozenset((
    "aider", "amp", "amp-acp", "claude", "claude-agent-acp", "claude-code-acp", "cline", "cn", "codex", "codex-acp",
    "copilot", "crush", "cursor-agent", "gemini", "goose", "gptme", "gptme-acp", "kilo", "kilocode", "kimi", "kimi-cli",
    "mini", "mini-swe-agent", "opencode", "openhands", "pi", "pi-acp", "qwen",
))  # fmt: skip
"""The programs of the profiles in the satellite ``agents``."""


def part(kind: str, name: str, what: str) -> Any:
    """Return a row's module. Raise NotInstalled if its folder is absent. ``what``: what the user asked for."""
    module = part_or_none(kind, name)
    if module is None:
        satellite = satellite_of(kind, name)
        raise NotInstalled(
            f"{what} is not part of this installation: it lacks mudroom/ext/{absent(satellite) or satellite}",
            "install all of mudroom: pip install --force-reinstall mudroom",
        )
    return module


def part_or_none(kind: str, name: str) -> Any:
    """Return a row's module, or None if its folder is absent."""
    if not is_installed(satellite_of(kind, name)):
        return None
    module = f"mudroom.ext.{ROWS[kind][name]}"
    __import__(module)  # importlib would import more modules
    return sys.modules[module]


def twin(name: str) -> Any:
    """Return the Windows counterpart of a POSIX module or library. Raise NotInstalled if it is absent."""
    return part("windows", name, "mudroom on Windows")


def satellite_of(kind: str, name: str) -> str:
    """Return the folder in ``mudroom/ext`` that holds a row's module."""
    return ROWS[kind][name].partition(".")[0]


def is_installed(satellite: str) -> bool:
    """Return whether a folder in ``mudroom/ext`` and all that it needs are present."""
    return not absent(satellite)


def absent(satellite: str) -> str:
    """Return the absent folder: this one or one that it needs; empty if all are present. An import error inside a
    folder is raised, and does not count as its absence."""
    name = f"mudroom.ext.{satellite}"
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, "mudroom.ext"):
            raise
        return satellite
    if getattr(sys.modules[name], "__file__", None) is None:
        return satellite  # only caches are left in the folder: Python takes it for a namespace package
    return next(filter(None, map(absent, NEEDS.get(satellite, ()))), "")
