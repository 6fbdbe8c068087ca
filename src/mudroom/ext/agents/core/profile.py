"""A known agent's profile: its needs, so that it runs under mudroom unchanged and without a card. Pure.

A profile is a TOML file (``ext/agents/profiles``), written by mudroom or by the user, never by the agent.
docs/reference/agents has a page for each built-in profile; docs/profile.schema.json describes the same keys as
``_FIELDS`` here. The rules:

1. The agent's store holds everything that it keeps: settings, logins, transcripts. ``tokens`` are the store's files
   that are kept equal on both sides: a login that is renewed inside is renewed outside. ``renewed`` are the tokens in
   files that hold settings, too. Everything else in the store is staged.
2. ``state`` are files in the store that no program runs or obeys: transcripts, histories, caches. A change to any other
   staged file is shown in the review, and lands only if it is chosen.
3. ``allow`` are hosts without which the agent does not work. ``deny`` are hosts that it does not need: they are refused
   without a question.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.agent.card import AgentCard, AgentStore, Requirements
from mudroom.core.confinement.cache_place import CACHES
from mudroom.core.settings import HomeChoice
from mudroom.core.text.regex import regex
from mudroom.core.tree.credential_stores import STORES, store_places
from mudroom.core.tree.path import is_below
from mudroom.ext.agents.core.artifact import pattern_error
from mudroom.ext.agents.core.field import (
    FieldError,
    FieldTable,
    home_path,
    hosts,
    kind,
    nearest,
    read_fields,
    text,
    text_list,
    variable,
    variables,
)
from mudroom.typing import Any, NamedTuple


class InnerSandbox(NamedTuple):
    """The agent's own sandbox, which cannot run inside mudroom's: nested namespaces are refused."""

    about: str = ""
    """One sentence: what it is, and the switch that turns it off here."""
    arguments: tuple[str, ...] = ()
    """Words that switch it off, placed after the program's name."""
    options: tuple[tuple[str, str], ...] = ()
    """Options that switch it on, with the values that replace theirs. An empty value: the option takes none, and is
    left out."""
    values: tuple[tuple[str, str], ...] = ()
    """Variables that switch it off."""


def switched_off(words: Sequence[str], sandbox: InnerSandbox) -> tuple[list[str], list[str]]:
    """Return the words after a program's name with which its own sandbox is off, and the switches made, to be printed.
    Words after ``--`` are no options."""
    options = dict(sandbox.options)
    end = words.index("--") if "--" in words else len(words)
    now: list[str] = []
    switches = [" ".join(sandbox.arguments)] if sandbox.arguments else []
    value = None
    """The replacement for this word, if the previous word is an option that takes a value."""
    name = ""
    for word in words[:end]:
        if value is not None:
            _replaced(now, switches, name, word, value)
            value = None
            continue
        name, separator, given = _option(word, options)
        if name not in options:
            now.append(word)
        elif not options[name]:
            switches.append(f"without {word}")
        elif given:
            before = len(switches)
            _replaced(now, switches, name, given, options[name])
            now[-1] = name + separator + options[name] if len(switches) > before else word
        else:
            now.append(word)
            value = options[name]
    return [*sandbox.arguments, *now, *words[end:]], switches


def _replaced(now: list[str], switches: list[str], name: str, given: str, value: str) -> None:
    now.append(value)
    if given != value:
        switches.append(f"{name} {value} instead of {given}")


def _option(word: str, options: dict[str, str]) -> tuple[str, str, str]:
    """Return a word's option, separator and value: ``--name=value``, ``-n=value`` or ``-nvalue``."""
    name, separator, given = word.partition("=")
    short = word[:2]
    if name not in options and not word.startswith("--") and options.get(short):
        return short, "", word[2:]
    return name, separator, given


FORMAT = 1
_NAME = regex(r"[a-z0-9][a-z0-9-]{0,39}")
_PROGRAM = regex(r"[A-Za-z0-9_.+-]{1,64}")
_OPTION = regex(r"-[A-Za-z]|--[A-Za-z][A-Za-z0-9-]*")
_LONG = 500
"""Most characters in a text."""


class ProfileNetwork(NamedTuple):
    allow: tuple[str, ...] = ()
    """Host rules (``core/network/host_rules.py``, ``parse_rule``)."""
    deny: tuple[str, ...] = ()


class ProfileEnvironment(NamedTuple):
    passed: tuple[str, ...] = ()
    """Host variables that are passed if they are set."""
    values: tuple[tuple[str, str], ...] = ()
    """Variables that are set for the agent."""


class AgentProfile(NamedTuple):
    name: str
    about: str = ""
    programs: tuple[str, ...] = ()
    """Its programs' names, without a directory."""
    install: str = ""
    """The command that installs it."""
    tested: str = ""
    """The version with which the profile was tried, by its first numbers; empty: it was written from documents."""
    store: str = ""
    """A name in ``core/tree/credential_stores.py``; empty if the agent has none."""
    directories: tuple[bytes, ...] = ()
    """The store's paths, relative to the home: taken from ``store``, or given if that is empty."""
    files: tuple[bytes, ...] = ()
    tokens: tuple[bytes, ...] = ()
    """Paths relative to the home."""
    state: tuple[str, ...] = ()
    """Patterns (``ext/agents/core/artifact.py``) for paths relative to the home."""
    keys: tuple[tuple[bytes, tuple[str, ...]], ...] = ()
    """By file: the parts of its JSON that count as settings. The others are state."""
    renewed: tuple[tuple[bytes, tuple[str, ...]], ...] = ()
    """By file: the members of its JSON that are tokens."""
    transcripts: tuple[str, ...] = ()
    """Patterns for the agent's conversations, like those in ``state``."""
    network: ProfileNetwork = ProfileNetwork()
    environment: ProfileEnvironment = ProfileEnvironment()
    sandbox: InnerSandbox = InnerSandbox()
    unattended: tuple[str, ...] = ()
    """Words with which it asks nothing. They are shown, never added."""
    continued: tuple[str, ...] = ()
    """Words with which it goes on with a copy of its last conversation. They are shown, never added."""
    home: HomeChoice = "auto"
    """As the setting ``run.home``, where the policy does not say."""
    resumed: tuple[str, ...] = ()
    """Words with which it goes on with its last conversation on a terminal; the user's next words follow. Only
    ``mudroom send`` adds them."""
    sent: tuple[str, ...] = ()
    """The same without a terminal and without questions."""
    notes: tuple[str, ...] = ()

    def card(self, level: int) -> AgentCard:
        """Return the profile's requirements as a card. The card requests no hosts: the user's own mudroom allows
        them."""
        store = self.agent_store
        return AgentCard(
            self.name,
            level,
            Requirements(),
            name=self.about,
            environment=self.environment.passed,
            digest=f"profile:{self.name}",
            store=store if store.places else None,
        )

    @property
    def agent_store(self) -> AgentStore:
        own = (self.directories, self.files, self.tokens, self.state, self.keys, self.renewed, self.transcripts)
        return AgentStore(self.store or self.name, *own)


def generic_profile(name: str) -> AgentProfile:
    """Return the profile for a program that no profile names. What it keeps below these directories of the home stays
    in its fork, and nothing of the host's is copied: ``name`` may be that of any program."""
    taken = (*store_places(), *(place for place, _name in CACHES), b".config/mudroom", b".local/state/mudroom")
    usual = [place % name.encode() for place in _USUAL_PLACES]
    own = [place for place in usual if not any(is_below(place, at) or is_below(at, place) for at in taken)]
    state = tuple(f"{place.decode()}/**" for place in own)
    return GENERIC._replace(name=name, directories=tuple(own), state=state)


_USUAL_PLACES = (b".%s", b".config/%s", b".local/share/%s", b".local/state/%s")
"""Directories in the home in which programs keep what is theirs."""

GENERIC = AgentProfile(
    "agent",
    "an agent without a profile",
    notes=(
        "no profile knows this program: it has a store of its own in its fork, and neither a login nor a network "
        "beyond the policy's "
        "(mudroom agent show generic)",
    ),
)
"""For a program that no profile names."""


def parse_profile(value: object, where: str) -> AgentProfile:
    """Return the profile in a parsed TOML file. Raise FieldError if it is invalid. ``where``: for error messages."""
    fields = read_fields(value, where, _FIELDS)
    if fields.pop("format", None) != FORMAT:
        raise FieldError(f"{where}: format is not {FORMAT}", f"format = {FORMAT}, the only one that this version reads")
    for name in ("name", "programs"):
        if not fields.get(name):
            raise FieldError(f"{where}: {name} is missing", 'name = "claude", programs = ["claude"]')
    profile = AgentProfile(**fields)
    store = STORES.get(profile.store)
    if store is not None:
        profile = profile._replace(directories=store.directories, files=store.files)
    places = profile.agent_store.places
    logins = (*profile.tokens, *(path for path, _keys in profile.renewed))
    outside = [token for token in logins if not any(is_below(token, place) for place in places)]
    if outside:
        raise FieldError(f"{where}: tokens: ~/{outside[0].decode()} is not in the store", "name the store it lies in")
    return profile


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise FieldError(f"{where} is not a name: small letters, digits and -, at most 40 of them")
    return value


def _programs(value: Any, where: str) -> tuple[str, ...]:
    names = text_list(value, where, "program names")
    for name in names:
        if _PROGRAM.fullmatch(name) is None:
            raise FieldError(f"{where}: {name!r} is not the name of a program", 'without a directory: "claude"')
    return names


def _text(value: Any, where: str) -> str:
    return text(value, where, _LONG)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    return tuple(text(item, where, _LONG) for item in text_list(value, where, "texts"))


def _store(value: Any, where: str) -> str:
    name = text(value, where, _LONG)
    if name and name not in STORES:
        raise FieldError(f"{where}: there is no store {name!r}", nearest(name, STORES) or "known: " + ", ".join(STORES))
    return name


def _paths(value: Any, where: str) -> tuple[bytes, ...]:
    return tuple(home_path(name, where) for name in text_list(value, where, "paths in the home"))


def _patterns(value: Any, where: str) -> tuple[str, ...]:
    patterns = []
    for pattern in text_list(value, where, "patterns in the home: ~/.claude/projects/**"):
        error = "is not in the home" if not pattern.startswith("~/") else pattern_error(pattern[2:])
        if error:
            raise FieldError(f"{where}: {pattern!r} {error}", "~/.claude/projects/**")
        patterns.append(pattern[2:])
    return tuple(patterns)


def _keys(value: Any, where: str) -> tuple[tuple[bytes, tuple[str, ...]], ...]:
    if not isinstance(value, dict):
        raise FieldError(f"{where} is {kind(value)}", 'a table: "~/.claude.json" = ["mcpServers"]')
    return tuple((home_path(path, where), _texts(names, path)) for path, names in value.items())


def _host_list(value: Any, where: str) -> tuple[str, ...]:
    names = hosts(value, where)
    if isinstance(names, bool):
        raise FieldError(f"{where} is {kind(value)}", "a list of hosts")
    return names


def _values(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise FieldError(f"{where} is {kind(value)}", 'a table: { NAME = "value" }')
    return tuple((variable(name, where), text(content, where, _LONG)) for name, content in value.items())


def _options(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise FieldError(f"{where} is {kind(value)}", 'a table: { "--sandbox" = "off" }')
    for name in value:
        if _OPTION.fullmatch(name) is None:
            raise FieldError(f"{where}: {name!r} is not an option", '{ "--sandbox" = "off" }')
    return tuple((name, text(content, where, _LONG)) for name, content in value.items())


_NETWORK: FieldTable = {"allow": ("allow", _host_list), "deny": ("deny", _host_list)}
_ENVIRONMENT: FieldTable = {"pass": ("passed", variables), "set": ("values", _values)}
_SANDBOX: FieldTable = {
    "about": ("about", _text),
    "arguments": ("arguments", _texts),
    "options": ("options", _options),
    "set": ("values", _values),
}


def _home(value: Any, where: str) -> str:
    if value not in ("private", "staged"):
        raise FieldError(f"{where} is {value!r}", "private, or staged: your home is a part of its forks")
    return str(value)


_FIELDS: FieldTable = {
    "format": ("format", lambda value, _where: value),
    "name": ("name", _name),
    "about": ("about", _text),
    "programs": ("programs", _programs),
    "install": ("install", _text),
    "tested": ("tested", _text),
    "store": ("store", _store),
    "directories": ("directories", _paths),
    "files": ("files", _paths),
    "tokens": ("tokens", _paths),
    "state": ("state", _patterns),
    "keys": ("keys", _keys),
    "renewed": ("renewed", _keys),
    "transcripts": ("transcripts", _patterns),
    "network": ("network", lambda value, where: ProfileNetwork(**read_fields(value, where, _NETWORK))),
    "environment": ("environment", lambda value, where: ProfileEnvironment(**read_fields(value, where, _ENVIRONMENT))),
    "sandbox": ("sandbox", lambda value, where: InnerSandbox(**read_fields(value, where, _SANDBOX))),
    "unattended": ("unattended", _texts),
    "continue": ("continued", _texts),
    "home": ("home", _home),
    "resume": ("resumed", _texts),
    "send": ("sent", _texts),
    "notes": ("notes", _texts),
}
