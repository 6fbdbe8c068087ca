"""Interpreters, and programs that take a small language in their words: sed, awk, databases.

Code is not analysed here: a program that is given code is unknown, except for sed and awk scripts that certainly only
edit text.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding, names_credentials, write_classes
from mudroom.core.command.table_rule import (
    CHANGE,
    INFORMS,
    REACH,
    READ,
    UNSURE,
    Classes,
    ProgramRule,
    effect_of_options,
    entries,
    names,
    option,
    parsed_words,
    tidy,
)  # fmt: skip
from mudroom.core.command.verdict import Aim, CommandClass
from mudroom.core.command.word import Word
from mudroom.core.text.regex import regex

_MODULES = names(
    "pip venv mypy ruff black isort flake8 pylint compileall py_compile build twine uv poetry pdm coverage"
)
_AWK_RUNS = regex(rb"(?s)system|getline|close|fflush|@|print.*[|>]")
_READ_BY_SED = regex(rb"[rR][ \t]*(/[^\s;}]+)")
_WRITTEN = regex(rb"[wW][ \t]+([^\s;}]+)")
_LOSES = regex(
    rb"(?i)\b(drop\s+(database|table|schema|index|view|user|role|collection)|truncate\b|delete\s+from|flushall|flushdb"
    rb"|dropdatabase|deletemany|\.drop\(|alter\s+table\s+\S+\s+drop)"
)


_PLAIN_SELECT = regex(
    rb"(?i)\s*select\b(?!.*\binto\b)(?:[\w\s.,*=<>'+-]|\b(?:count|sum|avg|min|max|lower|upper)\([\w.* ]+\))+;?\s*\Z"
)
_PLAIN_OPTIONS = names("-c -h -U -d -p -t -A -header -column -csv -json --csv")
_PLAIN_PERL = regex(rb"s([/|,])[\w .-]+\1[\w .-]*\1[gi]*;?\Z")
_PLAIN_NAME = regex(rb"(?!.*\.\.)\w[\w./-]*\Z")
_CHECKS = {b"php": names("-l"), b"node": names("--check -c"), b"java": names("-version")}
_OF_SERVERS = (Aim("server"), Aim("host"))
"""Without a host's name, a client connects to this machine's server through its socket (psql(1), mysql(1))."""
_LOOPBACK = names("localhost 127.0.0.1 ::1")
_ELSEWHERE = regex(rb"(?i)://|\\|\b(?:host|hostaddr|service)\s*=")
"""In a word of a database client: a URI, connection parameters, or a command to the client, such as ``\\connect``."""


def python(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    flags = names("-u -B -I -E -s -S -O -OO -q -b -v -P")
    takes = names("-W -X")
    at = 1
    while at < len(words) and words[at].literal and words[at].text in flags | takes:
        at += 2 if words[at].text in takes else 1
    if at < len(words) and words[at].literal:
        if words[at].text in INFORMS and len(words) == at + 1:
            return CommandFinding(READ, "prints its version or help")
        if words[at].text == b"-m" and at + 1 < len(words) and words[at + 1].literal:
            inside = words[at + 1 :]
            if inside[0].text in _MODULES:
                parts = tuple(context.words(inside, context))
                return CommandFinding(UNSURE, "runs a module that the project may replace", parts)
    return CommandFinding(UNSURE, "runs code")


_SED = ProgramRule(
    READ,
    "only prints",
    (option("-i --in-place", CHANGE, "edits files in place"), option("-f --file", UNSURE, "runs a script of a file")),
)


def sed(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    from mudroom.core.command.program.sed_script import sed_does

    parsed = parsed_words(words, _SED, context)
    effect = effect_of_options(parsed, _SED, context)
    classes: set[CommandClass] = set(effect.classes)
    reason = effect.reason or "only prints"
    files = parsed.operands
    scripts = parsed.values(b"-e", b"--expression")
    if not parsed.has(b"-e", b"--expression", b"-f", b"--file"):
        scripts, files = list(files[:1]), files[1:]
    elif scripts and words[1 : parsed.rest + 1].count(scripts[0]) == 0:
        scripts.append(files[0])  # a sed that stops at the first operand takes it for the script
    for script in scripts:
        does = sed_does(script.text) if script.literal else "runs"
        if does == "writes":
            classes, reason = classes | {"mutating", "unknown"}, "its script writes files"
            classes |= set(write_classes(map(Word, _WRITTEN.findall(script.text)), context)[0])
        elif does == "runs":
            classes, reason = classes | {"unknown"}, "its script may run commands"
    if "mutating" in classes:
        path_classes, where = write_classes(files, context)
        classes, reason = classes | set(path_classes), f"{reason}, {where}" if where else reason
    read = [Word(path) for script in scripts for path in _READ_BY_SED.findall(script.text)]
    if any(names_credentials(word, context) for word in (*files, *read)):
        classes, reason = classes | {"host_escape_risk"}, "names a credential file"
    return CommandFinding(tidy(classes), reason)


def awk(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    at = 1
    while at < len(words) and words[at].literal and words[at].text.startswith(b"-"):
        text = words[at].text
        if text in (b"-F", b"-v"):
            at += 2
        elif text.startswith((b"-F", b"-v")):
            at += 1
        else:
            return CommandFinding(UNSURE, "mudroom does not know this option")
    if at >= len(words) or not words[at].literal or _AWK_RUNS.search(words[at].text):
        return CommandFinding(UNSURE, "its program may run commands or write files")
    if any(names_credentials(word, context) for word in words[at:]):
        return CommandFinding(("host_escape_risk",), "names a credential file")
    return CommandFinding(READ, "only prints")


def _aims_of_client(words: Sequence[Word], program: bytes) -> tuple[Aim, ...]:
    """Return the aims of a database client. A server at a socket or on loopback is on no other machine."""
    from mudroom.core.command.path_aim import aim_of

    texts = [word.text for word in words]
    spread = [piece for text in texts for piece in (text.split(b"=", 1) if text.startswith(b"--host=") else (text,))]
    socket = b"-s" if program == b"redis-cli" else b""
    at = [index for index, text in enumerate(spread) if text and text in (b"-h", b"--host", socket)]
    others = [*spread[: at[0]], *spread[at[0] + 2 :]] if at else spread
    unsure = any(text.startswith((b"-h", b"-f", b"--host", b"--file")) for text in others)
    unsure |= any(map(_ELSEWHERE.search, others)) or not all(word.literal or word.at_home for word in words)
    if len(at) != 1 or at[0] + 1 == len(spread) or unsure:
        return _OF_SERVERS
    host = spread[at[0] + 1]
    if spread[at[0]] != socket and host in _LOOPBACK:
        return Aim("server"), Aim("loopback")
    place = next((aim_of(word) for word in words if word.text == host), aim_of(Word(host)))
    return _OF_SERVERS if place is None else (Aim("server"), place)


def database(base: Classes, losing: str = "") -> ProgramRule:
    """Return the rule for a database client. ``base``: networked if it talks to a server, whose data no checkpoint
    holds. ``losing``: words that lose data, as programs or subcommands."""
    losers = names(losing)

    def judge(words: Sequence[Word], context: CommandContext) -> CommandFinding:
        classes: set[CommandClass] = {*base, "unknown"}
        if any(_LOSES.search(word.text) for word in words[1:]) or any(
            word.literal and word.text in losers for word in (Word(context.program), *words[1:])
        ):
            classes.add("destructive")
            if "networked" in base:
                reason = "drops or deletes data of a server, which no checkpoint brings back"
                return CommandFinding(
                    tidy({*classes, "host_escape_risk"}), reason, aims=_aims_of_client(words[1:], context.program)
                )
            return CommandFinding(tidy(classes), "drops or deletes data")
        if context.program in (b"sqlite3", b"psql") and _only_selects(words[1:]):
            files = words[1:] if context.program == b"sqlite3" else ()
            classes = {*base, *write_classes([word for word in files if _PLAIN_NAME.match(word.text)], context)[0]}
            return CommandFinding(tidy(classes), "reads rows of a database")
        return CommandFinding(tidy(classes), "runs statements of a database")

    return ProgramRule(UNSURE, "", judge=judge)


def _only_selects(words: Sequence[Word]) -> bool:
    """Return whether the words are names, plain options, and a single statement that only reads."""
    statements = [word for word in words if _PLAIN_SELECT.match(word.text)]
    others = [word for word in words if word not in statements]
    names_only = all(word.text in _PLAIN_OPTIONS or _PLAIN_NAME.match(word.text) for word in others)
    return len(statements) == 1 and names_only and all(word.literal for word in words)


def code(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge an interpreter: only printing its version or help, a check of the syntax, and a plain substitution are
    harmless."""
    informs = len(words) == 2 and words[1].text in INFORMS
    texts = [word.text if word.literal else b"" for word in words[1:]]
    if len(words) in (2, 3) and texts[0] in _CHECKS.get(context.program, ()) and all(map(_PLAIN_NAME.match, texts[1:])):
        return CommandFinding(READ, "checks the syntax")
    in_place = context.program == b"perl" and texts[:1] in ([b"-pi"], [b"-i"]) and texts[1:2] == [b"-e"]
    if in_place and len(texts) > 3 and _PLAIN_PERL.match(texts[2]) and all(map(_PLAIN_NAME.match, texts[3:])):
        classes, where = write_classes(words[4:], context)
        return CommandFinding(tidy({*CHANGE, *classes}), f"edits files in place {where}".strip())
    return CommandFinding(READ, "prints its version or help") if informs else CommandFinding(UNSURE, "runs code")


INTERPRETERS: dict[bytes, ProgramRule] = {
    **entries(
        "python python2 python3 python3.10 python3.11 python3.12 python3.13 python3.14 pypy pypy3 py",
        ProgramRule(UNSURE, "", judge=python),
    ),
    **entries(
        "node nodejs deno ts-node tsx perl ruby php lua luajit Rscript R julia java scala groovy kotlin elixir",
        ProgramRule(UNSURE, "", judge=code),
    ),
    **entries(
        "erl ghc runghc runhaskell ocaml guile racket sbcl clojure tclsh wish osascript octave ipython irb",
        ProgramRule(UNSURE, "", judge=code),
    ),
    **entries("vi vim nvim nano emacs ed ex pico micro code view vimdiff", ProgramRule(UNSURE, "an editor")),
    **entries("sed gsed", ProgramRule(READ, "", judge=sed)),
    **entries("awk gawk mawk nawk", ProgramRule(READ, "", judge=awk)),
    b"jq": ProgramRule(READ, "only prints", (option("-f --from-file -L", UNSURE, "reads a program from a file"),)),
    b"sqlite3": database(CHANGE),
    **entries("psql mysql mariadb mongosh mongo redis-cli cqlsh clickhouse-client", database(REACH)),
    **entries("mysqladmin dropdb dropuser", database(REACH, "dropdb dropuser drop")),
}
