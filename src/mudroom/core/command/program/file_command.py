"""Programs that copy, pack or link files or print the time, where a table does not suffice to judge the words."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import (
    CommandContext,
    CommandFinding,
    change_directory,
    is_shared,
    locate,
    names_credentials,
    write_classes,
)
from mudroom.core.command.option_grammar import Grammar
from mudroom.core.command.table_rule import (
    CHANGE,
    ESCAPE,
    FETCH,
    INFORMS,
    LOSE,
    REACH,
    READ,
    UNSURE,
    ProgramRule,
    effect_of_options,
    grammar_of_rule,
    judge_parsed,
    judge_paths,
    names,
    operands,
    option,
    parsed_words,
    tidy,
)
from mudroom.core.command.verdict import CommandClass
from mudroom.core.command.word import Word
from mudroom.core.text.regex import regex

_SETUID = regex(rb"0*[2-7][0-7]{3}\Z|[ugoa,+=rwxX-]*[+=][rwxXt]*s")


_TAR = ProgramRule(
    READ,
    "",
    (
        option(
            "--to-command --checkpoint-action --use-compress-program --rsh-command --info-script --new-volume-script"
            " --rmt-command -F -I --files-from -T",
            UNSURE,
            "runs a program that it names",
        ),
        option("--remove-files --delete --recursive-unlink", LOSE, "removes files"),
        option("--absolute-names -P", ESCAPE, "may write to absolute paths"),
        option("--index-file --listed-incremental -g --volno-file", CHANGE, "writes a file"),
    ),
    safe=names("-f --file -C --directory --one-top-level -U --unlink-first"),
)


def tar(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed = parsed_words(_with_dashes(words, grammar_of_rule(_TAR, context)), _TAR, context)
    effect = effect_of_options(parsed, _TAR, context)
    classes: set[CommandClass] = set()
    reason = "lists an archive"
    written = list(effect.written)
    if parsed.has(b"--extract", b"--get", b"-x"):
        classes, reason = {"mutating"}, "unpacks an archive"
        written += [*(parsed.values(b"--directory", b"-C") or [Word(b".")]), *parsed.values(b"--one-top-level")]
    elif parsed.has(b"--create", b"-c", b"--append", b"-r", b"--update", b"-u", b"--catenate", b"-A", b"--delete"):
        classes, reason = {"mutating"}, "writes an archive"
        written += [value for value in parsed.values(b"--file", b"-f") if value.text != b"-"]
    elif not parsed.has(b"--list", b"-t", b"--diff", b"-d", b"--test-label"):
        classes, reason = {"unknown"}, "has a mode that is not known before it runs"
    if any(b":" in value.text for value in parsed.values(b"--file", b"-f")) and not parsed.has(b"--force-local"):
        classes |= {"networked", "unknown"}
        reason = "asks another machine for the archive"
    classes |= set(write_classes(written, context)[0])
    if any(names_credentials(word, context) for word in words[1:]):
        classes.add("host_escape_risk")
    return CommandFinding(tidy({*classes, *effect.classes}), effect.reason or reason)


def _with_dashes(words: Sequence[Word], grammar: Grammar) -> Sequence[Word]:
    """Return the words with the letters in ``tar xzf FILE`` as options, each with its value: ``-x -z -f FILE``."""
    if len(words) < 2 or not words[1].literal or words[1].text.startswith(b"-"):
        return words
    letters: list[Word] = []
    rest = list(words[2:])
    for letter in words[1].text:
        name = bytes((45, letter))
        letters.append(Word(name))
        option = grammar.options.get(name)
        if option is not None and option.value == "required" and rest:
            letters.append(rest.pop(0))
    return [words[0], *letters, *rest]


_PLAIN = ProgramRule(CHANGE, "")


def chmod(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed = parsed_words(words, _PLAIN, context)
    classes: set[CommandClass] = {"mutating", *effect_of_options(parsed, _PLAIN, context).classes}
    classes.update(write_classes(operands(words[1:])[1:], context)[0])
    if any(_SETUID.match(word.text) for word in words[1:]):
        return CommandFinding(tidy({*classes, "host_escape_risk"}), "lets a program run as its owner")
    return CommandFinding(tidy(classes), "changes permissions")


def link(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    finding = judge_paths(words, ProgramRule(CHANGE, "makes a link", targets="last"), context)
    parsed = parsed_words(words, _PLAIN, context)
    symbolic = parsed.has(b"-s", b"--symbolic")
    into = parsed.has(b"-t", b"--target-directory") or len(parsed.operands) == 1
    targets = parsed.operands if into else parsed.operands[:-1]
    name = (parsed.values(b"-t", b"--target-directory") or parsed.operands[-1:] or [Word(b".")])[0]
    if symbolic and not into and name.literal:
        # a relative link leads from its own directory, which is the last operand if that is a directory
        froms = [change_directory(Word(place), context) for place in (name.text, name.text.rpartition(b"/")[0] or b".")]
        context = context._replace(places=tuple({place for places in froms for place in places}))
    if any(locate(word, context) != "inside" for word in targets if symbolic or word.text.startswith(b"/")):
        return CommandFinding(tidy({*finding.classes, "unknown"}), "makes a link that leads outside the project")
    return finding


def move(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``mv``: a place that commands share, such as /tmp, is empty for the next command."""
    rule = ProgramRule(CHANGE, "moves files", targets="all")
    finding = judge_paths(words, rule, context)
    parsed = parsed_words(words, rule, context)
    targets = parsed.values(b"-t", b"--target-directory") or parsed.operands[-1:]
    if any(is_shared(word) and not all(map(is_shared, parsed.operands)) for word in targets):
        return CommandFinding(tidy({*finding.classes, "destructive"}), "moves files out of the project")
    return finding


_RSYNC = ProgramRule(
    CHANGE,
    "copies files",
    (
        option(
            "-e --rsh --rsync-path --daemon --config --dparam -M --remote-option --server --early-input",
            UNSURE,
            "runs a program that it names",
        ),
        option(
            "--del --delete --delete-before --delete-during --delete-delay --delete-after --delete-excluded"
            " --delete-missing-args --remove-source-files --remove-sent-files --force",
            LOSE,
            "removes files",
        ),
        option(
            "--log-file --write-batch --only-write-batch --temp-dir -T --backup-dir --partial-dir",
            CHANGE,
            "writes a file",
        ),
    ),
    safe=names("--inplace --compare-dest --copy-dest --link-dest"),
)


def rsync(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed = parsed_words(words, _RSYNC, context)
    effect = effect_of_options(parsed, _RSYNC, context)
    classes: set[CommandClass] = {"mutating", *effect.classes}
    reason = effect.reason or "copies files"
    plain = parsed.operands
    written = list(effect.written)
    if any(b":" in word.text for word in plain):
        classes, reason = classes | {"networked"}, effect.reason or "copies files over the network"
    if plain and b":" not in plain[-1].text:
        written.append(plain[-1])
    elif plain:
        classes, reason = classes | {"host_escape_risk"}, "copies files to another machine"
    classes |= set(write_classes(written, context)[0])
    if any(names_credentials(word, context) for word in words[1:]):
        classes, reason = classes | {"host_escape_risk"}, "names a credential file"
    return CommandFinding(tidy(classes), reason)


def remote(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    if len(words) == 2 and words[1].text in INFORMS:
        return CommandFinding(READ, "prints its version or help")
    return CommandFinding(("networked", "host_escape_risk"), "acts on another machine")


_SCP = ProgramRule(
    FETCH,
    "copies files to or from another machine",
    (option("-o -S -F -D -J", UNSURE, "runs a program that it names"),),
    safe=names("-i"),
)


def scp(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed = parsed_words(words, _SCP, context)
    plain = parsed.operands
    out = plain and b":" in plain[-1].text
    classes: set[CommandClass] = {"networked", "host_escape_risk"} if out else {"networked", "mutating"}
    if not out:
        classes |= set(write_classes(plain[-1:], context)[0])
    effect = effect_of_options(parsed, _SCP, context)
    return CommandFinding(tidy({*classes, *effect.classes}), effect.reason or _SCP.reason)


_DATE = ProgramRule(READ, "prints the time", (option("-s --set", ESCAPE, "sets the clock"),), safe=names("-f --file"))


def date(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed = parsed_words(words, _DATE, context)
    if any(word.literal and word.text.isdigit() for word in parsed.operands):
        return CommandFinding(ESCAPE, "sets the clock")
    return judge_parsed(parsed, words, _DATE, context)


def named_only(reason: str) -> ProgramRule:
    """Return a rule for a program that prints a value without operands and sets it with an operand: ``hostname``."""
    rule = ProgramRule(
        READ,
        "prints a setting of the machine",
        (
            option("-F --file -b --boot", ESCAPE, reason),
            option("-f --fqdn --long -d --domain -i --ip-address -A --all-fqdns", REACH, "asks a name server"),
        ),
    )

    def judge(words: Sequence[Word], context: CommandContext) -> CommandFinding:
        parsed = parsed_words(words, rule, context)
        return CommandFinding(ESCAPE, reason) if parsed.operands else judge_parsed(parsed, words, rule, context)

    return ProgramRule(ESCAPE, reason, judge=judge)


_SECOND = ProgramRule(READ, "only reads")


def second_written(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``uniq IN OUT`` and ``xxd IN OUT``: the second operand is written."""
    parsed = parsed_words(words, _SECOND, context)
    finding = judge_parsed(parsed, words, _SECOND, context)
    if len(parsed.operands) > 1:
        outside = write_classes(parsed.operands[-1:], context)[0]
        return CommandFinding(tidy({*finding.classes, "mutating", *outside}), "writes a file")
    unsure = any(word.is_several for word in parsed.operands)
    return finding._replace(classes=tidy({*finding.classes, "unknown"})) if unsure else finding
