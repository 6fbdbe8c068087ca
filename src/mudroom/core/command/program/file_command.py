"""Programs that copy, pack or link files or print the time, and whose words need more than a table."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding, locate, names_credentials, write_classes
from mudroom.core.command.table_rule import (
    CHANGE,
    ESCAPE,
    INFORMS,
    READ,
    UNSURE,
    ProgramRule,
    could_be,
    judge_paths,
    operands,
    tidy,
)
from mudroom.core.command.verdict import CommandClass
from mudroom.core.command.word import Word
from mudroom.core.text.regex import regex

_LETTERS = regex(rb"-[A-Za-z]+\Z")
_COUNTED = regex(rb"-[lscgonfwSN]\Z")

_NAMES_ARCHIVE = regex(rb"-[A-Za-z]*f\Z|--file\Z")
_SETUID = regex(rb"0*[2-7][0-7]{3}\Z|[ugoa,+=rwxX-]*[+=][rwxXt]*s")


def tar(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    rest = words[1:]
    first = rest[0].text if rest else b""
    letters = first.lstrip(b"-") if rest and rest[0].literal and not first.startswith(b"--") else b""
    modes = b"".join(w.text[1:] for w in rest[1:] if w.literal and _LETTERS.match(w.text)) + letters
    long_options = {w.text.partition(b"=")[0] for w in rest if w.text.startswith(b"--")}

    def has_option(*options: bytes) -> bool:
        return any(could_be(word, option) for word in long_options for option in options)

    classes: set[CommandClass] = set()
    reason = "lists an archive"
    if b"x" in modes or has_option(b"--extract", b"--get"):
        classes, reason = {"mutating"}, "unpacks an archive"
        directories = [rest[index + 1] for index, w in enumerate(rest[:-1]) if w.text in (b"-C", b"--directory")]
        directories += [w for w in rest if w.text.startswith(b"--directory=")]
        directories += [Word(w.text[2:], w.kind) for w in rest if w.text.startswith(b"-C") and len(w.text) > 2]
        directories += operands(rest) if modes.count(b"C") > sum(w.text == b"-C" for w in rest) else []
        classes |= set(write_classes(directories or [Word(b".")], context)[0])
    elif set(modes) & set(b"cruA") or has_option(
        b"--create", b"--append", b"--update", b"--catenate", b"--concatenate"
    ):
        classes, reason = {"mutating"}, "writes an archive"
        index = next(
            (index for index, w in enumerate(rest) if _NAMES_ARCHIVE.match(w.text) or (not index and b"f" in letters)),
            None,
        )
        targets = (
            rest[index + 1 : index + 2]
            if index is not None
            else [w for w in rest if w.text.startswith((b"--file=", b"-f"))]
        )
        targets = [Word(w.text[2:], w.kind) if w.text.startswith(b"-f") else w for w in targets]
        classes |= set(write_classes(targets, context)[0])
    elif not (b"t" in modes or has_option(b"--list")):
        classes, reason = {"unknown"}, "has a mode that is not known before it runs"
    if set(modes) & set(b"IF") or has_option(
        b"--to-command", b"--checkpoint-action", b"--use-compress-program", b"--rsh-command", b"--info-script",
        b"--new-volume-script", b"--rmt-command",
    ):  # fmt: skip
        classes, reason = classes | {"unknown"}, "runs a program that it names"
    if has_option(b"--remove-files", b"--delete"):
        classes, reason = classes | {"destructive"}, "removes files"
    if has_option(b"--absolute-names") or b"P" in modes:
        classes, reason = classes | {"host_escape_risk"}, "may write to absolute paths"
    if any(not word.literal and word.may_be_option for word in rest):
        classes.add("unknown")
    return CommandFinding(tidy(classes), reason)


def chmod(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    classes: set[CommandClass] = {"mutating", *write_classes(operands(words[1:])[1:], context)[0]}
    if any(_SETUID.match(word.text) for word in words[1:]):
        return CommandFinding(tidy({*classes, "host_escape_risk"}), "lets a program run as its owner")
    return CommandFinding(tidy(classes), "changes permissions")


def link(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    finding = judge_paths(words, ProgramRule(CHANGE, "makes a link", targets="last"), context)
    symbolic = any(could_be(word.text, b"-s") or could_be(word.text, b"--symbolic") for word in words[1:])
    targets = operands(words[1:])[: -1 if len(operands(words[1:])) > 1 else None]
    if any(locate(word, context) != "inside" for word in targets if symbolic or word.text.startswith(b"/")):
        return CommandFinding(tidy({*finding.classes, "unknown"}), "makes a link that leads outside the project")
    return finding


def rsync(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    rest = words[1:]
    classes: set[CommandClass] = {"mutating"}
    reason = "copies files"
    plain = operands(rest)
    remote = [word for word in plain if b":" in word.text]
    if remote:
        classes, reason = classes | {"networked"}, "copies files over the network"
    if plain and b":" not in plain[-1].text:
        classes |= set(write_classes(plain[-1:], context)[0])
    elif plain:
        classes, reason = classes | {"host_escape_risk"}, "copies files to another machine"
    if any(could_be(w.text, b"--del") or w.text.startswith((b"--delete", b"--remove-source")) for w in rest):
        classes, reason = classes | {"destructive"}, "removes files"
    if any(could_be(w.text, name) for w in rest for name in (b"-e", b"--rsh", b"--rsync-path", b"--daemon")) or any(
        not w.literal and w.may_be_option for w in rest
    ):
        classes, reason = classes | {"unknown"}, "runs a program that it names"
    if any(names_credentials(word) for word in rest):
        classes, reason = classes | {"host_escape_risk"}, "names a credential file"
    return CommandFinding(tidy(classes), reason)


def remote(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    if len(words) == 2 and words[1].text in INFORMS:
        return CommandFinding(READ, "prints its version or help")
    return CommandFinding(("networked", "host_escape_risk"), "acts on another machine")


def scp(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    plain = operands(words[1:])
    out = plain and b":" in plain[-1].text
    classes: set[CommandClass] = {"networked", "host_escape_risk"} if out else {"networked", "mutating"}
    if not out:
        classes |= set(write_classes(plain[-1:], context)[0])
    if any(could_be(w.text, name) for w in words[1:] for name in (b"-o", b"-S", b"-F")):
        classes.add("unknown")
    return CommandFinding(tidy(classes), "copies files to or from another machine")


def date(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    setting = any(
        could_be(w.text, b"--set") or could_be(w.text, b"-s") for w in words[1:] if not w.text.startswith(b"-I")
    )
    plain = [word for word in operands(words[1:]) if word.literal and word.text[:1].isdigit() and word.text.isdigit()]
    unsure = any(not word.literal and word.may_be_option for word in words[1:])
    if setting or plain:
        return CommandFinding(ESCAPE, "sets the clock")
    return CommandFinding(UNSURE if unsure else READ, "prints the time")


def named_only(reason: str) -> ProgramRule:
    """Return a rule for a program that prints a value without operands and sets it with an operand: ``hostname``."""

    def judge(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
        return (
            CommandFinding(ESCAPE, reason)
            if operands(words[1:])
            else CommandFinding(READ, "prints a setting of the machine")
        )

    return ProgramRule(ESCAPE, reason, judge=judge)


def second_written(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``uniq IN OUT`` and ``xxd IN OUT``: the second operand is written."""
    counted = [at for at, word in enumerate(words) if _COUNTED.match(word.text)]
    plain = operands([word for at, word in enumerate(words) if at and at - 1 not in counted])
    if len(plain) > 1:
        return CommandFinding(tidy({"mutating", *write_classes(plain[-1:], context)[0]}), "writes a file")
    unsure = any(not word.literal for word in plain)
    secret = any(names_credentials(word) for word in plain)
    return CommandFinding(ESCAPE if secret else UNSURE if unsure else READ, "only reads")
