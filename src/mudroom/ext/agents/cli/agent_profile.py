"""The profile for the agent in a command line; ``mudroom agent ls`` and ``agent show``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from mudroom.cli.project_session import project_of, working_directory
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold_beside, fold_row
from mudroom.core.network.host_rules import HostRule, parse_rule
from mudroom.core.network.loopback import is_loopback, look_at_loopback
from mudroom.core.result import Denial
from mudroom.core.settings import Settings
from mudroom.core.text.redaction import secret_variables
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import is_below, show
from mudroom.errors import CommandNotStarted, UsageError
from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.core.profile import GENERIC, AgentProfile, InnerSandbox, generic_profile, switched_off
from mudroom.ext.agents.session.host_program import HostProgram, find_program
from mudroom.policy.config import user_config
from mudroom.stage import disk
from mudroom.typing import Any, NamedTuple

_GENERIC = "generic"
_NAME = regex(r"[^A-Za-z0-9_.-]+")
_NO_NAME = regex(r"[^a-z0-9]+")
_USUAL_PORT = regex(r":(443|80)\Z")
_ENDING = regex(r"\.(com|exe|bat|cmd)\Z")
NOT_FOUND = 127


def catalog(context: Context) -> Catalog:
    return Catalog(user_config(context.environ))


def search_of(environ: Mapping[bytes, bytes]) -> list[bytes]:
    if sys.platform == "win32":
        return environ.get(b"PATH", b"").split(b";")
    return environ.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin").split(b":")


def chosen_profile(word: str, context: Context) -> AgentProfile:
    """Return the profile for the program that ``word`` names; a careful generic one if no profile knows it."""
    program = os.path.basename(word)
    if sys.platform == "win32":  # Windows also finds the program as Claude and as claude.cmd
        program = _ENDING.sub("", program.lower())
    profile = catalog(context).of_program(program)
    return profile or generic_profile(_NAME.sub("-", program)[:40].strip(".") or "agent")


class ProfiledAgent(NamedTuple):
    """An agent that runs by a profile."""

    profile: AgentProfile
    program: HostProgram
    argv: tuple[bytes, ...]
    """With the words that switch its own sandbox off."""
    rules: tuple[HostRule, ...]
    environment: tuple[bytes, ...]
    """NAME or NAME=VALUE, beyond those in the settings."""
    switches: tuple[str, ...]
    """The words by which its own sandbox is off, as they are printed."""
    notes: tuple[str, ...]


_ADAPTERS = {
    "claude-agent-acp": "npm install -g @agentclientprotocol/claude-agent-acp",
    "claude-code-acp": "npm install -g @zed-industries/claude-code-acp",
    "codex-acp": "npm install -g @agentclientprotocol/codex-acp",
}
"""Programs that start an agent for an editor and come in a package of their own."""


def missing_program(word: str, profile: AgentProfile) -> CommandNotStarted:
    """Return the error for a program that is not on this host."""
    hint = _ADAPTERS.get(word) or profile.install or "name a program that is on PATH, or its path"
    return CommandNotStarted(f"{word}: no such program on PATH", NOT_FOUND, hint)


def profiled(argv: Sequence[str], context: Context, settings: Settings, level: int) -> ProfiledAgent:
    """Return the agent in a command line. Raise CommandNotStarted, with how to install it, if it is missing."""
    profile = chosen_profile(argv[0], context)
    program = find_program(os.fsencode(argv[0]), search_of(context.environ), working_directory())
    if program is None:
        raise missing_program(argv[0], profile)
    # at level 0 only its own sandbox would confine it: it stays on, and where it cannot run the summary names the level
    inner = profile.sandbox if level else InnerSandbox()
    if not profile.programs:  # at level 0 it has the host's own home, read-only
        project = project_of(context)
        home = disk.real_path(context.environ.get(b"HOME", b"/"))
        places = [place for place in profile.directories if not _overlap(home + b"/" + place, project)]
        profile = profile._replace(directories=tuple(places) if level else ())
    words, switches = switched_off(argv[1:], inner)
    values = (*profile.environment.values, *inner.values)
    passed = [name for name in profile.environment.passed if os.fsencode(name) in context.environ]
    environment = (
        *(os.fsencode(name) for name in passed),
        *(os.fsencode(f"{name}={value}") for name, value in values if os.fsencode(name) not in _named(settings)),
    )
    source = f"profile {profile.name}"
    rules = (
        *(parse_rule(host, "allow", source) for host in profile.network.allow),
        *(parse_rule(host, "deny", source) for host in profile.network.deny),
    )
    notes = [*profile.notes, *_version_notes(profile, program)]
    line = tuple(os.fsencode(word) for word in (argv[0], *words))
    return ProfiledAgent(profile, program, line, rules, environment, tuple(switches), tuple(notes))


def _overlap(place: bytes, other: bytes) -> bool:
    return is_below(place, other) or is_below(other, place)


def _named(settings: Settings) -> set[bytes]:
    """Return the variables that the user sets or passes."""
    return {variable.partition(b"=")[0] for variable in settings.environment}


def _is_adapter(program: HostProgram) -> bool:
    """Return whether a program starts the agent for an editor; it has a version of its own."""
    return program.path.endswith(b"-acp")


def _version_notes(profile: AgentProfile, program: HostProgram) -> list[str]:
    if not profile.tested or not program.version or _is_adapter(program):
        return []
    depth = 2 if profile.tested.startswith("0.") else 1
    if program.version.split(".")[:depth] == profile.tested.split(".")[:depth]:
        return []
    return [
        f"{profile.name} {program.version} is installed, and its profile was tried with {profile.tested}: its switches "
        f"may differ (mudroom agent show {profile.name})"
    ]


def first_line(agent: ProfiledAgent, context: Context, settings: Settings) -> str:
    """Return the line printed before the agent starts: the variables passed to it, by name."""
    profile = agent.profile
    variables = [os.fsdecode(name) for name in agent.environment if b"=" not in name]
    adapter = f"by {show(os.path.basename(agent.program.path))}" if _is_adapter(agent.program) else ""
    parts = [" ".join(filter(None, (profile.about or profile.name, adapter, agent.program.version)))]
    parts.append("variables passed: " + ", ".join(variables) if variables else "no variables of its own are passed")
    withheld = withheld_variables(agent, context.environ, settings)
    if withheld:
        parts.append("not passed: " + ", ".join(withheld) + " (--env NAME passes one)")
    if agent.switches:
        parts.append("its own sandbox is off: " + ", ".join(agent.switches))
    return "; ".join(parts)


_VENDORS = regex(r"(.+?)_(?:API_KEY|AUTH_TOKEN|BASE_URL|API_BASE)")
"""A variable with a key or an address: other variables of the same vendor begin as it does."""

_OWN = 3
"""Passed variables with one first word that make it the agent's own, as MSWEA: two are general ones, as BASH."""


def withheld_variables(agent: ProfiledAgent, environ: Mapping[bytes, bytes], settings: Settings) -> list[str]:
    """Return the host's variables that are not passed and look like keys, or like the agent's own."""
    profile = agent.profile
    vendors = {vendor[1] for name in profile.environment.passed if (vendor := _VENDORS.fullmatch(name)) is not None}
    vendors |= {_NAME.sub("_", word.replace("-", "_")).upper() for word in (profile.name, *profile.programs)}
    firsts = [name.partition("_")[0] for name in profile.environment.passed]
    vendors |= {first for first in firsts if firsts.count(first) >= _OWN}
    alike = [name for name in map(os.fsdecode, environ) if name.startswith(tuple(f"{vendor}_" for vendor in vendors))]
    passed = {name.partition(b"=")[0] for name in agent.environment} | _named(settings)
    return sorted(name for name in {*secret_variables(environ), *alike} if os.fsencode(name) not in passed)


_SCHEME_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def place_named_by(value: str) -> tuple[str, int] | None:
    """Return host and port if a variable's value, a URL or HOST:PORT, names this machine's loopback."""
    try:
        url = urlsplit(value if "://" in value else f"//{value}")
        port = url.port or _SCHEME_PORTS.get(url.scheme)
    except ValueError:
        return None  # no URL
    host = url.hostname or ""
    return (host, port) if port and is_loopback(host) else None


def closed_places(agent: ProfiledAgent, environ: Mapping[bytes, bytes], rules: Sequence[HostRule]) -> list[str]:
    """Return a note for each variable passed to the agent that names a server on this machine which no rule opens."""
    notes = []
    for variable in agent.environment:
        name, assigned, value = variable.partition(b"=")
        place = place_named_by(os.fsdecode(value if assigned else environ.get(name, b"")))
        if place is not None and look_at_loopback(*place, rules).action == "deny":
            server = "{}:{}".format("localhost" if place[0] == "::1" else place[0], place[1])
            notes.append(f"{os.fsdecode(name)} names a server on this machine; to open it: mudroom net allow {server}")
    return notes


def profile_lines(agent: ProfiledAgent, denials: Sequence[Denial], context: Context, settings: Settings) -> list[str]:
    """Return the lines of a profile for a program that has none: its store, the hosts that it was refused, and the
    variables that it did not get."""
    name = _NO_NAME.sub("-", agent.profile.name.lower()).strip("-") or "agent"
    home = context.environ.get(b"HOME", b"")
    there = [place for place in agent.profile.directories if os.path.isdir(home + b"/" + place)]
    store = [f"~/{show(place)}" for place in there or agent.profile.directories[:1]]
    refused = (show(denial.target) for denial in denials if denial.kind == "network")
    hosts = sorted({_USUAL_PORT.sub("", host) for host in refused})
    names = withheld_variables(agent, context.environ, settings)
    return [
        f"no profile knows {name}. If it needs a login, a host or a variable, write these lines to "
        f"{show(user_config(context.environ))}/agents/{name}.toml:",
        "format = 1",
        f"name = {json.dumps(name)}",
        f"programs = {json.dumps([os.fsdecode(os.path.basename(agent.program.path))])}",
        f"directories = {json.dumps(store)}",
        f"network = {{ allow = {json.dumps(hosts)} }}",
        f"environment = {{ pass = {json.dumps(names)} }}",
    ]


# --- ls and show ---


def list_profiles(context: Context) -> int:
    profiles = catalog(context)
    rows = [_row(profiles.profile(name), profiles, context) for name in profiles.names()]
    if context.as_json:
        context.terminal.json({"schema": "mudroom.agents/1", "agents": rows})
        return 0
    width, columns = max(len(row["name"]) for row in rows), context.terminal.columns(1)
    for row in sorted(rows, key=lambda row: row["path"] is None):
        own = ["(your profile)"] if row["yours"] else []
        if row["path"]:
            cells = [row["version"] or "installed", row["path"], *own]
            line = f"{row['name']:<{width}}  {'  '.join(cells)}"
        else:
            cells = ["not installed:", row["install"], *own]
            line = f"{row['name']:<{width}}  {' '.join(cells[:2])}{'  '.join(['', *own])}"
        context.terminal.out(fold_row(line, [row["name"], *cells], columns, breaks_cells=False))
    context.terminal.say("mudroom agent run -- NAME runs one, mudroom agent show NAME says what it gets")
    return 0


def _row(profile: AgentProfile, profiles: Catalog, context: Context) -> dict[str, Any]:
    program = installed(profile, context)
    return {
        "name": profile.name,
        "about": profile.about,
        "path": show(program.path) if program is not None else None,
        "version": program.version if program is not None else None,
        "tested": profile.tested or None,
        "install": profile.install,
        "yours": profiles.is_users(profile.name),
    }


def installed(profile: AgentProfile, context: Context) -> HostProgram | None:
    search = search_of(context.environ)
    programs = (find_program(os.fsencode(name), search, b"/") for name in profile.programs)
    return next((program for program in programs if program is not None), None)


def show_profile(name: str, context: Context) -> int:
    profiles = catalog(context)
    profile = GENERIC if name == _GENERIC else profiles.of_program(name) or profiles.profile(name)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.agent/1", **as_json(profile, profiles, context)})
        return 0
    for label, content in described(profile, installed(profile, context)):
        context.terminal.out(fold_beside(f"{label:<12} ", content, context.terminal.columns(1)))
    return 0


def as_json(profile: AgentProfile, profiles: Catalog, context: Context) -> dict[str, Any]:
    return {
        **_row(profile, profiles, context),
        "programs": list(profile.programs),
        "store": [f"~/{show(place)}" for place in profile.agent_store.places],
        "tokens": [f"~/{show(token)}" for token in profile.tokens],
        "state": [f"~/{pattern}" for pattern in profile.state],
        "transcripts": [f"~/{pattern}" for pattern in profile.transcripts],
        "allow": list(profile.network.allow),
        "deny": list(profile.network.deny),
        "pass": list(profile.environment.passed),
        "set": dict((*profile.environment.values, *profile.sandbox.values)),
        "sandbox": {
            "about": profile.sandbox.about,
            "arguments": list(profile.sandbox.arguments),
            "options": dict(profile.sandbox.options),
        },
        "unattended": list(profile.unattended),
        "continue": list(profile.continued),
        "resume": list(profile.resumed),
        "send": list(profile.sent),
        "notes": list(profile.notes),
    }


def described(profile: AgentProfile, program: HostProgram | None) -> list[tuple[str, str]]:
    """Return the lines of ``agent show``: a label and its content. Empty contents are left out."""
    tried = f", tried with {profile.tested}" if profile.tested else ", written from its documents; not tried here"
    at = f"{show(program.path)} {program.version}".strip() if program is not None else f"not here: {profile.install}"
    store = [f"~/{show(place)}" for place in profile.agent_store.places]
    rows = [
        ("agent", f"{profile.name}: {profile.about}" + (tried if profile.programs else "")),
        ("program", at if profile.programs else "any that no profile names"),
        ("store", ", ".join(store)),
        ("logins", ", ".join(f"~/{show(token)}" for token in profile.tokens)),
        ("transcripts", ", ".join(f"~/{pattern}" for pattern in profile.transcripts)),
        ("may reach", ", ".join(profile.network.allow)),
        ("may not", ", ".join(profile.network.deny) and f"{', '.join(profile.network.deny)} (refused, never asked)"),
        ("passed", ", ".join(profile.environment.passed)),
        ("set", ", ".join(f"{name}={value}" for name, value in profile.environment.values + profile.sandbox.values)),
        ("sandbox", " ".join((profile.sandbox.about, *profile.sandbox.arguments[:0]))),
        ("unattended", " ".join(profile.unattended) and f"{' '.join(profile.unattended)} (add it yourself)"),
        ("goes on", " ".join(profile.continued) and f"{' '.join(profile.continued)} (in a fork of its fork)"),
        ("is sent to", " ".join(profile.sent) and f"{' '.join(profile.sent)} PROMPT (mudroom send)"),
        *(("note", note) for note in profile.notes),
    ]
    return [(label, content) for label, content in rows if content]


def offer(context: Context) -> UsageError:
    """Return the error for a command line that names no agent; it lists the installed ones."""
    profiles = catalog(context)
    there = [name for name in profiles.names() if installed(profiles.profile(name), context) is not None]
    if there:
        return UsageError("no agent was named", "installed: " + ", ".join(f"mudroom agent run -- {n}" for n in there))
    return UsageError("no agent was named, and none that mudroom knows is on PATH", "mudroom agent ls lists them")
