"""Parse one policy file into items: one setting, or one list element, each with its position.

Rules of this file: every mistake is an error that names file, line and key, because a setting that is silently ignored
is a missing protection. This module decides nothing: ``policy/combine.py`` merges several files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mudroom.core.command.policy import ClassRule, Role
from mudroom.core.network.host_entry import expand
from mudroom.core.network.host_pattern import PRESET
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.preset import PRESETS
from mudroom.core.settings import Settings
from mudroom.core.text.regex import regex
from mudroom.core.tree.pattern import pattern_error
from mudroom.errors import UsageError
from mudroom.policy.command_rules import MOST, class_actions, command_rules, text_pattern, weight
from mudroom.policy.setting_row import SettingRow, with_setting
from mudroom.policy.setting_type import ValueType, fork_rules
from mudroom.policy.settings_table import SECTIONS
from mudroom.policy.yaml import compose, host_rules, inspect_rules, items, plain, shown_text, texts, unknown
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from yaml.nodes import Node

    from mudroom.core.network.host_rules import HostRule, RuleWord

FREE_SECTIONS = ("roles", "agents", "include")
"""Sections whose keys the user chooses, and the section with included files."""
FILES = 64
"""Maximum included files."""
DEPTH = 8
"""Maximum depth of includes."""
_HOST_FIELDS = ("hosts", "never_inspect")
"""Settings fields that hold host rules."""
_ROLE = regex(r"[A-Za-z0-9_-]{1,64}")


class GivenSetting(NamedTuple):
    key: str
    """``network.allow``, ``commands.classes.destructive``, ``roles.reviewer.rules``."""
    setting: SettingRow
    value: Any
    """For a setting that adds up: a tuple with one element."""
    at: str
    """``/path/policy.yaml:12``."""
    local: bool = False
    """Whether it is for this machine: from a file in ``.mudroom/local``."""


class PolicyFolder:
    """The files that a policy file may include: files in its own directory, each read once."""

    def __init__(self, read: Callable[[bytes], bytes | None]) -> None:
        """``read`` returns the content of a file in the directory, or None; it follows no symbolic link."""
        self._read = read
        self._done: set[str] = set()

    def include(self, text: str, where: str, name: str, chain: tuple[str, ...]) -> Iterator[GivenSetting]:
        """Yield the included file's items. ``chain``: the file names that led here."""
        if not text or "/" in text or "\0" in text or text in (".", ".."):
            raise UsageError(
                f"{where}: include: {shown_text(text)} is not a file name in the same directory",
                "write the name without a path",
            )
        if text in chain:
            loop = " → ".join(map(shown_text, (*chain, text)))
            raise UsageError(f"{where}: files include each other: {loop}", "remove one of these includes")
        if len(chain) > DEPTH:
            raise UsageError(f"{where}: include: more than {DEPTH} files deep: " + " → ".join(map(shown_text, chain)))
        if text in self._done:
            return
        if len(self._done) >= FILES:
            raise UsageError(f"{where}: include: more than {FILES} files")
        self._done.add(text)
        data = self._read(text.encode("utf-8", "surrogateescape"))
        beside = name[: -len(_short(name))] + shown_text(text)
        if data is None:
            raise UsageError(f"{where}: include: there is no file {beside}")
        yield from _file(data, beside, self, (*chain, text))


def parse(data: bytes, name: str, folder: PolicyFolder | None = None) -> list[GivenSetting]:
    """Return the file's items. ``name`` is shown in error messages. Included items come first, and the file's own win
    where both set a value. Raise UsageError."""
    return list(_file(data, name, folder, (_short(name),)))


def _file(data: bytes, name: str, folder: PolicyFolder | None, chain: tuple[str, ...]) -> Iterator[GivenSetting]:
    given: list[GivenSetting] = []
    total_weight = 0
    for item in _sections(data, name, folder, chain):
        given.append(item)
        total_weight += weight(item.value[0]) if item.setting is _RULES else 1
        if total_weight > MOST:
            raise UsageError(f"{item.at}: more than {MOST:,} settings", "no policy needs so many")
    networks = [item for item in given if item.setting.field == "network" and item.at.rpartition(":")[0] == name]
    if len(networks) > 1:
        first, second = (f"{item.at}: {item.key}" for item in networks)
        raise UsageError(f"{second}: {first} says it already", "keep network.mode")
    yield from given


def settings_from(given: Iterable[GivenSetting], left_out: Iterable[GivenSetting] = ()) -> Settings:
    """Return the settings with all given items, applied in this order. ``left_out``: items that do not apply. Raise
    UsageError for an undefined role."""
    settings, all_given = Settings(), list(given)
    for item in all_given:
        settings = _with_item(settings, item)
    _check_roles(settings, [*all_given, *left_out])
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
            raise unknown(where, "", key, (*SECTIONS, *FREE_SECTIONS))


def _includes(
    node: Node, where: str, name: str, folder: PolicyFolder | None, chain: tuple[str, ...]
) -> Iterator[GivenSetting]:
    value = plain(node, f"{where}: include")
    if folder is None:
        raise UsageError(f"{where}: include: this file cannot include others")
    for text in value if isinstance(value, list) else [value]:
        if not isinstance(text, str):
            raise UsageError(f"{where}: include must be the name of a file, or a list of names")
        yield from folder.include(text, where, name, chain)


def _given(key: str, setting: SettingRow, node: Node, at: str, name: str) -> Iterator[GivenSetting]:
    where = f"{at}: {key}"
    if key == "levels.agents":
        for agent, value, line in items(node, name, key + "."):
            position = f"{line}: {key}.{shown_text(agent)}"
            if wrong := pattern_error(agent.encode()):
                raise UsageError(f"{position}: {shown_text(agent)} {wrong}", "an agent's name, or a pattern: some-*")
            yield GivenSetting(f"{key}.{agent}", setting, setting.convert(plain(value, position), position), line)
    elif key == "commands.classes":
        yield from _classes(key, node, name)
    elif key == "commands.rules":
        yield from _rules(key, node, name)
    elif key == "user_commands.trusted":
        for text, number in texts(node, where):
            yield GivenSetting(key, setting, (text_pattern(text, f"{name}:{number}: {key}"),), f"{name}:{number}")
    elif setting.field in _HOST_FIELDS:
        for rule, number in _hosts(key, node, where, name):
            yield GivenSetting(key, setting, (rule,), f"{name}:{number}")
    elif key == "network.forks":
        for side, value, line in items(node, name, key + "."):
            position = f"{line}: {key}.{shown_text(side)}"
            consents = fork_rules(plain(value, position), side, position)
            for consent, consent_node in zip(consents, value.value, strict=True):
                yield GivenSetting(f"{key}.{side}", setting, (consent,), f"{name}:{consent_node.start_mark.line + 1}")
    elif key == "start.commands":
        yield GivenSetting(key, setting, setting.convert(_start_rows(key, node, where, name), where), at)
    elif setting.adds:
        for element, element_node in zip(setting.convert(plain(node, where), where), node.value, strict=True):
            yield GivenSetting(key, setting, (element,), f"{name}:{element_node.start_mark.line + 1}")
    else:
        yield GivenSetting(key, setting, setting.convert(plain(node, where), where), at)


def _start_rows(key: str, node: Node, where: str, name: str) -> Any:
    """Return a list of values: texts, lists of texts, and mappings of both."""
    from yaml.nodes import MappingNode, SequenceNode

    if not isinstance(node, SequenceNode):
        return plain(node, where)
    return [
        {below: plain(value, f"{line}: {key}.{below}") for below, value, line in items(element, name, f"{key}.")}
        if isinstance(element, MappingNode)
        else plain(element, where)
        for element in node.value
    ]


_PATTERN = frozenset("*?[]")
_CLASSES = SECTIONS["commands"]["classes"]
_RULES = SECTIONS["commands"]["rules"]
ROLE = SettingRow("roles", "commands", ValueType(lambda value, _where: value, {}), "role of an agent", "")
"""An agent's role, or a role's definition."""


def _classes(key: str, node: Node, name: str) -> Iterator[GivenSetting]:
    for class_name, action, at in class_actions(node, name, key + "."):
        yield GivenSetting(f"{key}.{class_name}", _CLASSES, ClassRule(class_name, action, _short(at)), at)


def _rules(key: str, node: Node, name: str, agents: tuple[str, ...] = ()) -> Iterator[GivenSetting]:
    for rule in command_rules(node, name, key, agents):
        yield GivenSetting(key, _RULES, (rule,), name[: -len(_short(name))] + rule.source)


def _roles(node: Node, name: str) -> Iterator[GivenSetting]:
    for role, value, at in items(node, name, "roles."):
        key = f"roles.{role}"
        if not _ROLE.fullmatch(role):
            raise UsageError(f"{at}: {shown_text(role)} is no name for a role", "letters, digits, - and _")
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
        if not _PATTERN.isdisjoint(agent):
            # a pattern could displace the role that the user's own file gives to one of these agents
            raise UsageError(
                f"{at}: agents.{shown_text(agent)} is no name of an agent", "give each agent its role by name"
            )
        role = plain(value, f"{at}: agents.{agent}")
        if not isinstance(role, str) or not role:
            raise UsageError(f"{at}: agents.{agent} is {role!r}", "write the name of a role")
        yield GivenSetting(f"agents.{agent}", ROLE, role, at)


_ACTIONS: dict[str, RuleWord] = {
    "allow": "allow",
    "ask": "ask",
    "deny": "deny",
    "hold": "hold",
    "private": "allow",
}


def _hosts(key: str, node: Node, where: str, name: str) -> Iterator[tuple[HostRule, int]]:
    """Yield the host rules under a ``network`` key with their lines. A preset stays its word, because trust and the
    merge compare the word; ``settings_from`` replaces it by its hosts."""
    below = key.partition(".")[2]
    if below == "presets":
        for text, line in texts(node, where):
            preset = text.removeprefix(PRESET)
            if preset not in PRESETS:
                raise unknown(f"{name}:{line}: {key}", "", preset, PRESETS, "preset")
            yield HostRule("allow", PRESET + preset, source=f"{_short(name)}:{line}"), line
        return
    if below == "inspect":
        rules = inspect_rules(node, where, name)
    else:
        rules = host_rules(node, where, name, _ACTIONS.get(below, "deny"), private=below == "private")
    for rule, rule_node in zip(rules, node.value, strict=True):
        yield rule, rule_node.start_mark.line + 1


def _with_item(settings: Settings, item: GivenSetting) -> Settings:
    commands = settings.commands
    if item.key.startswith("levels.agents."):
        agents = (*settings.levels.agents, (item.key.removeprefix("levels.agents."), item.value))
        return with_setting(settings, "levels.agents", agents)
    if item.setting is ROLE:
        if item.key.startswith("agents."):
            commands = commands._replace(agents=(*commands.agents, (item.key.removeprefix("agents."), item.value)))
        elif all(role.name != item.value for role in commands.roles):
            commands = commands._replace(roles=(*commands.roles, Role(item.value, source=_short(item.at))))
    elif item.setting is _CLASSES:
        if item.key.startswith("roles."):
            name = item.key[len("roles.") : -len(f".classes.{item.value.name}")]
            commands = commands._replace(
                roles=tuple(
                    role._replace(by_class=(*role.by_class, item.value)) if role.name == name else role
                    for role in commands.roles
                )
            )
        else:
            commands = commands._replace(by_class=(*commands.by_class, item.value))
    elif item.setting is _RULES:
        commands = commands._replace(rules=(*commands.rules, *item.value))
    elif item.setting.adds:
        value = expand(item.value) if item.setting.field in _HOST_FIELDS else item.value
        return with_setting(settings, item.setting.field, (*getattr(settings, item.setting.field), *value))
    else:
        return with_setting(settings, item.setting.field, item.value)
    return settings._replace(commands=commands)


def _check_roles(settings: Settings, given: Iterable[GivenSetting]) -> None:
    """Raise UsageError unless each role that an agent or rule names is defined."""
    roles = dict.fromkeys(role.name for role in settings.commands.roles)
    given = list(given)
    assigned = [item for item in given if item.setting is ROLE and item.key.startswith("agents.")]
    known_names = {*roles, *(item.key.removeprefix("agents.") for item in assigned)}
    for item in given:
        if item.setting is ROLE and item.key.startswith("agents.") and item.value not in roles:
            raise unknown(item.at, "", item.value, roles, "role")
        if item.setting is _RULES:
            for name in item.value[0].agents:
                if name not in known_names:
                    raise unknown(item.at, "", name, known_names, "role or agent")


def _short(at: str) -> str:
    return at.rpartition("/")[2]
