"""bash builtins that change the meaning of later commands (bash(1), SHELL BUILTIN COMMANDS)."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding
from mudroom.core.command.table_rule import CHANGE, ESCAPE, READ, UNSURE, ProgramRule, entries, names, operands, option
from mudroom.core.command.variable import runs_code
from mudroom.core.command.word import Word
from mudroom.core.text.regex import regex

_ASSIGNED_NUMBER = regex(rb"[A-Za-z_]\w*=-?[0-9]+\Z")

_READS = ProgramRule(READ, "only changes the shell itself", style="any")
_RUNS_INSIDE = regex(rb"\$\(|`|\[")
_HARMLESS_SHOPTS = names("-s -u -q -p nullglob globstar dotglob failglob extglob nocaseglob inherit_errexit")
_SET_LETTERS = frozenset(b"euxovCfmbhnET")
_SET_NAMES = names("pipefail errexit nounset xtrace noglob noclobber verbose errtrace functrace monitor posix")
_WITH_KINDS = frozenset({b"declare", b"typeset", b"local"})
_OWN_JOB = regex(rb"%[0-9+%-]*\Z|\$!\Z|\$\{!\}\Z")
_SIGNAL = regex(rb"-([A-Z]+[0-9]*|[0-9]+|s|n)\Z")


def evaluates(word: Word) -> bool:
    """Return whether bash may run a command from this word when it takes the word for a variable's name."""
    return bool(_RUNS_INSIDE.search(word.text))


def naming(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    """Judge a builtin that takes variable names: a name may hold a subscript, and a subscript may run commands."""
    if words[0].text in _WITH_KINDS and any(
        word.text.startswith(b"-") and {*b"ni"} & {*word.text} for word in words[1:]
    ):
        return CommandFinding(UNSURE, "declares names with special attributes")
    for word in words[1:]:
        if evaluates(word) or not word.literal:
            return CommandFinding(UNSURE, "the name of a variable is not known before it runs")
        if runs_code(word.text.partition(b"=")[0]):
            return CommandFinding(UNSURE, "sets a variable that decides what is run")
    return CommandFinding(READ, "sets variables of the shell")


def calculating(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    """Judge ``let``: only numbers are certainly harmless, since a variable may hold a command
    (``core/command/shell/tree.py``)."""
    if all(word.literal and _ASSIGNED_NUMBER.match(word.text) for word in words[1:]):
        return naming(words, _context)
    return CommandFinding(UNSURE, "evaluates a variable that may hold a command")


def printing(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    if len(words) > 1 and (words[1].text.startswith(b"-v") or words[1].may_be_option) and words[1].text != b"--":
        return (
            naming((words[0], *words[2:3]), context)
            if words[1].text == b"-v"
            else CommandFinding(UNSURE, "may set a variable")
        )
    return CommandFinding(READ, "prints")


def testing(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    named = any(word.text in (b"-v", b"-R") or (word.may_be_option and not word.literal) for word in words[1:])
    if named and any(evaluates(word) for word in words[1:] if word.text != b"]"):
        return CommandFinding(UNSURE, "the name of a variable is not known before it runs")
    return CommandFinding(READ, "tests a condition")


def setting(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    for at, word in enumerate(words[1:]):
        text, before = word.text, words[at]
        is_named = at > 0 and before.text[:1] in (b"-", b"+") and before.text.endswith(b"o")
        if is_named and not (word.literal and text in _SET_NAMES):
            return CommandFinding(UNSURE, "an option that changes how words are read")
        if text in (b"--", b"-") or not (text[:1] in (b"-", b"+") or word.may_be_option or text in _SET_NAMES):
            break
        if not word.literal or not (text in _SET_NAMES or set(text[1:]) <= _SET_LETTERS):
            return CommandFinding(UNSURE, "an option that changes how words are read")
    return CommandFinding(READ, "sets options or arguments of the shell")


def shopt(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    plain = all(word.literal and word.text in _HARMLESS_SHOPTS for word in words[1:])
    return (
        CommandFinding(READ, "sets options of the shell")
        if plain
        else CommandFinding(UNSURE, "changes how words are read")
    )


def trapped(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    rest = [word for word in words[1:] if word.text != b"--"]
    if not rest or rest[0].text in (b"-l", b"-p", b"-", b""):
        return CommandFinding(READ, "lists or resets traps")
    if not rest[0].literal:
        return CommandFinding(UNSURE, "a trap that is not known before it runs")
    return CommandFinding(READ, "runs a line later", tuple(context.line(rest[0].text, context)))


def evaluated(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``eval``: a known line adds its parts, and the command is unknown in any case."""
    rest = words[1:]
    is_known = all(word.literal for word in rest)
    parts = tuple(context.line(b" ".join(word.text for word in rest), context)) if is_known and rest else ()
    return CommandFinding(UNSURE, "evaluates its words", parts)


def killing(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    rest = words[1:]
    if rest and rest[0].text in (b"-l", b"-L", b"--list", b"-0"):
        return CommandFinding(READ, "looks for processes")
    targets = [word for word in rest if not _SIGNAL.match(word.text)]
    signals = names("TERM KILL INT HUP QUIT USR1 USR2 STOP CONT 9 15 2")
    targets = [word for word in targets if word.text not in signals] if b"-s" in [w.text for w in rest] else targets
    if targets and all(_OWN_JOB.match(word.text) for word in targets):
        return CommandFinding(CHANGE, "ends a job of its own")
    return CommandFinding(ESCAPE, "sends signals to processes")


def callbacks(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    if any(word.text.startswith(b"-") and b"C" in word.text for word in words[1:]):
        return CommandFinding(UNSURE, "runs a callback")
    return naming((words[0], *operands(words[1:])), context)


BUILTINS: dict[bytes, ProgramRule] = {
    **entries("cd pushd popd dirs exit return break continue shift times ulimit umask fg bg disown", _READS),
    **entries(": true false logout suspend caller help", _READS),
    **entries("read getopts unset export readonly local declare typeset", ProgramRule(READ, "", judge=naming)),
    **entries("mapfile readarray", ProgramRule(READ, "", judge=callbacks)),
    b"printf": ProgramRule(READ, "prints", judge=printing),
    **entries("test [", ProgramRule(READ, "tests a condition", judge=testing)),
    b"set": ProgramRule(READ, "", judge=setting),
    b"shopt": ProgramRule(READ, "", judge=shopt),
    b"trap": ProgramRule(READ, "", judge=trapped),
    b"eval": ProgramRule(UNSURE, "", judge=evaluated),
    b"kill": ProgramRule(ESCAPE, "", judge=killing),
    **entries("pkill killall skill killall5 xkill fuser renice", ProgramRule(ESCAPE, "sends signals to processes")),
    **entries(
        "source . alias unalias enable bind complete compopt compgen fc",
        ProgramRule(UNSURE, "runs or renames code"),
    ),
    b"history": ProgramRule(
        READ, "prints its history", (option("-a -c -d -n -p -r -s -w", UNSURE, "changes its history or a file"),)
    ),
    b"jobs": ProgramRule(
        READ, "lists its jobs", (option("-x", UNSURE, "runs a command"),), flags=names("-l -n -p -r -s")
    ),
    b"wait": ProgramRule(READ, "waits for its jobs", (option("-p", UNSURE, "sets a variable"),), flags=names("-n -f")),
    b"let": ProgramRule(READ, "", judge=calculating),
    b"hash": ProgramRule(
        READ,
        "prints where programs are",
        (option("-p -d -r", UNSURE, "changes where programs are found"),),
        flags=names("-l -t"),
    ),
    b"type": ProgramRule(READ, "prints the meaning of a name", flags=names("-a -f -p -P -t")),
}
