"""Programs that copy, pack and link files, or tell the time: those whose words need more than a table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mudroom.core.command.locations import CommandFinding, Scene, names_credentials, where, written
from mudroom.core.command.table_rule import (
    CHANGE,
    ESCAPE,
    INFORMS,
    READ,
    UNSURE,
    ProgramRule,
    could_be,
    operands,
    tidy,
    with_paths,
)
from mudroom.core.command.verdict import CommandClass
from mudroom.core.command.word import Word

_SETUID = rb"0*[2-7][0-7]{3}\Z|[ugoa,+=rwxX-]*[+=][rwxXt]*s"


def tar(words: Sequence[Word], scene: Scene) -> CommandFinding:
    rest = words[1:]
    first = rest[0].text if rest else b""
    letters = first.lstrip(b"-") if rest and rest[0].literal and not first.startswith(b"--") else b""
    modes = b"".join(w.text[1:] for w in rest[1:] if w.literal and re.match(rb"-[A-Za-z]+\Z", w.text)) + letters
    said = {w.text.partition(b"=")[0] for w in rest if w.text.startswith(b"--")}

    def asked(*wanted: bytes) -> bool:
        return any(could_be(word, name) for word in said for name in wanted)

    classes: set[CommandClass] = set()
    reason = "lists an archive"
    if b"x" in modes or asked(b"--extract", b"--get"):
        classes, reason = {"mutating"}, "unpacks an archive"
        into = [rest[at + 1] for at, w in enumerate(rest[:-1]) if w.text in (b"-C", b"--directory")]
        into += [w for w in rest if w.text.startswith(b"--directory=")]
        into += [Word(w.text[2:], w.kind) for w in rest if w.text.startswith(b"-C") and len(w.text) > 2]
        into += operands(rest) if modes.count(b"C") > sum(w.text == b"-C" for w in rest) else []
        classes |= set(written(into or [Word(b".")], scene)[0])
    elif set(modes) & set(b"cruA") or asked(b"--create", b"--append", b"--update", b"--catenate", b"--concatenate"):
        classes, reason = {"mutating"}, "writes an archive"
        named = re.compile(rb"-[A-Za-z]*f\Z|--file\Z")
        at = next((at for at, w in enumerate(rest) if named.match(w.text) or (not at and b"f" in letters)), None)
        targets = (
            rest[at + 1 : at + 2] if at is not None else [w for w in rest if w.text.startswith((b"--file=", b"-f"))]
        )
        targets = [Word(w.text[2:], w.kind) if w.text.startswith(b"-f") else w for w in targets]
        classes |= set(written(targets, scene)[0])
    elif not (b"t" in modes or asked(b"--list")):
        classes, reason = {"unknown"}, "does what cannot be told"
    if asked(b"--to-command", b"--checkpoint-action", b"--use-compress-program", b"--rsh-command", b"--info-script",
             b"--new-volume-script", b"--rmt-command") or set(modes) & set(b"IF"):  # fmt: skip
        classes, reason = classes | {"unknown"}, "runs a program that it names"
    if asked(b"--remove-files", b"--delete"):
        classes, reason = classes | {"destructive"}, "removes files"
    if asked(b"--absolute-names") or b"P" in modes:
        classes, reason = classes | {"host_escape_risk"}, "may write to absolute paths"
    if any(not word.literal and word.may_be_option for word in rest):
        classes.add("unknown")
    return CommandFinding(tidy(classes), reason)


def chmod(words: Sequence[Word], scene: Scene) -> CommandFinding:
    classes: set[CommandClass] = {"mutating", *written(operands(words[1:])[1:], scene)[0]}
    if any(re.match(_SETUID, word.text) for word in words[1:]):
        return CommandFinding(tidy({*classes, "host_escape_risk"}), "lets a program run as its owner")
    return CommandFinding(tidy(classes), "changes permissions")


def link(words: Sequence[Word], scene: Scene) -> CommandFinding:
    found = with_paths(words, ProgramRule(CHANGE, "makes a link", targets="last"), scene)
    symbolic = any(could_be(word.text, b"-s") or could_be(word.text, b"--symbolic") for word in words[1:])
    aims = operands(words[1:])[: -1 if len(operands(words[1:])) > 1 else None]
    if any(where(word, scene) != "inside" for word in aims if symbolic or word.text.startswith(b"/")):
        return CommandFinding(tidy({*found.classes, "unknown"}), "makes a link that leads outside the project")
    return found


def rsync(words: Sequence[Word], scene: Scene) -> CommandFinding:
    rest = words[1:]
    classes: set[CommandClass] = {"mutating"}
    reason = "copies files"
    plain = operands(rest)
    remote = [word for word in plain if b":" in word.text]
    if remote:
        classes, reason = classes | {"networked"}, "copies files over the network"
    if plain and b":" not in plain[-1].text:
        classes |= set(written(plain[-1:], scene)[0])
    if any(could_be(w.text, b"--del") or w.text.startswith((b"--delete", b"--remove-source")) for w in rest):
        classes, reason = classes | {"destructive"}, "removes files"
    if any(could_be(w.text, name) for w in rest for name in (b"-e", b"--rsh", b"--rsync-path", b"--daemon")) or any(
        not w.literal and w.may_be_option for w in rest
    ):
        classes, reason = classes | {"unknown"}, "runs a program that it names"
    if any(names_credentials(word) for word in rest):
        classes, reason = classes | {"host_escape_risk"}, "names a place of keys"
    return CommandFinding(tidy(classes), reason)


def remote(words: Sequence[Word], _scene: Scene) -> CommandFinding:
    if len(words) == 2 and words[1].text in INFORMS:
        return CommandFinding(READ, "tells about itself")
    return CommandFinding(("networked", "host_escape_risk"), "acts on another machine")


def scp(words: Sequence[Word], scene: Scene) -> CommandFinding:
    plain = operands(words[1:])
    out = plain and b":" in plain[-1].text
    classes: set[CommandClass] = {"networked", "host_escape_risk"} if out else {"networked", "mutating"}
    if not out:
        classes |= set(written(plain[-1:], scene)[0])
    if any(could_be(w.text, name) for w in words[1:] for name in (b"-o", b"-S", b"-F")):
        classes.add("unknown")
    return CommandFinding(tidy(classes), "copies files to or from another machine")


def date(words: Sequence[Word], _scene: Scene) -> CommandFinding:
    setting = any(
        could_be(w.text, b"--set") or could_be(w.text, b"-s") for w in words[1:] if not w.text.startswith(b"-I")
    )
    plain = [word for word in operands(words[1:]) if word.literal and word.text[:1].isdigit() and word.text.isdigit()]
    unsure = any(not word.literal and word.may_be_option for word in words[1:])
    if setting or plain:
        return CommandFinding(ESCAPE, "sets the clock")
    return CommandFinding(UNSURE if unsure else READ, "tells the time")


def named_only(reason: str) -> ProgramRule:
    """Without operands it tells, with one it sets: ``hostname``."""

    def judge(words: Sequence[Word], _scene: Scene) -> CommandFinding:
        return (
            CommandFinding(ESCAPE, reason) if operands(words[1:]) else CommandFinding(READ, "tells about the machine")
        )

    return ProgramRule(ESCAPE, reason, judge=judge)


def second_written(words: Sequence[Word], scene: Scene) -> CommandFinding:
    """``uniq IN OUT``, ``xxd IN OUT``."""
    counted = [at for at, word in enumerate(words) if re.match(rb"-[lscgonfwSN]\Z", word.text)]
    plain = operands([word for at, word in enumerate(words) if at and at - 1 not in counted])
    if len(plain) > 1:
        return CommandFinding(tidy({"mutating", *written(plain[-1:], scene)[0]}), "writes a file")
    unsure = any(not word.literal for word in plain)
    secret = any(names_credentials(word) for word in plain)
    return CommandFinding(ESCAPE if secret else UNSURE if unsure else READ, "only reads")
