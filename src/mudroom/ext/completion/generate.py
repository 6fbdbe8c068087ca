"""The text of a shell's completion, or of the manual page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from mudroom import __version__
from mudroom.ext.completion.grammar import VerbLine, VerbOption, lines
from mudroom.ext.completion.posix import bash, filled, first_sentence, without_repeats, zsh


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


# --- The manual page, in man(7) macros (groff_man(7)), from the same lines as the completions ---


DATE = "2026-11-26"
"""The version's date; dev/release sets it."""

_SHARED = ("--json", "--project", "--help")


def man(lines: Sequence[VerbLine], version: str) -> str:
    verbs = "".join(_verb(line) for line in lines if len(line.words) == 1)
    return filled("mudroom.1", date=DATE, version=version, verbs=verbs)


def _verb(line: VerbLine) -> str:
    name = " ".join(line.words)
    parts = [f'.SS "mudroom {name}"\n', _text(line.help[0].upper() + line.help[1:] + "."), ".PP\n", _text(line.usage)]
    parts += [_option(option) for option in line.options if not set(option.names) & set(_SHARED)]
    if line.examples:
        parts += [".PP\n.nf\n", "".join(map(_line, line.examples.split("\n"))), ".fi\n"]
    return "".join(parts)


def _option(option: VerbOption) -> str:
    names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in option.names)
    takes = f" \\fI{_escaped(option.takes)}\\fR" if option.takes else ""
    return f".TP\n{names}{takes}\n" + (_text(option.help) if option.help else "\\&\n")


def _text(text: str) -> str:
    """Return filled text as source lines for the manual page. They are wrapped at 68 characters, because escapes
    lengthen a line and a source line should have at most 80 bytes."""
    return "".join(map(_line, textwrap.wrap(text, 68, break_long_words=False, break_on_hyphens=False)))


def _line(row: str) -> str:
    row = _escaped(row.rstrip())
    return ("\\&" + row if row.startswith((".", "'")) or not row else row) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("\t", "  ")


def generated(name: str) -> str:
    """Return the completion of a shell, or the manual page (``man``)."""
    if name == "man":
        return man(lines(), __version__)
    return {"bash": bash, "zsh": zsh, "fish": fish}[name](lines())
