"""git: its global options, and its subcommands' classes (git(1) and the subcommands' man pages).

git runs commands from a repository's own configuration (hooks, filters, core.fsmonitor). The words do not show them, so
they are not judged here. Configuration in the words themselves is judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import (
    CommandContext,
    CommandFinding,
    change_directory,
    locate,
    normal,
    write_classes,
)
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
    entries,
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
from mudroom.core.command.word import UNKNOWN, Word
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import is_below

# --- subcommands whose words a table does not suffice to judge (the man pages listed in git(1)) ---

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


# --- the tables, and git itself ---

_OUTPUT = option("--output -o", CHANGE, "writes a file")
_LONG_OUTPUT = option("--output", CHANGE, "writes a file")
_HELPERS = option("--ext-diff --textconv --filters", UNSURE, "runs helpers that the repository names")
_SERVER = option("--upload-pack --receive-pack --exec -u", UNSURE, "runs a program that it names")
_SHOWS = ProgramRule(READ, _READS, (_LONG_OUTPUT, _HELPERS))
_LISTS = ProgramRule(READ, _READS)
_COMMITS = ProgramRule(CHANGE, "changes the repository")
_MOVES = ProgramRule(CHANGE, "changes the repository and its files")
_ABORTS = option("--abort --skip", LOSE, "throws away what was resolved")
_MERGES = ProgramRule(
    CHANGE,
    "changes the repository and its files",
    (option("--strategy", UNSURE, "runs a program that it names"), _ABORTS),
)
_TALKS = ProgramRule(
    FETCH,
    "fetches from another repository",
    (option("--upload-pack --strategy", UNSURE, "runs a program that it names"),),
)
_CODE = ProgramRule(UNSURE, "runs another program")
_LOSES = ProgramRule(LOSE, "loses uncommitted or unreachable content")

_INFORMS = names("--version --help -v -h --html-path --man-path --info-path --exec-path")
_GLOBAL_FLAGS = names(
    """--no-pager -P -p --paginate --no-replace-objects --literal-pathspecs --glob-pathspecs --noglob-pathspecs
    --icase-pathspecs --no-optional-locks --no-advice --bare --no-lazy-fetch"""
)


def git(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    extra: set[CommandClass] = set()
    reason, at = "", 1
    while at < len(words) and words[at].literal and words[at].text.startswith(b"-"):
        text = words[at].text
        value = words[at + 1] if at + 1 < len(words) else UNKNOWN
        if text == b"-C":
            context = context._replace(places=change_directory(value, context))
        elif text == b"-c":
            if not SAFE_KEYS.match(value.start) or not value.literal:
                extra, reason = extra | {"unknown"}, "brings configuration that may run programs"
        elif text in _INFORMS and len(words) == at + 1:
            return CommandFinding(READ, "prints its version or help")
        elif text not in _GLOBAL_FLAGS:
            extra, reason = extra | {"unknown"}, "an option that names another repository or other programs"
        at += 2 if text in (b"-C", b"-c", b"--git-dir", b"--work-tree", b"--namespace", b"--config-env") else 1
    if at >= len(words):
        return CommandFinding(READ, "prints its version or help") if not extra else CommandFinding(UNSURE, reason)
    rule = SUBCOMMANDS.get(words[at].text) if words[at].literal else None
    if rule is None:
        return CommandFinding(UNSURE, "mudroom does not know this subcommand: it may be an alias")
    finding = judge_words(words[at:], rule, context._replace(program=b"git " + words[at].text))
    if any(b"ext::" in word.text or b"fd::" in word.text for word in words[at:]):
        extra, reason = extra | {"unknown"}, "runs a program as its transport"
    if {"mutating", "destructive"} & set(finding.classes) and context.places:
        location = locate(Word(b"."), context)
        if location != "inside":
            extra, reason = (
                extra | {"host_escape_risk" if location == "outside" else "unknown"},
                "in another repository",
            )
    aims = () if extra else finding.aims
    return CommandFinding(tidy({*finding.classes, *extra}), reason or finding.reason, finding.parts, aims)


def _with(rule: ProgramRule, names_: str, classes: Classes, reason: str) -> ProgramRule:
    return rule._replace(options=(*rule.options, option(names_, classes, reason)))


SUBCOMMANDS: dict[bytes, ProgramRule] = {
    **entries(
        "log show diff blame annotate shortlog whatchanged diff-tree diff-index diff-files range-diff cat-file", _SHOWS
    ),
    **entries(
        "status describe rev-parse rev-list ls-files ls-tree name-rev merge-base for-each-ref show-ref cherry", _LISTS
    ),
    **entries(
        "count-objects check-ignore check-attr check-mailmap check-ref-format var version fsck show-branch", _LISTS
    ),
    **entries("column stripspace patch-id get-tar-commit-id verify-commit verify-tag verify-pack merge-tree", _LISTS),
    b"help": ProgramRule(READ, "shows help", (option("-w --web -i --info", UNSURE, "opens a viewer"),)),
    b"grep": ProgramRule(
        READ, _READS, (option("-O --open-files-in-pager --ext-grep --textconv", UNSURE, "runs a program"),)
    ),
    **entries("add commit stage mv update-index write-tree commit-tree mktree hash-object", _COMMITS),
    **entries("sparse-checkout pack-objects pack-refs gc commit-graph multi-pack-index", _COMMITS),
    b"notes": _COMMITS._replace(options=(option("remove prune", LOSE, "removes notes"),)),
    b"rerere": _COMMITS._replace(options=(option("clear forget gc", LOSE, "removes recorded resolutions"),)),
    b"symbolic-ref": _COMMITS._replace(options=(option("-d --delete", LOSE, "removes a reference"),)),
    b"repack": _COMMITS._replace(options=(option("-d", LOSE, "removes packs, with what is unreachable in them"),)),
    **entries("merge cherry-pick revert am merge-file", _MERGES),
    b"apply": ProgramRule(
        CHANGE, "changes files", (option("--unsafe-paths", ESCAPE, "may write outside the work tree"),)
    ),
    b"read-tree": ProgramRule(CHANGE, "changes the index", (option("-u --reset --empty", LOSE, "overwrites files"),)),
    b"checkout-index": ProgramRule(CHANGE, "writes files", (option("-f --force", LOSE, "overwrites files"),)),
    b"switch": _with(_MOVES, "-f --force --discard-changes -C --force-create", LOSE, "throws away changes"),
    b"gc": _with(_COMMITS, "--prune", LOSE, "loses unreachable objects"),
    b"init": ProgramRule(
        CHANGE, "makes a repository", (option("--template", UNSURE, "brings hooks along"),), targets="all"
    ),
    b"clone": ProgramRule(
        FETCH,
        "fetches a repository",
        (_SERVER, option("-c --config --template", UNSURE, "brings configuration along")),
        targets="last",
    ),
    **entries("fetch pull", ProgramRule(FETCH, "", judge=fetch)),
    b"remote": by_first(
        _LISTS,
        show=ProgramRule(REACH, "asks another repository"),
        get_url=_LISTS,
        add=_COMMITS._replace(options=(option("-f --fetch", REACH, "asks another repository"),)),
        set_url=_COMMITS,
        rename=_COMMITS,
        remove=_LOSES,
        rm=_LOSES,
        update=_TALKS,
        prune=_TALKS,
        set_head=_COMMITS,
        set_branches=_COMMITS,
    ),
    b"ls-remote": ProgramRule(REACH, "asks another repository", (_SERVER,)),
    b"push": ProgramRule(REACH, "", judge=push),
    b"checkout": ProgramRule(CHANGE, "", judge=checkout),
    b"branch": ProgramRule(CHANGE, "", judge=branch),
    b"tag": ProgramRule(CHANGE, "", judge=tag),
    b"restore": ProgramRule(LOSE, "", judge=restore),
    b"rebase": ProgramRule(CHANGE, "", judge=rebase),
    b"config": ProgramRule(UNSURE, "", judge=config),
    b"reset": ProgramRule(
        CHANGE, "moves the branch", (option("--hard --merge --keep", LOSE, "reverts changes of files"),)
    ),
    b"clean": ProgramRule(LOSE, "removes files that are not tracked", softened=names("-n --dry-run")),
    b"rm": ProgramRule(LOSE, "removes files"),
    b"stash": by_first(
        _MOVES,
        list=_LISTS,
        show=_SHOWS,
        push=_MOVES,
        save=_MOVES,
        apply=_MOVES,
        pop=_MOVES,
        branch=_MOVES,
        create=_COMMITS,
        store=_COMMITS,
        drop=_LOSES,
        clear=_LOSES,
    ),
    b"reflog": by_first(_LISTS, show=_LISTS, exists=_LISTS, list=_LISTS, expire=_LOSES, delete=_LOSES),
    b"worktree": by_first(
        _LISTS,
        list=_LISTS,
        add=ProgramRule(CHANGE, "makes a work tree", (option("-B", LOSE, "moves a branch"),), targets="all"),
        lock=_COMMITS,
        unlock=_COMMITS,
        prune=_LOSES,
        repair=_COMMITS,
        remove=_LOSES,
        move=ProgramRule(CHANGE, "moves a work tree", targets="all"),
    ),
    b"submodule": by_first(
        _LISTS,
        status=_LISTS,
        summary=_LISTS,
        init=_COMMITS,
        update=_TALKS,
        add=_TALKS,
        sync=_COMMITS,
        deinit=_LOSES,
        absorbgitdirs=_COMMITS,
        foreach=ProgramRule(UNSURE, "", judge=foreach),
    ),
    b"bisect": by_first(
        _LISTS,
        start=_MOVES,
        good=_MOVES,
        bad=_MOVES,
        old=_MOVES,
        new=_MOVES,
        skip=_MOVES,
        reset=_MOVES,
        log=_LISTS,
        visualize=_CODE,
        view=_CODE,
        run=_CODE,
        terms=_LISTS,
        next=_MOVES,
    ),
    b"bundle": by_first(
        _LISTS, create=ProgramRule(CHANGE, "writes a file", targets="all"), verify=_LISTS, unbundle=_COMMITS
    ),
    b"lfs": by_first(
        _LISTS,
        ls_files=_LISTS,
        status=_LISTS,
        env=_LISTS,
        track=_COMMITS,
        untrack=_COMMITS,
        pull=_TALKS,
        fetch=_TALKS,
        push=ProgramRule(REACH, "sends files"),
        install=_CODE,
        prune=_LOSES,
        version=_LISTS,
        checkout=_MOVES,
    ),
    b"format-patch": ProgramRule(CHANGE, "writes files", (_OUTPUT, _HELPERS)),
    b"archive": ProgramRule(
        READ,
        "prints an archive",
        (_OUTPUT, option("--remote", REACH, "asks another repository"), option("--exec", UNSURE, "runs a program")),
    ),
    b"update-ref": ProgramRule(("mutating", "destructive"), "moves or removes references"),
    **entries("prune prune-packed filter-repo replace", _LOSES),
    b"filter-branch": ProgramRule(("destructive", "unknown"), "rewrites history with commands"),
    **entries("difftool mergetool gui citool gitk instaweb send-email request-pull svn p4 daemon hook shell", _CODE),
    **entries(
        "upload-pack receive-pack upload-archive http-backend fast-import fast-export imap-send quiltimport", _CODE
    ),
    b"credential": ProgramRule(ESCAPE, "asks for credentials"),
    b"maintenance": ProgramRule(ESCAPE, "may change the machine's timers"),
}
GIT: dict[bytes, ProgramRule] = {b"git": ProgramRule(READ, "", judge=git)}
