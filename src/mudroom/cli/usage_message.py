"""argparse's error messages in mudroom's words, with the name that was probably meant.

message from argparse                       told as
unrecognized arguments: --lvel              run has no option --lvel (did you mean --level? …)
unrecognized arguments: now                 setup takes no argument now
argument --level: invalid choice: '7' …     --level 7: choose from 0, 1, 2
argument allow|deny: invalid choice: 'x' …  net has no action 'x' (did you mean …)
argument --net: expected one argument       --net needs a value
argument -n: invalid int value: 'x'         -n 'x' is not a whole number
argument --no: not allowed with argument …  --no is not for a line with --yes
argument -y: ignored explicit argument 'es' run has no option -yes; of --yes=1: --yes takes no value
the following arguments are required: FORK  apply needs FORK; with an unknown option: apply has no option --x
the following …: run|ls|show                agent needs an action: run, ls, show
the following …: action, NAME               fork needs an action: new, ls, rename, rm

Any other message is passed on unchanged. The texts are those in CPython 3.11 to 3.14 (Lib/argparse.py).
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence

_UNKNOWN = "unrecognized arguments: "
_REQUIRED = "the following arguments are required: "
_CHOICE = ": invalid choice: "
_NUMBERS = {": invalid int value: ": "is not a whole number", ": invalid float value: ": "is not a number"}
_EXCLUSIVE = ": not allowed with argument "
_EXPLICIT = ": ignored explicit argument "
_ACTIONS = ("action", "what")
_NO_VALUE = (": expected one argument", ": expected at least one argument")


_LIKELY = 0.75
"""Minimum difflib ratio for a name to be suggested. Below it, --foo would suggest --io."""


_INSTEAD = {
    "apply --dry-run": "mudroom diff shows what it would apply",
    "diff --name-only": "mudroom diff --stat lists the files",
    "diff --name-status": "mudroom diff --stat lists the files",
    "exec --yes": "mudroom run --yes -- COMMAND applies its changes",
    "exec --from": "mudroom fork new NAME --from FORK[@CHECKPOINT]",
    "exec --mark": "mudroom checkpoint NAME --fork FORK",
    "exec --snapshot": "mudroom fork new NAME --snapshot",
    "log --tail": "mudroom log -n 20",
    "log -f": "mudroom log --follow",
    **dict.fromkeys(
        (f"run {name}" for name in ("--network", "--no-network", "--no-net", "--offline")),
        "mudroom run --net none -- COMMAND has no network",
    ),
    "run --dry-run": "mudroom run --no -- COMMAND only shows its changes",
    "run --fork": "mudroom exec --fork NAME -- COMMAND",
}
"""Other tools' or verbs' options, with the equivalent here."""
_ARGUMENTS = {
    "log": "mudroom log -n {}",
    "rollback": "mudroom rollback CHECKPOINT --fork FORK",
    "serve": "mudroom serve --port {}",
    "shell": "mudroom shell --fork {}",
}
"""Probably intended line where a verb takes no such argument."""
_OF_ACTIONS = {
    "agent": "mudroom agent run {0} runs it; ",
    "log": "mudroom log --fork {0} has the events of a fork; ",
}
"""The same for verbs with actions, if no action has a similar name."""
_MEANT = {
    **dict.fromkeys(("list", "show", "status"), "ls"),
    **dict.fromkeys(("create", "make"), "new"),
    **dict.fromkeys(("delete", "discard", "drop", "remove"), "rm"),
    **dict.fromkeys(("block", "forbid", "refuse"), "deny"),
    **dict.fromkeys(("clean", "prune"), "gc"),
    **dict.fromkeys(("add", "permit"), "allow"),
    "move": "rename",
}
"""Other tools' actions, with the action here."""


def explain(
    message: str, prog: str, options: Sequence[str], words: Sequence[str] = (), actions: Sequence[str] = ()
) -> tuple[str, str]:
    """Return the error message and the hint for argparse's ``message``. ``prog`` is the verb as typed, ``options`` are
    all its options, ``words`` the line before ``--``, ``actions`` the choices for its first argument."""
    verb, help_of = prog.removeprefix("mudroom "), f"{prog} --help"
    if message.startswith(_UNKNOWN):
        word = message.removeprefix(_UNKNOWN).split(" ")[0]
        if not word.startswith("-"):
            meant = _ARGUMENTS.get(verb, "") if _is_name(word) and (verb != "serve" or word.isdigit()) else ""
            return f"{verb} takes no argument {word or repr(word)}", meant.format(word) or help_of
        name = word.partition("=")[0]
        if words[:1] == ["why"]:
            return f"{verb} has no option {name}", f"a command stands after --: {prog} why -- {shlex.join(words[1:])}"
        return f"{verb} has no option {name}", _INSTEAD.get(f"{verb} {name}") or f"{_near(name, options)}{help_of}"
    if message.startswith(_REQUIRED):
        unknown = [word.partition("=")[0] for word in words if word.startswith("-")]
        unknown = [name for name in unknown if name not in options]
        if unknown:  # more useful than the missing name
            instead = _INSTEAD.get(f"{verb} {unknown[0]}")
            return f"{verb} has no option {unknown[0]}", instead or f"{_near(unknown[0], options)}{help_of}"
        missing = message.removeprefix(_REQUIRED)
        first = missing.split(", ")[0]
        listed = actions or first.split("|")
        if len(listed) <= 1:
            return f"{verb} needs {missing}", help_of
        of_actions = first in _ACTIONS or "|" in first
        return f"{verb} needs {'an action' if of_actions else first}: {', '.join(listed)}", help_of
    if not message.startswith("argument "):
        return message, help_of
    argument = message.removeprefix("argument ")
    if _CHOICE in argument:
        name, _, rest = argument.partition(_CHOICE)
        value, _, listed = rest.partition(" (choose from ")
        choices = listed.removesuffix(")").replace("'", "")
        if name.startswith("-"):
            return f"{name} {value}: choose from {choices}", help_of
        word, named = value.strip("'"), choices.split(", ")
        if verb == "log" and word.isdigit():
            return f"{verb} takes no argument {word}", _ARGUMENTS[verb].format(word)
        near = f"did you mean {prog} {_MEANT[word]}? " if _MEANT.get(word) in named else _near(word, named, f"{prog} ")
        listed = f"choose from {choices}; "
        instead = _OF_ACTIONS.get(verb, listed).format(word) if _is_name(word) else listed
        return f"{verb} has no action {value}", (near or instead) + help_of
    if _EXCLUSIVE in argument:
        name, _, other = argument.partition(_EXCLUSIVE)
        return f"{name} is not for a line with {other}", help_of
    if _EXPLICIT in argument:
        name, _, rest = argument.partition(_EXPLICIT)
        ending = rest.strip("'")
        given = next((word for word in words if word.endswith(ending) and "=" not in word), "")
        if given:  # short options run together
            return f"{verb} has no option {given}", f"{_near(given, options)}{help_of}"
        return f"{name} takes no value", help_of
    for middle, told in _NUMBERS.items():
        if middle in argument:
            return f"{argument.replace(middle, ' ')} {told}", help_of
    for ending in _NO_VALUE:
        if argument.endswith(ending):
            return f"{argument.removesuffix(ending)} needs a value", help_of
    return argument, help_of


def _is_name(word: str) -> bool:
    """Return whether a word can be a number, or a fork's or agent's name."""
    return word.isascii() and word[:1].isalnum() and word.translate({45: "", 46: "", 95: ""}).isalnum()


def _near(word: str, words: Sequence[str], before: str = "") -> str:
    if word[:1] == "-" != word[1:2]:  # -it is no --git, but -yes is --yes
        near = [f"-{word}"] if f"-{word}" in words else []
    else:
        near = difflib.get_close_matches(word, [other for other in words if other != word], 1, _LIKELY)
    return f"did you mean {before}{near[0]}? " if near else ""
