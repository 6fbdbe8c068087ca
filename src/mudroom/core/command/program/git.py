"""git: its global options, and its subcommands' classes (git(1) and the subcommands' man pages).

git runs commands from a repository's own configuration (hooks, filters, core.fsmonitor). The words do not show them, so
they are not judged here. Configuration in the words themselves is judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding, change_directory, locate
from mudroom.core.command.program.git_subcommand import (
    SAFE_KEYS,
    branch,
    by_first,
    checkout,
    config,
    fetch,
    foreach,
    push,
    rebase,
    restore,
    tag,
)
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
    entries,
    judge_words,
    names,
    option,
    tidy,
)
from mudroom.core.command.verdict import CommandClass
from mudroom.core.command.word import UNKNOWN, Word

_READS = "only reads the repository"
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
