"""git subcommands whose words a table does not suffice to judge (the man pages listed in git(1))."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding, normal, write_classes
from mudroom.core.command.option_catalogue import grammar_of
from mudroom.core.command.option_parser import ParsedCommand, parse
from mudroom.core.command.table_rule import (
    CHANGE,
    ESCAPE,
    FETCH,
    LOSE,
    REACH,
    READ,
    UNSURE,
    Classes,
    ProgramRule,
    effect_of_options,
    grammar_of_rule,
    judge_parsed,
    judge_words,
    names,
    option,
    parsed_words,
    tidy,
    within,
)
from mudroom.core.command.verdict import Aim, CommandClass
from mudroom.core.command.word import Word
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import is_below

_PATH_LIKE = regex(rb"\A\.|/\Z|\.[A-Za-z]\w*\Z|\A:")

_READS = "only reads the repository"
SAFE_KEYS = regex(
    rb"(?is)(?:user\.(?:name|email)|color\..*|advice\..*|core\.(?:quotepath|autocrlf|abbrev|filemode)|init\.defaultbranch"
    rb"|log\..*|diff\.(?:renames|renamelimit|algorithm|context)|merge\.conflictstyle|pull\.(?:rebase|ff)|rebase\.autostash"
    rb"|push\.default|fetch\.prune|column\..*|status\..*|commit\.verbose|tag\.sort|branch\.sort|grep\..*)(?:=.*)?\Z"
    rb"|commit\.gpgsign=(?:false|no|0)\Z|core\.pager=(?:cat)?\Z|tag\.gpgsign=false\Z"
)


_PLAIN = ProgramRule(CHANGE, "")
_LOOKS = names(
    "-v --verbose --show-current --sort --format --color --no-color --column --no-column -i --ignore-case --abbrev"
    " --no-abbrev --omit-empty"
)
_LISTS_BRANCHES = names("--list -l -a --all -r --remotes --contains --no-contains --merged --no-merged --points-at")


def _parsed(words: Sequence[Word], context: CommandContext) -> tuple[ParsedCommand, set[CommandClass]]:
    """Return the parsed words, and ``unknown`` if an option is unlisted or unknown before it runs."""
    parsed = parsed_words(words, _PLAIN, context)
    return parsed, {"unknown"} if parsed.unlisted or parsed.is_open else set()


def _found(doubts: set[CommandClass], classes: Classes, reason: str) -> CommandFinding:
    return CommandFinding(tidy({*doubts, *classes}), reason)


def checkout(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed, doubts = _parsed(words, context)
    paths = any(word.text == b"--" for word in words[1:]) or len(parsed.operands) > 1
    path_like = any(not word.literal or _PATH_LIKE.search(word.text) for word in parsed.operands)
    if parsed.has(b"--force", b"-B", b"-p", b"--ours", b"--theirs", b"--merge", b"--conflict", b"--pathspec-from-file"):
        return _found(doubts, LOSE, "reverts changes of files")
    if parsed.proves(b"-b", b"--orphan", b"--detach", b"--track"):
        return _found(doubts, CHANGE, "switches to another branch")
    if paths or path_like:
        return _found(doubts, LOSE, "reverts changes of files")
    return _found(doubts, CHANGE, "switches to another branch")


def branch(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed, doubts = _parsed(words, context)
    if parsed.has(b"-d", b"-D", b"--delete", b"-f", b"--force", b"-M", b"-C"):
        return _found(doubts, LOSE, "removes or moves a branch")
    plain = not parsed.operands and all(not _LOOKS.isdisjoint(given.option.names) for given in parsed.given)
    if plain or parsed.proves(*_LISTS_BRANCHES):
        return _found(doubts, READ, _READS)
    return _found(doubts, CHANGE, "makes or changes a branch")


def tag(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed, doubts = _parsed(words, context)
    if parsed.has(b"-d", b"--delete", b"-f", b"--force"):
        return _found(doubts, LOSE, "removes or moves a tag")
    if not parsed.operands or parsed.proves(b"-l", b"--list", b"--contains", b"--merged", b"--points-at"):
        return _found(doubts, READ, _READS)
    return _found(doubts, CHANGE, "makes a tag")


def _is_of_project(word: Word, context: CommandContext) -> bool:
    """Return whether the word names a repository by a path in the project. ``x/y`` may be a remote's name
    (git-remote(1)), and ``x:y`` is on another machine (git-push(1), "GIT URLS")."""
    if not word.literal or not (word.text + b"/").startswith((b"./", b"../", b"/")) or b":" in word.text:
        return False
    paths = [
        word.text if word.text.startswith(b"/") else place and place + b"/" + word.text for place in context.places
    ]
    return all(path is not None and is_below(normal(path), context.project) for path in paths)


def push(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed, doubts = _parsed(words, context)
    if parsed.has(b"--receive-pack", b"--exec"):
        return CommandFinding(("networked", "unknown"), "runs a program that it names")
    losing = parsed.has(b"-f", b"--force", b"--force-with-lease", b"-d", b"--delete", b"--mirror", b"--prune")
    if losing or any(word.text.startswith((b"+", b":")) for word in parsed.operands):
        reason = "overwrites or removes commits of the other repository"
        if parsed.operands and _is_of_project(parsed.operands[0], context):
            return _found(doubts, ("networked", "destructive"), reason)
        finding = _found(
            doubts, ("networked", "destructive", "host_escape_risk"), f"{reason}, which no checkpoint brings back"
        )
        return finding._replace(aims=(Aim("host"),))
    tracks = parsed.has(b"-u", b"--set-upstream")
    return _found(doubts, FETCH if tracks else REACH, "sends commits to another repository")


_FETCH = ProgramRule(
    FETCH,
    "fetches from another repository",
    (option("--upload-pack --strategy", UNSURE, "runs a program that it names"),),
)


def fetch(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``fetch`` and ``pull``: a forced refspec overwrites references, and pruning with a refspec removes them."""
    parsed = parsed_words(words, _FETCH, context)
    finding = judge_parsed(parsed, words, _FETCH, context)
    if words[0].text == b"pull" and finding.reason == _FETCH.reason:
        finding = finding._replace(reason=f"{_FETCH.reason} and merges")
    refspecs = [word.text for word in parsed.operands[1:]]
    forced = parsed.has(b"--force", b"--prune", b"--prune-tags") and any(b":" in text for text in refspecs)
    if forced or any(text.startswith(b"+") for text in refspecs):
        return finding._replace(classes=tidy({*finding.classes, "destructive"}), reason="overwrites references")
    return finding


def restore(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed, doubts = _parsed(words, context)
    if parsed.proves(b"--staged", b"-S") and not parsed.has(b"--worktree", b"-W"):
        return _found(doubts, CHANGE, "removes files from the index")
    return _found(doubts, LOSE, "reverts changes of files")


def rebase(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed, doubts = _parsed(words, context)
    if parsed.has(b"-x", b"--exec"):
        lines = [value.text for value in parsed.values(b"-x", b"--exec") if value.literal]
        parts = tuple(part for line in lines for part in context.line(line, context))
        return CommandFinding(("mutating", "unknown"), "runs a command for each commit", parts)
    if parsed.has(b"-i", b"--interactive", b"--edit-todo", b"-s", b"--strategy"):
        doubts = {"unknown"}
    if parsed.has(b"--abort", b"--skip"):
        return _found(doubts, LOSE, "throws away what was resolved")
    return _found(doubts, CHANGE, "changes the repository and its files")


def config(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed, doubts = _parsed(words, context)
    texts = [word.text for word in words[1:]]
    reading = (b"--get", b"--get-all", b"--get-regexp", b"--get-urlmatch", b"--list", b"-l")
    changing = (b"--add", b"--unset", b"--unset-all", b"--replace-all", b"--edit", b"-e", b"--rename-section")
    if parsed.proves(*reading) and not parsed.has(*changing, b"--remove-section"):
        return _found(doubts, READ, _READS)
    if texts[:1] in ([b"get"], [b"list"]):
        return CommandFinding(READ, _READS)
    if parsed.has(b"--global", b"--system"):
        return CommandFinding(ESCAPE, "changes the configuration of the user")
    named = [word for word in parsed.operands if word.text not in (b"set", b"unset")]
    if len(named) == 1 and named[0].literal and len(texts) == 1 and b"." in named[0].text:
        return CommandFinding(READ, _READS)
    safe = len(named) == 2 and named[0].literal and SAFE_KEYS.match(named[0].text + b"=" + named[1].text)
    doubts |= set(write_classes(parsed.values(b"--file", b"-f"), context)[0])
    is_safe = safe and not parsed.has(b"--file", b"-f", b"--edit", b"-e") and all(word.literal for word in words)
    return _found(
        doubts, CHANGE if is_safe else UNSURE, "changes the repository's configuration, which may name programs"
    )


def by_first(default: ProgramRule, **verbs: ProgramRule) -> ProgramRule:
    """Return a rule for a subcommand that has verbs of its own: ``git stash drop``."""
    table = {name.replace("_", "-").encode(): rule for name, rule in verbs.items()}

    def judge(words: Sequence[Word], context: CommandContext) -> CommandFinding:
        grammar = grammar_of_rule(default, context)
        parsed = parse(words[1:], grammar._replace(style=grammar.style._replace(permutes=False)))
        if not parsed.operands:
            return judge_words(words, default, context)
        rest = words[1 + parsed.rest :]
        if not rest[0].literal:
            return CommandFinding(UNSURE, "a verb that is not known before it runs")
        rule = table.get(rest[0].text, ProgramRule(UNSURE, "mudroom does not know this subcommand"))
        inner = within(context, rest[0].text)
        finding = judge_words(rest, rule, inner if grammar_of(inner.program) is not None else context)
        doubts = effect_of_options(parsed, default, context).classes
        return finding._replace(classes=tidy({*finding.classes, *doubts}))

    return ProgramRule(UNSURE, "", judge=judge)


def foreach(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    rest = [word for word in words[1:] if not word.text.startswith(b"--")]
    parts = tuple(context.line(b" ".join(word.text for word in rest), context)) if all(w.literal for w in rest) else ()
    return CommandFinding(UNSURE, "runs a command in each submodule", parts)
