"""The bash and zsh completions. Both find words in the same way and differ in how they offer them. The generated part
is functions with ``case`` patterns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from mudroom.ext.completion.grammar import VerbLine, VerbOption


def filled(name: str, **parts: str) -> str:
    """Return a template with its ``@NAME@`` replaced. No part is looked at for a further one."""
    with open(os.path.join(os.path.dirname(__file__), "template", name), encoding="utf-8") as file:
        return re.sub(r"@([A-Z]+)@", lambda found: parts[found[1].lower()], file.read())


def options_by_value(lines: Sequence[VerbLine]) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """Return ``VERB OPTION`` for all options that take a value, by the value's kind and choices."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for line in lines:
        for option in line.options:
            if option.takes:
                words = (f"{' '.join(line.words)} {name}" for name in option.names)
                found.setdefault((option.kind, option.choices), []).extend(words)
    return found


def without_repeats(line: VerbLine, lines: Sequence[VerbLine]) -> bool:
    """Return whether this is an action with its verb's own options: both use the same parser."""
    verb = next(other for other in lines if other.words == line.words[:1])
    return len(line.words) > 1 and line.options == verb.options


def first_sentence(option: VerbOption) -> str:
    """Return an option's help for a list: up to the first semicolon or full stop."""
    text = option.help.replace("\n", " ")
    for end in ("; ", ". "):
        text = text.partition(end)[0]
    return text.rstrip(".")


def bash(lines: Sequence[VerbLine]) -> str:
    return filled("mudroom.bash", tables=_tables(lines, with_help=False))


def zsh(lines: Sequence[VerbLine]) -> str:
    return filled("_mudroom", tables=_tables(lines, with_help=True))


def _tables(lines: Sequence[VerbLine], *, with_help: bool) -> str:
    verbs = [(line.words[0], line.help) for line in lines if len(line.words) == 1]
    return "\n".join(
        [
            "__mudroom_verbs() { " + _printed(verbs, with_help=with_help) + "; }",
            _function("__mudroom_options", '"$1"', _options(lines, with_help=with_help)),
            _function("__mudroom_actions", '"$1"', _actions(lines, with_help=with_help)),
            _function("__mudroom_is_action", '"$1"', _whether_actions(lines)),
            _function("__mudroom_value", '"$1"', _values(lines)),
            _function("__mudroom_argument", '"$1 $2"', _arguments(lines)),
        ]
    )


def _function(name: str, word: str, rows: Iterable[tuple[Sequence[str], str]]) -> str:
    cases = "\n".join(f"        {'|'.join(patterns)}) {body} ;;" for patterns, body in rows)
    return f"{name}() {{\n    case {word} in\n{cases}\n    esac\n}}\n"


def _options(lines: Sequence[VerbLine], *, with_help: bool) -> list[tuple[Sequence[str], str]]:
    rows: list[tuple[Sequence[str], str]] = []
    for line in lines:
        if without_repeats(line, lines):
            continue
        printed = [(name, first_sentence(option)) for option in line.options for name in option.names]
        name = " ".join(line.words)
        shared = not any(other.words[:-1] == line.words and not without_repeats(other, lines) for other in lines)
        patterns = [_quoted(name), f"{_quoted(name + ' ')}*"] if shared and line.actions else [_quoted(name)]
        rows.append((patterns, _printed(printed, with_help=with_help)))
    return rows


def _actions(lines: Sequence[VerbLine], *, with_help: bool) -> list[tuple[Sequence[str], str]]:
    rows: list[tuple[Sequence[str], str]] = []
    for line in lines:
        if line.actions:
            printed = [(action, "") for action in line.actions]
            rows.append(([_quoted(line.words[0])], _printed(printed, with_help=with_help)))
    return rows


def _whether_actions(lines: Sequence[VerbLine]) -> list[tuple[Sequence[str], str]]:
    return [([_quoted(" ".join(line.words)) for line in lines if len(line.words) > 1], "echo yes")]


def _values(lines: Sequence[VerbLine]) -> list[tuple[Sequence[str], str]]:
    rows: list[tuple[Sequence[str], str]] = []
    for (kind, choices), words in options_by_value(lines).items():
        said = "words" + " ".join(choices) if choices else "kind" + kind
        rows.append(([_quoted(word) for word in words], f"echo {_quoted(said)}"))
    return rows


def _arguments(lines: Sequence[VerbLine]) -> list[tuple[Sequence[str], str]]:
    rows: list[tuple[Sequence[str], str]] = []
    for line in lines:
        name = " ".join(line.words)
        kinds = [kind.replace("+", " ") for kind in line.arguments]
        for at, kind in enumerate(kinds):
            pattern = f"{_quoted(name + ' ')}*" if at == len(kinds) - 1 else _quoted(f"{name} {at}")
            if kind and not (at == 0 and line.actions):
                rows.append(([pattern], f"echo {_quoted(kind)}"))
    return rows


def _printed(rows: Sequence[tuple[str, str]], *, with_help: bool) -> str:
    if with_help:
        return r"printf '%s\t%s\n' " + " ".join(f"{_quoted(word)} {_quoted(text)}" for word, text in rows)
    return r"printf '%s\n' " + " ".join(_quoted(word) for word, _text in rows)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
