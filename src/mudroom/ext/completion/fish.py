"""The fish completion: a line for each option, with the verbs that have it."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.ext.completion.grammar import VerbLine, VerbOption
from mudroom.ext.completion.shell_table import filled, first_sentence, without_repeats


def fish(lines: Sequence[VerbLine]) -> str:
    """Return the fish completion. A condition on a verb holds for all its actions, too."""
    actions = " ".join(_quoted(" ".join(line.words)) for line in lines if len(line.words) > 1)
    rows = [
        f"complete -c mudroom -n 'test (count (commandline -opc)) = 1' -a {line.words[0]} -d {_quoted(line.help)}"
        for line in lines
        if len(line.words) == 1
    ]
    rows += [
        f"complete -c mudroom -n '__mudroom_is {line.words[0]}' -a {_quoted(' '.join(line.actions))}"
        for line in lines
        if line.actions
    ]
    rows += [_option_row(option, names) for option, names in _shared(lines).items()]
    for line in lines:
        rows += _argument_rows(line)
    return filled("mudroom.fish", actions=actions, rows="\n".join(rows))


def _shared(lines: Sequence[VerbLine]) -> dict[VerbOption, list[str]]:
    """Return each option with the verbs and actions that have it."""
    found: dict[VerbOption, list[str]] = {}
    for line in lines:
        if not without_repeats(line, lines):
            for option in line.options:
                found.setdefault(option, []).append(" ".join(line.words))
    return found


def _option_row(option: VerbOption, names: Sequence[str]) -> str:
    condition = " ".join(name if " " not in name else f'"{name}"' for name in names)
    words = [f"complete -c mudroom -n '__mudroom_in {condition}'"]
    words += [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    if option.takes:
        words.append("-r" if option.kind in ("files", "directories") else "-x")
        words += [f"-a {_quoted(_source(option.kind, option.choices))}"] if option.kind or option.choices else []
    words += ["-F"] if option.kind == "files" else []
    return " ".join(words) + f" -d {_quoted(first_sentence(option))}"


def _source(kind: str, choices: Sequence[str]) -> str:
    if choices:
        return " ".join(choices)
    if kind == "directories":
        return "(__fish_complete_directories)"
    return "" if kind == "files" else f"(mudroom completion --values {kind} 2>/dev/null)"


def _argument_rows(line: VerbLine) -> list[str]:
    name = " ".join(line.words)
    condition = f'"{name}"'
    rows = []
    for kind in dict.fromkeys(kind for kinds in line.arguments for kind in kinds.split("+") if kind):
        if kind == "files":
            rows.append(f"complete -c mudroom -n '__mudroom_is {condition}' -F")
        elif kind == "paths":
            rows.append(f"complete -c mudroom -n '__mudroom_is {condition}' -a '(__mudroom_paths)'")
        elif not line.actions:
            first = kind == "forks" and len(line.arguments) > 1
            alone = "; and not string length -q -- (__mudroom_fork)" if first else ""
            condition_now = f"__mudroom_is {condition}{alone}"
            rows.append(f"complete -c mudroom -n {_quoted(condition_now)} -a {_quoted(_source(kind, ()))}")
    return rows


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
