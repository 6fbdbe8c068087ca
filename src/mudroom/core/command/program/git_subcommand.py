"""The subcommands of git whose words need more than a table (the pages of git(1))."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding
from mudroom.core.command.table_rule import (
    CHANGE,
    ESCAPE,
    LOSE,
    REACH,
    READ,
    UNSURE,
    ProgramRule,
    classes_of_options,
    could_be,
    judge_words,
    names,
    operands,
    option,
    tidy,
)
from mudroom.core.command.word import UNKNOWN, Word
from mudroom.core.text.regex import regex

_PATH_LIKE = regex(rb"\A\.|/\Z|\.[A-Za-z]\w*\Z|\A:")

_READS = "only reads the repository"
SAFE_KEYS = regex(
    rb"(?is)(?:user\.(?:name|email)|color\..*|advice\..*|core\.(?:quotepath|autocrlf|abbrev|filemode)|init\.defaultbranch"
    rb"|log\..*|diff\.(?:renames|renamelimit|algorithm|context)|merge\.conflictstyle|pull\.(?:rebase|ff)|rebase\.autostash"
    rb"|push\.default|fetch\.prune|column\..*|status\..*|commit\.verbose|tag\.sort|branch\.sort|grep\..*)(?:=.*)?\Z"
    rb"|commit\.gpgsign=(?:false|no|0)\Z|core\.pager=(?:cat)?\Z|tag\.gpgsign=false\Z"
)


def checkout(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    rest = words[1:]
    if any(could_be(word.text, name) for word in rest for name in (b"-b", b"--orphan", b"--detach", b"--track")):
        return CommandFinding(CHANGE, "switches to another branch")
    forced = any(could_be(word.text, b"--force") or could_be(word.text, b"-f") for word in rest)
    operands_given = operands(rest)
    paths = any(word.text == b"--" for word in rest) or len(operands_given) > 1
    path_like = [word for word in operands_given if not word.literal or _PATH_LIKE.search(word.text)]
    if (
        forced
        or paths
        or path_like
        or any(could_be(word.text, name) for word in rest for name in (b"-B", b"-p", b"--ours"))
    ):
        return CommandFinding(LOSE, "reverts changes of files")
    return CommandFinding(CHANGE, "switches to another branch")


def branch(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    rest = words[1:]
    if any(
        could_be(word.text, name)
        for word in rest
        for name in (b"-d", b"-D", b"--delete", b"-f", b"--force", b"-M", b"-C")
    ):
        return CommandFinding(LOSE, "removes or moves a branch")
    looks = names(
        "-v -vv --verbose --show-current --sort --format --color --no-color --column --no-column --ignore-case -i"
    )
    listing = names("--list -l -a --all -r --remotes --contains --no-contains --merged --no-merged --points-at")
    listed = any(word.literal and word.text.partition(b"=")[0] in listing for word in rest)
    plain = all(word.literal and word.text.partition(b"=")[0] in looks for word in rest)
    if listed or plain:
        return CommandFinding(READ, _READS)
    return CommandFinding(CHANGE, "makes or changes a branch")


def tag(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    rest = words[1:]
    if any(word.text in (b"-d", b"--delete", b"-f", b"--force") for word in rest):
        return CommandFinding(LOSE, "removes or moves a tag")
    if not operands(rest) or any(word.literal and word.text in (b"-l", b"--list") for word in rest):
        return CommandFinding(READ, _READS)
    return CommandFinding(CHANGE, "makes a tag")


def push(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    rest = words[1:]
    losing = (b"-f", b"--force", b"--force-with-lease", b"-d", b"--delete", b"--mirror", b"--prune")
    if any(could_be(word.text, b"--receive-pack") or could_be(word.text, b"--exec") for word in rest):
        return CommandFinding(("networked", "unknown"), "runs a program that it names")
    if any(could_be(word.text, name) for word in rest for name in losing) or any(
        word.text.startswith((b"+", b":")) for word in operands(rest)
    ):
        return CommandFinding(("networked", "destructive"), "overwrites or removes commits of the other repository")
    is_unsure = any(not word.literal and word.may_be_option for word in rest)
    return CommandFinding(("networked", "unknown") if is_unsure else REACH, "sends commits to another repository")


def restore(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    texts = [word.text for word in words[1:] if word.literal]
    staged = b"--staged" in texts or b"-S" in texts
    if staged and not any(could_be(word.text, b"--worktree") or could_be(word.text, b"-W") for word in words[1:]):
        return CommandFinding(CHANGE, "removes files from the index")
    return CommandFinding(LOSE, "reverts changes of files")


def rebase(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    for at, word in enumerate(words[1:], 1):
        if could_be(word.text, b"-x") or could_be(word.text, b"--exec"):
            value = words[at + 1] if at + 1 < len(words) and word.text in (b"-x", b"--exec") else UNKNOWN
            parts = tuple(context.line(value.text, context)) if value.literal else ()
            return CommandFinding(("mutating", "unknown"), "runs a command for each commit", parts)
    interactive = any(could_be(word.text, name) for word in words[1:] for name in (b"-i", b"--interactive"))
    return CommandFinding(("mutating", "unknown") if interactive else CHANGE, "changes the repository and its files")


def config(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    rest = words[1:]
    texts = [word.text for word in rest]
    reading = names(
        "--get --get-all --get-regexp --get-urlmatch --list -l --show-origin --show-scope get list --name-only"
    )
    reads = any(word.literal and word.text in reading and word.text.startswith(b"-") for word in rest[:3])
    if reads or texts[:1] in ([b"get"], [b"list"]):
        return CommandFinding(READ, _READS)
    machine = any(could_be(word.text, name) for word in rest for name in (b"--global", b"--system"))
    file = any(could_be(word.text, name) for word in rest for name in (b"--file", b"-f", b"--edit", b"-e"))
    named = [word for word in operands(rest) if word.text not in (b"set", b"unset", b"--")]
    if machine:
        return CommandFinding(ESCAPE, "changes the configuration of the user")
    if len(named) == 1 and not file and named[0].literal and len(rest) == 1:
        return CommandFinding(READ, _READS)
    safe = len(named) == 2 and named[0].literal and SAFE_KEYS.match(named[0].text + b"=" + named[1].text)
    is_safe = safe and not file and all(word.literal for word in rest)
    return CommandFinding(
        CHANGE if is_safe else UNSURE, "changes the repository's configuration, which may name programs"
    )


def by_first(default: ProgramRule, **verbs: ProgramRule) -> ProgramRule:
    """Return a rule for a subcommand with verbs of its own: ``git stash drop``."""
    table = {name.replace("_", "-").encode(): rule for name, rule in verbs.items()}

    def judge(words: Sequence[Word], context: CommandContext) -> CommandFinding:
        at = next((at for at, word in enumerate(words[1:], 1) if not word.text.startswith(b"-")), None)
        if at is None:
            return judge_words(words, default, context)
        if not words[at].literal:
            return CommandFinding(UNSURE, "a verb that is not known before it runs")
        return judge_words(
            words[at:], table.get(words[at].text, ProgramRule(UNSURE, "a verb that is not in the tables")), context
        )

    return ProgramRule(UNSURE, "", judge=judge)


def foreach(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    rest = [word for word in words[1:] if not word.text.startswith(b"--")]
    parts = tuple(context.line(b" ".join(word.text for word in rest), context)) if all(w.literal for w in rest) else ()
    return CommandFinding(UNSURE, "runs a command in each submodule", parts)


def grep(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    rule = ProgramRule(
        READ,
        _READS,
        (option("-O --open-files-in-pager --ext-grep --textconv", UNSURE, "runs a program"),),
        takes=names("-e -f --and -A -B -C -m --max-count"),
    )
    option_classes, reason = classes_of_options(words[1:], rule)
    return CommandFinding(tidy(option_classes), reason or _READS)
