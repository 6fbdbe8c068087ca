"""Programs that run another command: their own classes, and which of their words are the inner command.

The inner command is a part by itself. After an option that is not in the table, it is uncertain where the inner command
begins, so the whole is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding, change_directory
from mudroom.core.command.option_catalogue import grammar_of
from mudroom.core.command.option_grammar import STYLES, Grammar, Option
from mudroom.core.command.option_parser import ParsedCommand, parse
from mudroom.core.command.table_rule import (
    CHANGE,
    ESCAPE,
    INFORMS,
    READ,
    UNSURE,
    Classes,
    ProgramRule,
    entries,
    names,
    tidy,
)
from mudroom.core.command.variable import is_harmless_value, runs_code
from mudroom.core.command.word import UNKNOWN, Word

_SHELL_WORDS = names("-o +o pipefail errexit nounset --norc --noprofile --login --posix --restricted")
_SHELL_LETTERS = frozenset(b"celuxnvfao")


def parsed_prefix(
    words: Sequence[Word], context: CommandContext, takes: frozenset[bytes], flags: frozenset[bytes]
) -> ParsedCommand:
    """Return the options before an inner command. ``takes`` and ``flags``: options if the program has no grammar."""
    grammar = grammar_of(context.program)
    if grammar is None:
        options = {**{name: Option((name,)) for name in flags}, **{name: Option((name,), "required") for name in takes}}
        grammar = Grammar(STYLES[b"posix"], options)
    return parse(words[1:], grammar._replace(style=grammar.style._replace(permutes=False)))


def inner_start(
    words: Sequence[Word],
    context: CommandContext,
    takes: frozenset[bytes],
    flags: frozenset[bytes],
    operands: int = 0,
) -> tuple[int, bool]:
    """Return the index at which the inner command begins (the number of words if there is none), and whether it is
    certain."""
    parsed = parsed_prefix(words, context, takes, flags)
    doubtful = bool(parsed.unlisted) or parsed.is_open
    return min(1 + parsed.rest + operands, len(words)), not doubtful


def prefix(
    takes: str = "", flags: str = "", operands: int = 0, classes: Classes = READ, reason: str = "runs another command"
) -> ProgramRule:
    """Return a rule for ``NAME [options] [operands] COMMAND…``."""
    valued, plain = names(takes), names(flags)

    def judge(words: Sequence[Word], context: CommandContext) -> CommandFinding:
        at, sure = inner_start(words, context, valued, plain, operands)
        return _started(words[at:], context, classes if sure else tidy({*classes, "unknown"}), reason)

    return ProgramRule(classes, reason, judge=judge)


def _started(words: Sequence[Word], context: CommandContext, classes: Classes, reason: str) -> CommandFinding:
    return CommandFinding(classes, reason, tuple(context.words(words, context)) if words else ())


def shell(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``bash -c LINE`` by the line. A shell that reads a file or its input is unknown."""
    line = doubt = False
    for word in words[1:]:
        text = word.text
        if not word.literal:
            return CommandFinding(UNSURE, "runs a line that is not known before it runs")
        if text in _SHELL_WORDS:
            continue
        if text[:1] in (b"-", b"+") and len(text) > 1:
            line = line or (text[:1] == b"-" and text[1:2] != b"-" and b"c" in text)
            doubt = doubt or not set(text[1:]) <= _SHELL_LETTERS
            continue
        if not line:
            return CommandFinding(UNSURE, "runs a script")
        parts = tuple(context.line(text, context))
        return (
            CommandFinding(UNSURE, "mudroom does not know this option of the shell", parts)
            if doubt
            else CommandFinding(READ, "runs a line of shell", parts)
        )
    return CommandFinding(UNSURE, "runs its input")


def other_shell(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    finding = shell(words, context)
    return CommandFinding(UNSURE, "a shell with another grammar", finding.parts)


def env(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    classes, reason, at = READ, "runs another command", 1
    while at < len(words):
        word = words[at]
        name, sign, _value = word.start.partition(b"=")
        if word.text in (b"-u", b"--unset", b"-C", b"--chdir"):
            value = words[at + 1] if at + 1 < len(words) else UNKNOWN
            if word.text in (b"-C", b"--chdir"):
                context = context._replace(places=change_directory(value, context))
            elif runs_code(value.text):
                classes, reason = UNSURE, "unsets a variable that decides what is run"
            at += 2
        elif (
            word.literal and word.text in (b"-i", b"-", b"--ignore-environment", b"-0", b"--null", b"-v", b"--debug")
        ) or (word.literal and word.text == b"--"):
            at += 1
        elif word.text.startswith(b"-"):
            classes, reason = UNSURE, "mudroom does not know this option"
            at += 1
        elif not word.literal and not word.start:
            classes, reason = UNSURE, "may set a variable that decides what is run"
            at += 1
        elif sign and not name.startswith(b"-"):
            if runs_code(name) and not (word.literal and is_harmless_value(name, _value)):
                classes, reason = UNSURE, "sets a variable that decides what is run"
            at += 1
        else:
            break
    if at >= len(words) and classes == READ:
        return CommandFinding(READ, "prints the environment")
    return _started(words[at:], context, classes, reason)


def looked_up(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``command``: with -v it only prints where a program is."""
    if len(words) > 1 and words[1].literal and words[1].text in (b"-v", b"-V"):
        return CommandFinding(READ, "prints the meaning of a name")
    at, sure = inner_start(words, context, frozenset(), names("-p"))
    return _started(words[at:], context, READ if sure else UNSURE, "runs another command")


def joined_line(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``watch``, which joins its words with spaces and passes them to a shell, and ``hyperfine``, which passes
    each word to one."""
    at, sure = inner_start(
        words,
        context,
        names("-n --interval -w --warmup -r --runs"),
        names("-d -t -b -e -g -c -p --no-title --differences"),
    )
    inside = words[at:]
    if not inside or not all(word.literal for word in inside):
        return CommandFinding(UNSURE, "runs a line that is not known before it runs")
    line = (b"\n" if words[0].text == b"hyperfine" else b" ").join(word.text for word in inside)
    return CommandFinding(READ if sure else UNSURE, "runs a line again and again", tuple(context.line(line, context)))


def xargs(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``xargs``: its inner command gets words that are unknown before it runs."""
    parsed = parsed_prefix(words, context, frozenset(), frozenset())
    at, sure = 1 + parsed.rest, not parsed.unlisted and not parsed.is_open
    marks = [value.text for value in parsed.values(b"-I", b"-i", b"--replace")]
    mark = marks[-1] if marks else b"{}" if parsed.has(b"-i", b"--replace") else b""
    sure = sure and not any(runs_code(value.start) for value in parsed.values(b"--process-slot-var"))
    inside = words[at:]
    inside = [replace_mark(word, mark) for word in inside] if mark else [*inside, UNKNOWN] if inside else ()
    return _started(inside, context, READ if sure else UNSURE, "runs a command for what it reads")


def replace_mark(word: Word, mark: bytes) -> Word:
    """Return the word as known only up to ``mark``, which the program replaces by something unknown."""
    at = word.text.find(mark)
    return word if at < 0 else Word(word.text, "computed", min(at, len(word.start)))


def applet(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    if len(words) < 2 or words[1].text in INFORMS or words[1].text == b"--list":
        return CommandFinding(READ, "prints its version or help")
    return _started(words[1:], context, READ, "runs a program of its own")


def lock(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``flock FILE COMMAND…`` and ``flock FILE -c LINE``."""
    at, sure = inner_start(words, context, names("-w --timeout -E"), names("-n -x -s -u -o -e --nonblock --nb"), 1)
    inside = words[at:]
    if inside and inside[0].text in (b"-c", b"--command"):
        if len(inside) != 2 or not inside[1].literal:
            return CommandFinding(UNSURE, "runs a line that is not known before it runs")
        return CommandFinding(
            CHANGE if sure else UNSURE, "runs a line of shell", tuple(context.line(inside[1].text, context))
        )
    return _started(inside, context, CHANGE if sure else UNSURE, "makes a lock file and runs another command")


def become(takes: str, reason: str = "becomes another user", flags: str = "-E -H -n -S -b -k -i -s -A") -> ProgramRule:
    return prefix(takes, flags, classes=ESCAPE, reason=reason)


_ROOTS = "enters other namespaces, or another root"
WRAPPERS: dict[bytes, ProgramRule] = {
    **entries("bash sh dash rbash", ProgramRule(UNSURE, "a shell", judge=shell)),
    **entries("zsh ksh mksh ash fish csh tcsh pwsh nu xonsh elvish", ProgramRule(UNSURE, "a shell", judge=other_shell)),
    **entries(
        "{ } ! if then else elif fi while until do done for case esac select function in",
        prefix(classes=UNSURE, reason="a reserved word of the shell that the grammar does not see"),
    ),
    b"env": ProgramRule(READ, "runs another command", judge=env),
    b"sudo": become("-u -g -h -p -C -U -r -t -D -R -T --user --group --host --prompt --chdir --chroot"),
    b"doas": become("-u -C -a"),
    **entries("su runuser pkexec gosu su-exec setpriv newgrp sg sudoedit", become("-u --user -c -s")),
    **entries("chroot nsenter unshare systemd-run machinectl", become("-t -S -G --target", _ROOTS, "")),
    b"nohup": prefix(),
    b"time": prefix("-f --format", "-p -v -a --verbose --portability --append"),
    b"nice": prefix("-n --adjustment"),
    b"ionice": prefix("-c -n --class --classdata", "-t"),
    b"chrt": prefix("", "-b -f -r -o -i -m", 1),
    b"taskset": prefix("", "-c -a --cpu-list", 1),
    b"timeout": prefix("-s -k --signal --kill-after", "-v -f -p --preserve-status --foreground --verbose", 1),
    b"gtimeout": prefix("-s -k --signal --kill-after", "--preserve-status --foreground --verbose", 1),
    b"stdbuf": prefix("-i -o -e --input --output --error"),
    b"setsid": prefix("", "-c -f -w --ctty --fork --wait"),
    **entries("unbuffer chronic caffeinate setarch linux64 dbus-run-session coproc", prefix(classes=UNSURE)),
    b"builtin": prefix(),
    b"exec": prefix("-a", "-c -l"),
    b"command": ProgramRule(READ, "runs another command", judge=looked_up),
    **entries("watch hyperfine", ProgramRule(UNSURE, "runs a line", judge=joined_line)),
    b"xargs": ProgramRule(READ, "runs a command", judge=xargs),
    b"parallel": prefix("-j --jobs", "-k", classes=UNSURE, reason="runs commands that it puts together"),
    **entries("busybox toybox", ProgramRule(READ, "runs a program of its own", judge=applet)),
    b"flock": ProgramRule(CHANGE, "runs another command", judge=lock),
}
