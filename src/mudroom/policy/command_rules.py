"""Parse rules for commands in YAML: under ``commands:`` and in roles.

Rules of this file: a pattern is split as a shell would split it, and nothing is expanded. Every example is tried when
the file is read; a rule that fails its own examples makes the whole file an error.
"""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.command.pattern_text import split_words
from mudroom.core.command.policy import CommandRule, Pattern, matches
from mudroom.core.command.verdict import ACTIONS, CLASSES, Action, CommandClass
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.yaml import items, plain, texts, unknown
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml.nodes import Node

KEYS = ("pattern", "action", "reason", "instead", "agents", "match", "not_match", "exact")
LONGEST = 64
"""Maximum words in a pattern."""
MOST = 10_000
"""Maximum total weight of a file's settings: each setting counts 1, as does each word, agent and example in a rule."""
_PIECE = 64
"""Bytes of an example that weigh as much as a word, because each example is parsed as a shell line."""


def class_actions(node: Node, name: str, prefix: str) -> Iterator[tuple[CommandClass, Action, str]]:
    """Yield (class, action, "file:line") from a mapping."""
    for key, value, at in items(node, name, prefix):
        if key not in CLASSES:
            raise unknown(at, prefix, key, CLASSES, "class of commands")
        yield CLASSES[CLASSES.index(key)], _action(plain(value, f"{at}: {prefix}{key}"), f"{at}: {prefix}{key}"), at


def command_rules(node: Node, name: str, key: str, agents: tuple[str, ...] = ()) -> Iterator[CommandRule]:
    """Yield a list's rules, each with its position. ``agents``: the agents that all these rules apply to."""
    from yaml.nodes import MappingNode, SequenceNode

    if not isinstance(node, SequenceNode):
        raise UsageError(f"{_at(node, name)}: {key} must be a list", "one rule a line, behind '- '")
    for rule_node in node.value:
        if not isinstance(rule_node, MappingNode):
            raise UsageError(f"{_at(rule_node, name)}: {key}: a rule has keys with values", "{pattern: …, action: …}")
        yield _rule(rule_node, name, key, agents)


def _rule(node: Node, name: str, key: str, agents: tuple[str, ...]) -> CommandRule:
    at = _at(node, name)
    values: dict[str, Any] = {"agents": agents}
    for field, value, where in items(node, name, key + "."):
        if field not in KEYS or (field == "agents" and agents):
            raise unknown(
                where, key + ".", field, [allowed for allowed in KEYS if allowed != "agents" or not agents], "key"
            )
        values[field] = _value(field, value, f"{where}: {key}.{field}", name)
    for required in ("pattern", "action"):
        if required not in values:
            raise UsageError(f"{at}: {key}: a rule without {required}", "{pattern: git push --force, action: deny}")
    rule = CommandRule(source=at.rpartition("/")[2], **values)
    if weight(rule) > MOST:  # before any example is tried
        raise UsageError(f"{at}: {key}: a rule with too many words, agents and examples", "make several rules of it")
    _try_examples(rule, at, key)
    return rule


def weight(rule: CommandRule) -> int:
    """Return the rule's weight, which counts towards ``MOST``."""
    examples = sum(1 + len(text) // _PIECE for text in (*rule.match, *rule.not_match))
    return 1 + sum(map(len, rule.pattern)) + len(rule.agents) + examples


def _value(field: str, node: Node, where: str, name: str) -> Any:
    if field == "pattern":
        return pattern(node, where, name)
    if field in ("agents", "match", "not_match"):
        return tuple(item.text for item in texts(node, where))
    value = plain(node, where)
    if field == "action":
        return _action(value, where)
    if field == "exact":
        if not isinstance(value, bool):
            raise UsageError(f"{where} is {value!r}", "allowed: true, false")
        return value
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UsageError(f"{where} must be a text of one line")
    return value


def pattern(node: Node, where: str, name: str) -> Pattern:
    """Return a pattern. A text is split into words. In a list, each item is a word or a list of alternatives."""
    from yaml.nodes import SequenceNode

    if not isinstance(node, SequenceNode):
        return text_pattern(plain(node, where), where)
    if not 0 < len(node.value) <= LONGEST:
        raise UsageError(f"{where}: a pattern has 1 to {LONGEST} words")
    words_of_pattern = []
    for word_node in node.value:
        at = f"{_at(word_node, name)}: {where.partition(': ')[2]}"
        value = plain(word_node, at)
        words = value if isinstance(value, list) else [value]
        if not words or not all(isinstance(word, str) and word and word.isprintable() for word in words):
            raise UsageError(f"{at}: a word is a text, or a list of texts", 'numbers and yes and no in quotes: "1"')
        words_of_pattern.append(tuple(dict.fromkeys(word.encode("utf-8", "surrogatepass") for word in words)))
    return tuple(words_of_pattern)


def text_pattern(value: Any, where: str) -> Pattern:
    if not isinstance(value, str):
        raise UsageError(f"{where} is {value!r}", "write the first words of a command: git push --force")
    try:
        words = split_words(value)
    except (ValueError, UnicodeEncodeError) as error:
        raise UsageError(f"{where}: {show(value.encode('utf-8', 'backslashreplace'))}: {error}") from error
    if len(words) > LONGEST:
        raise UsageError(f"{where}: a pattern has 1 to {LONGEST} words")
    return tuple((word,) for word in words)


def _action(value: Any, where: str) -> Action:
    if value not in ACTIONS:
        raise UsageError(f"{where} is {value!r}", "allowed: " + ", ".join(ACTIONS))
    return ACTIONS[ACTIONS.index(value)]


def _try_examples(rule: CommandRule, at: str, key: str) -> None:
    if not rule.match and not rule.not_match:
        return
    from mudroom.core.command.program.classification import classify_line

    for should_match, examples in ((True, rule.match), (False, rule.not_match)):
        for example in examples:
            parts = classify_line(example.encode("utf-8", "surrogatepass")).parts
            if any(matches(rule, part) for part in parts) != should_match:
                shown = show(example.encode("utf-8", "backslashreplace"))
                failure = "does not match its own example" if should_match else "matches what it says it does not:"
                raise UsageError(
                    f"{at}: {key}: the rule {failure} {shown}",
                    "correct the rule or its examples; until then the file is not used",
                )


def _at(node: Node, name: str) -> str:
    return f"{name}:{node.start_mark.line + 1}"
