"""``find`` and ``fd``: searching is harmless, but their actions may not be (find(1), ACTIONS)."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding, locate, names_credentials, write_classes
from mudroom.core.command.program.wrapper import replace_mark
from mudroom.core.command.table_rule import READ, ProgramRule, judge_parsed, names, parsed_words, tidy
from mudroom.core.command.verdict import CommandClass, CommandPart
from mudroom.core.command.word import UNKNOWN, Word

_RUNS = names("-exec -execdir -ok -okdir")
_PRINTS_TO = names("-fprint -fprint0 -fls -fprintf")
_HARMLESS = names(
    """-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -empty -perm -user
    -group -uid -gid -nouser -nogroup -links -inum -samefile -newer -anewer -cnewer -newermt -newerat -newerct -mtime
    -atime -ctime -mmin -amin -cmin -used -daystart -depth -d -maxdepth -mindepth -mount -xdev -noleaf -follow -prune
    -quit -print -print0 -printf -ls -true -false -not -a -and -o -or -L -P -H -O1 -O2 -O3 -D -lname -ilname -fstype
    -readable -writable -executable -warn -nowarn -ignore_readdir_race -context"""
)


def find(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    classes: set[CommandClass] = set()
    reason, parts, at = "looks for files", list[CommandPart](), 1
    roots = _roots(words[1:])
    while at < len(words):
        word = words[at]
        at += 1
        if not word.literal and word.may_be_option:
            classes, reason = classes | {"unknown"}, "an action that is not known before it runs"
        elif word.text in _RUNS:
            end = next((place for place in range(at, len(words)) if words[place].text in (b";", b"+")), len(words))
            started = [_each(inside, roots, context) for inside in words[at:end]]
            reason = "runs a command for each file that it finds"
            parts += context.words(started or [UNKNOWN], context)
            at = end + 1
        elif word.text == b"-delete":
            classes, reason = (
                classes | {"destructive", *write_classes(roots, context)[0]},
                "removes the files that it finds",
            )
        elif word.text in _PRINTS_TO:
            target = words[at] if at < len(words) else UNKNOWN
            classes, reason = classes | {"mutating", *write_classes([target], context)[0]}, "writes a file"
            at += 1
        elif word.text in (b"-files0-from",) or (word.text.startswith(b"-") and word.text not in _HARMLESS):
            numeric = word.text[1:].rstrip(b"kMGcwb").isdigit()
            if not numeric and word.text != b"--":
                classes, reason = classes | {"unknown"}, "mudroom does not know this option"
    if any(names_credentials(word, context) for word in words[1:]):
        classes.add("host_escape_risk")
    return CommandFinding(tidy(classes), reason, tuple(parts))


def _roots(words: Sequence[Word]) -> list[Word]:
    """Return the directories to search: the words before the expression, or the current directory."""
    roots: list[Word] = []
    for word in words:
        if word.text in (b"-L", b"-P", b"-H"):
            continue
        if word.text.startswith((b"-", b"(", b"!")):
            break
        roots.append(word)
    return roots or [Word(b".")]


def _each(word: Word, roots: Sequence[Word], context: CommandContext) -> Word:
    """Return a word after -exec with ``{}`` replaced anywhere in it, as in find(1). ``{}`` alone is a path below a
    root."""
    if word.text != b"{}":
        return replace_mark(word, b"{}")
    root = max(roots, key=lambda root: ("inside", "unknown", "outside").index(locate(root, context)))
    if not root.literal:
        return UNKNOWN
    start = root.text.rstrip(b"/") + b"/"
    return Word(start + b"*", "pattern", len(start))


_FD = ProgramRule(READ, "looks for files", safe=names("-x --exec -X --exec-batch"))


def fd(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``fd``: all words after -x or -X are a command."""
    parsed = parsed_words(words, _FD, context)
    finding = judge_parsed(parsed, words, _FD, context)
    if not parsed.has(b"--exec", b"--exec-batch"):
        return finding
    started = [_each(inside, [Word(b".")], context) for inside in parsed.values(b"--exec", b"--exec-batch")]
    parts = context.words([*started, UNKNOWN] if started else [UNKNOWN], context)
    return CommandFinding(finding.classes, "runs a command for each file that it finds", tuple(parts))


FINDERS: dict[bytes, ProgramRule] = {
    **{name: ProgramRule(READ, "looks for files", judge=find) for name in (b"find", b"gfind")},
    **{name: ProgramRule(READ, "looks for files", judge=fd) for name in (b"fd", b"fdfind")},
}
