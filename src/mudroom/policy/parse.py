"""One policy file: what it gives, one setting or one item of a list at a time, each with where it stands.

Rules of this file: whatever is wrong is an error that names file, line and key; a setting that is ignored in silence is
a protection that is not there. Nothing is decided here: ``policy/combine.py`` brings several files together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from mudroom.core.command.policy import ClassRule, Role
from mudroom.core.settings import Settings
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.command_rules import MOST, class_actions, command_rules, text_pattern, weight
from mudroom.policy.settings_table import SECTIONS, SettingRow, with_setting
from mudroom.policy.yaml import compose, host_rules, inspect_rules, items, plain, texts, unknown

if TYPE_CHECKING:
    from yaml.nodes import Node

    from mudroom.core.network.host_rules import Action, HostRule

CHOSEN = ("roles", "agents", "include")
"""Sections whose keys people choose, and further files."""
FILES = 64
"""That are included, all together."""
DEPTH = 8
"""Of files that include files."""
_ROLE = re.compile(r"[A-Za-z0-9_-]{1,64}")


class GivenSetting(NamedTuple):
    key: str
    """``network.allow``, ``commands.classes.destructive``, ``roles.reviewer.rules``."""
    setting: SettingRow
    value: Any
    """Of what adds up: a tuple."""
    at: str
    """``/path/policy.yaml:12``."""
    local: bool = False
    """It is for this machine: from a file of ``.mudroom/local``."""


class PolicyFolder:
    """What a file may include: files beside it, each read once."""

    def __init__(self, read: Callable[[bytes], bytes | None]) -> None:
        """``read`` gives a file of the directory, or None; never anything through a symbolic link."""
        self._read = read
        self._done: set[str] = set()

    def include(self, text: str, where: str, name: str, chain: tuple[str, ...]) -> Iterator[GivenSetting]:
        """``chain``: the names of the files that led here."""
        if not text or "/" in text or "\0" in text or text in (".", ".."):
            raise UsageError(f"{where}: include: {_shown(text)} is no file beside this one", "write its name alone")
        if text in chain:
            raise UsageError(f"{where}: files include each other: " + " → ".join(map(_shown, (*chain, text))))
        if len(chain) > DEPTH:
            raise UsageError(f"{where}: include: more than {DEPTH} files deep: " + " → ".join(map(_shown, chain)))
        if text in self._done:
            return
        if len(self._done) >= FILES:
            raise UsageError(f"{where}: include: more than {FILES} files")
        self._done.add(text)
        data = self._read(text.encode("utf-8", "surrogateescape"))
        beside = name[: -len(_short(name))] + _shown(text)
        if data is None:
            raise UsageError(f"{where}: include: there is no file {beside}")
        yield from _file(data, beside, self, (*chain, text))


def parse(data: bytes, name: str, folder: PolicyFolder | None = None) -> list[GivenSetting]:
    """``name`` is what error messages call the file. What is included comes first, and what the file says itself
    counts where both say something. Raises UsageError."""
    return list(_file(data, name, folder, (_short(name),)))


def _file(data: bytes, name: str, folder: PolicyFolder | None, chain: tuple[str, ...]) -> Iterator[GivenSetting]:
    found: list[GivenSetting] = []
    weighs = 0
    for one in _sections(data, name, folder, chain):
        found.append(one)
        weighs += weight(one.value[0]) if one.setting is _RULES else 1
        if weighs > MOST:
            raise UsageError(f"{one.at}: more than {MOST:,} settings", "no policy needs so many")
    networks = [one for one in found if one.setting.field == "network" and one.at.rpartition(":")[0] == name]
    if len(networks) > 1:
        first, second = (f"{one.at}: {one.key}" for one in networks)
        raise UsageError(f"{second}: {first} says it already", "keep network.mode")
    yield from found


def put(given: Iterable[GivenSetting], left_out: Iterable[GivenSetting] = ()) -> Settings:
    """The settings with all that is given, in this order. ``left_out``: what is said, too, and does not count. Raises
    UsageError for a role that nobody has described."""
    settings, found = Settings(), list(given)
    for one in found:
        settings = _put(settings, one)
    _check_roles(settings, [*found, *left_out])
    return settings


def _sections(data: bytes, name: str, folder: PolicyFolder | None, chain: tuple[str, ...]) -> Iterator[GivenSetting]:
    top = items(compose(data, name), name, "")
    for key, node, where in top:
        if key == "include":
            yield from _includes(node, where, name, folder, chain)
    for key, node, where in top:
        if key == "include":
            continue
        if key == "roles":
            yield from _roles(node, name)
        elif key == "agents":
            yield from _agents(node, name)
        elif key in SECTIONS:
            section = SECTIONS[key]
            for below, value, at in items(node, name, key + "."):
                if below not in section:
                    raise unknown(at, key + ".", below, section)
                yield from _given(f"{key}.{below}", section[below], value, at, name)
        else:
            raise unknown(where, "", key, (*SECTIONS, *CHOSEN))


def _includes(
    node: Node, where: str, name: str, folder: PolicyFolder | None, chain: tuple[str, ...]
) -> Iterator[GivenSetting]:
    value = plain(node, f"{where}: include")
    if folder is None:
        raise UsageError(f"{where}: include: this file stands alone")
    for text in value if isinstance(value, list) else [value]:
        if not isinstance(text, str):
            raise UsageError(f"{where}: include must be the name of a file, or a list of names")
        yield from folder.include(text, where, name, chain)


def _given(key: str, setting: SettingRow, node: Node, at: str, name: str) -> Iterator[GivenSetting]:
    where = f"{at}: {key}"
    if key == "levels.agents":
        for agent, value, line in items(node, name, key + "."):
            here = f"{line}: {key}.{_shown(agent)}"
            yield GivenSetting(f"{key}.{agent}", setting, setting.convert(plain(value, here), here), line)
    elif key == "commands.classes":
        yield from _classes(key, node, name)
    elif key == "commands.rules":
        yield from _rules(key, node, name)
    elif key == "user_commands.trusted":
        for text, number in texts(node, where):
            yield GivenSetting(key, setting, (text_pattern(text, f"{name}:{number}: {key}"),), f"{name}:{number}")
    elif setting.field in ("hosts", "never_inspect"):
        for rule, number in _hosts(key, node, where, name):
            yield GivenSetting(key, setting, (rule,), f"{name}:{number}")
    elif setting.adds:
        for one, item in zip(setting.convert(plain(node, where), where), node.value, strict=True):
            yield GivenSetting(key, setting, (one,), f"{name}:{item.start_mark.line + 1}")
    else:
        yield GivenSetting(key, setting, setting.convert(plain(node, where), where), at)


_CLASSES = SECTIONS["commands"]["classes"]
_RULES = SECTIONS["commands"]["rules"]
ROLE = SettingRow("commands", lambda value, _where: value)
"""Of an agent."""


def _classes(key: str, node: Node, name: str) -> Iterator[GivenSetting]:
    for found, action, at in class_actions(node, name, key + "."):
        yield GivenSetting(f"{key}.{found}", _CLASSES, ClassRule(found, action, _short(at)), at)


def _rules(key: str, node: Node, name: str, agents: tuple[str, ...] = ()) -> Iterator[GivenSetting]:
    for rule in command_rules(node, name, key, agents):
        yield GivenSetting(key, _RULES, (rule,), name[: -len(_short(name))] + rule.source)


def _roles(node: Node, name: str) -> Iterator[GivenSetting]:
    for role, value, at in items(node, name, "roles."):
        key = f"roles.{role}"
        if not _ROLE.fullmatch(role):
            raise UsageError(f"{at}: {_shown(role)} is no name for a role", "letters, digits, - and _")
        yield GivenSetting(key, ROLE, role, at)
        for below, inner, where in items(value, name, key + "."):
            if below == "classes":
                yield from _classes(f"{key}.classes", inner, name)
            elif below == "rules":
                yield from _rules(f"{key}.rules", inner, name, (role,))
            else:
                raise unknown(where, key + ".", below, ("classes", "rules"))


def _agents(node: Node, name: str) -> Iterator[GivenSetting]:
    for agent, value, at in items(node, name, "agents."):
        role = plain(value, f"{at}: agents.{agent}")
        if not isinstance(role, str) or not role:
            raise UsageError(f"{at}: agents.{agent} is {role!r}", "write the name of a role")
        yield GivenSetting(f"agents.{agent}", ROLE, role, at)


_ACTIONS: dict[str, Action] = {"allow": "allow", "ask": "ask", "deny": "deny", "private": "allow"}


def _hosts(key: str, node: Node, where: str, name: str) -> Iterator[tuple[HostRule, int]]:
    """Rules of ``network`` with their lines: which hosts, or the presets that name them."""
    below = key.partition(".")[2]
    if below == "presets":
        from mudroom.core.network.preset import PRESETS, preset_rules

        for text, line in texts(node, where):
            if text not in PRESETS:
                raise unknown(f"{name}:{line}: {key}", "", text, PRESETS, "preset")
            for rule in preset_rules(text):
                yield rule, line
        return
    if below == "inspect":
        found = inspect_rules(node, where, name)
    else:
        found = host_rules(node, where, name, _ACTIONS.get(below, "deny"), private=below == "private")
    for rule, one in zip(found, node.value, strict=True):
        yield rule, one.start_mark.line + 1


def _put(settings: Settings, one: GivenSetting) -> Settings:
    commands = settings.commands
    if one.key.startswith("levels.agents."):
        agents = (*settings.levels.agents, (one.key.removeprefix("levels.agents."), one.value))
        return with_setting(settings, "levels.agents", agents)
    if one.setting is ROLE:
        if one.key.startswith("agents."):
            commands = commands._replace(agents=(*commands.agents, (one.key.removeprefix("agents."), one.value)))
        elif all(role.name != one.value for role in commands.roles):
            commands = commands._replace(roles=(*commands.roles, Role(one.value, source=_short(one.at))))
    elif one.setting is _CLASSES:
        if one.key.startswith("roles."):
            name = one.key[len("roles.") : -len(f".classes.{one.value.name}")]
            commands = commands._replace(
                roles=tuple(
                    role._replace(by_class=(*role.by_class, one.value)) if role.name == name else role
                    for role in commands.roles
                )
            )
        else:
            commands = commands._replace(by_class=(*commands.by_class, one.value))
    elif one.setting is _RULES:
        commands = commands._replace(rules=(*commands.rules, *one.value))
    elif one.setting.adds:
        return with_setting(settings, one.setting.field, (*getattr(settings, one.setting.field), *one.value))
    else:
        return with_setting(settings, one.setting.field, one.value)
    return settings._replace(commands=commands)


def _check_roles(settings: Settings, given: Iterable[GivenSetting]) -> None:
    """Each role that an agent has, or a rule is for, has to be one."""
    roles = dict.fromkeys(role.name for role in settings.commands.roles)
    given = list(given)
    assigned = [one for one in given if one.setting is ROLE and one.key.startswith("agents.")]
    known = {*roles, *(one.key.removeprefix("agents.") for one in assigned)}
    for one in given:
        if one.setting is ROLE and one.key.startswith("agents.") and one.value not in roles:
            raise unknown(one.at, "", one.value, roles, "role")
        if one.setting is _RULES:
            for name in one.value[0].agents:
                if name not in known:
                    raise unknown(one.at, "", name, known, "role or agent")


def _short(at: str) -> str:
    return at.rpartition("/")[2]


def _shown(text: str) -> str:
    return show(text.encode("utf-8", "backslashreplace"))
